"""The next token, chosen from logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Args:
        temperature: what logits are divided by; 0 takes the largest one.
        top_k: only so many of the most likely tokens; 0 is all.
        top_p: only the most likely tokens that together have this probability.
        min_p: only tokens with this share of the largest probability.

    Raises:
        ValueError: for a number out of range.

    Example:
        >>> logits = np.array([1.0, 3.0, 2.9], np.float32)
        >>> Sampling().choose(logits, np.random.default_rng(0))
        1
        >>> Sampling(temperature=1.0, top_k=1).choose(logits, np.random.default_rng(0))
        1
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (("temperature", 0, 100), ("top_k", 0, 1 << 30), ("top_p", 0, 1), ("min_p", 0, 1)):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be from {low} to {high}, got {value!r}")

    def choose(self, logits: np.ndarray, random: np.random.Generator) -> int:
        """The number of a token. It draws one number, unless the temperature is 0.

        Raises:
            FloatingPointError: if all logits are NaN or infinite.
        """
        if not np.isfinite(logits.max()):
            raise FloatingPointError("the logits are not finite: the weights are damaged, or too large for float16")
        if self.temperature == 0:
            return int(logits.argmax())
        count = min(self.top_k or len(logits), len(logits))
        kept = np.argpartition(logits, len(logits) - count)[len(logits) - count :]
        kept = kept[np.argsort(-logits[kept], kind="stable")]
        scores = logits[kept].astype(np.float64) / self.temperature
        shares = np.exp(scores - scores[0])
        shares /= shares.sum()
        # A token is kept if those before it have less than top_p.
        allowed = (np.cumsum(shares) - shares < self.top_p) & (shares >= self.min_p * shares[0])
        allowed[0] = True
        shares = np.where(allowed, shares, 0.0)
        return int(
            kept[np.searchsorted(np.cumsum(shares / shares.sum()), random.random(), side="right").clip(0, count - 1)]
        )
