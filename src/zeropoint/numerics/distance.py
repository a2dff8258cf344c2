"""How far a tensor is from what it should be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

_CHUNK = 1 << 16  # values at a time: they stay in the cache, and float32 is enough to add them up


def decibels(signal: float, noise: float) -> float:
    """Signal to noise ratio of two powers, ``10 log10(signal / noise)``: infinite without noise.

    Example:
        >>> decibels(100.0, 1.0), decibels(1.0, 0.0)
        (20.0, inf)
    """
    if noise <= 0.0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0.0 else -math.inf


def _sums(a: Tensor, b: Tensor) -> tuple[float, float, float, float]:
    """Of the squares of a and b, of their products, and of the squares of their differences."""
    difference = a - b
    return float(a.dot(a)), float(b.dot(b)), float(a.dot(b)), float(difference.dot(difference))


@dataclass
class Distance:
    """Sums over pairs of tensors `wanted`, `got` of the same shape; what is not finite in either is left out.

    ``sqnr = 10 log10(sum wanted² / sum (wanted - got)²)``, in dB: 6 dB are one bit.
    ``cosine = sum wanted got / sqrt(sum wanted² sum got²)``.

    Example:
        >>> import torch
        >>> distance = Distance()
        >>> distance.add(torch.tensor([10.0, 0.0]), torch.tensor([11.0, 0.0]))
        >>> distance.sqnr, distance.cosine
        (20.0, 1.0)
    """

    signal: float = 0.0
    noise: float = 0.0
    product: float = 0.0
    power: float = 0.0
    count: int = 0

    def add(self, wanted: Tensor, got: Tensor) -> None:
        """Take a pair into account."""
        first, second = wanted.detach().flatten().float(), got.detach().flatten().float()
        for a, b in zip(first.split(_CHUNK), second.split(_CHUNK)):
            sums = _sums(a, b)
            if not all(map(math.isfinite, sums)):  # values that are not, or that are too large to be multiplied
                finite = a.isfinite() & b.isfinite()
                a, b = a[finite], b[finite]
                sums = _sums(a.double(), b.double())
            self.signal += sums[0]
            self.power += sums[1]
            self.product += sums[2]
            self.noise += sums[3]
            self.count += a.numel()

    @property
    def sqnr(self) -> float:
        """Signal to quantization noise ratio in dB."""
        return decibels(self.signal, self.noise)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the two; 1 if both are zero."""
        if self.signal == 0.0 or self.power == 0.0:
            return 1.0 if self.signal == self.power else 0.0
        return self.product / math.sqrt(self.signal * self.power)

    @property
    def relative(self) -> float:
        """Noise for each unit of signal; infinite where noise has no signal."""
        if self.noise == 0.0:
            return 0.0
        return self.noise / self.signal if self.signal > 0.0 else math.inf
