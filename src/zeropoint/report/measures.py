"""How far a tensor is from what it should be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Distance", "decibels"]


def decibels(signal: float, noise: float) -> float:
    """Signal to noise ratio of two powers, ``10 log10(signal / noise)``: infinite without noise.

    Example:
        >>> decibels(100.0, 1.0), decibels(1.0, 0.0)
        (20.0, inf)
    """
    if noise <= 0.0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0.0 else -math.inf


@dataclass
class Distance:
    """Sums over pairs of tensors `wanted`, `got` of the same shape; what is not finite in either is left out.

    ``sqnr = 10 log10(sum wanted² / sum (wanted - got)²)``, in dB: 6 dB are one bit.
    ``cosine = sum wanted got / sqrt(sum wanted² sum got²)``.

    Example:
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
        a, b = wanted.detach().double().flatten(), got.detach().double().flatten()
        finite = a.isfinite() & b.isfinite()
        if not bool(finite.all()):
            a, b = a[finite], b[finite]
        self.signal += float(torch.dot(a, a))
        self.power += float(torch.dot(b, b))
        self.product += float(torch.dot(a, b))
        difference = a - b
        self.noise += float(torch.dot(difference, difference))
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
