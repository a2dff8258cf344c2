"""Guesses of the next tokens, from what came behind the same tokens earlier: code, quotes and names repeat.

A decoder checks all guesses in one step, which reads its weights once. Wrong ones cost little, and never change the
answer.
"""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST, _SHORTEST = 4, 2  # tokens at the end that must be the same
_FAR = 4096  # tokens that are looked at


def draft_of(tokens: Sequence[int], most: int) -> list[int]:
    """What followed the last tokens where they were last seen.

    Example:
        >>> draft_of([1, 2, 3, 4, 9, 1, 2, 3], 2)
        [4, 9]
        >>> draft_of([1, 2, 3], 2)
        []
    """
    recent = list(tokens[-_FAR:])
    for length in range(min(_LONGEST, len(recent) - 1), _SHORTEST - 1, -1):
        end = recent[-length:]
        for at in range(len(recent) - length - 1, -1, -1):
            if recent[at] == end[0] and recent[at : at + length] == end:
                return recent[at + length : at + length + most]
    return []
