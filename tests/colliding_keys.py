"""Words that one hash function cannot tell apart: that of GCC's standard library, which has no secret."""

from __future__ import annotations

import numpy as np

_MULTIPLIER = 0xC6A4A7935BD1E995  # of MurmurHash64A
_SEED = 0xC70F6907
_WORD = (1 << 64) - 1


def _mixed(k: np.ndarray, factor: int) -> np.ndarray:
    """One block of 8 bytes as it is added to the hash; with the inverse of the factor, the block again."""
    k = k * np.uint64(factor)
    k ^= k >> np.uint64(47)
    return k * np.uint64(factor)


def _pairs(before: int, after: int, count: int, random: np.random.Generator) -> list[str]:
    """Words of two blocks that take the hash from one value to another: any first block has its second one."""
    inverse = pow(_MULTIPLIER, -1, 1 << 64)
    found: list[str] = []
    while len(found) < count:
        first = random.integers(0x23, 0x5B, (1 << 18, 8), dtype=np.uint8)
        between = (np.uint64(before) ^ _mixed(first.view("<u8").ravel(), _MULTIPLIER)) * np.uint64(_MULTIPLIER)
        second = _mixed(np.uint64(after * inverse & _WORD) ^ between, inverse)
        letters = second.view(np.uint8).reshape(-1, 8)
        usable = ((letters > 0x22) & (letters < 0x7F) & (letters != 0x5C)).all(1)
        found += [(a.tobytes() + b.tobytes()).decode() for a, b in zip(first[usable], letters[usable])]
    return found[:count]


def colliding_words(side: int) -> list[str]:
    """The square of `side` words of 32 letters with one hash.

    Example:
        >>> words = colliding_words(3)
        >>> len(set(words)), {len(word) for word in words}
        (9, {32})
    """
    random = np.random.default_rng(0)
    start = (_SEED ^ (32 * _MULTIPLIER)) & _WORD
    with np.errstate(over="ignore"):
        front, back = _pairs(start, 12345, side, random), _pairs(12345, 67890, side, random)
    return [a + b for a in front for b in back]
