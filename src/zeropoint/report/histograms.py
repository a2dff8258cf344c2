"""How values are spread, and which range was chosen for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zeropoint.comparison.pairs import Layer

BINS = 64


@dataclass(frozen=True)
class Histogram:
    """Counts of values in equal bins from `low` to `high`; the values that integers can stand for lie in `range`."""

    counts: tuple[int, ...]
    low: float
    high: float
    range: tuple[float, float] | None = None


def histogram(values: Tensor, chosen: tuple[float, float] | None = None) -> Histogram:
    """The histogram of all values that are finite, wide enough to show the chosen range, too.

    Example:
        >>> found = histogram(torch.tensor([0.0, 1.0, 1.0]), (0.0, 2.0))
        >>> found.counts[0], found.counts[32], found.high
        (1, 2, 2.0)
    """
    flat = values.detach().float().flatten()
    flat = flat[flat.isfinite()]
    ends = [*chosen] if chosen is not None else []
    if flat.numel():
        ends += [float(flat.min()), float(flat.max())]
    low, high = (min(ends), max(ends)) if ends else (0.0, 0.0)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    counts = torch.histc(flat, BINS, low, high) if flat.numel() else torch.zeros(BINS)
    return Histogram(tuple(int(c) for c in counts), low, high, chosen)


def activation_histogram(layer: Layer, values: Tensor, integers: Tensor | None) -> Histogram:
    """Of the results of a layer in the float model; the range is what its scale and zero point allow."""
    chosen = None
    if integers is not None and layer.scale is not None:
        kind, zero_point = torch.iinfo(integers.dtype), layer.zero_point or 0
        chosen = ((kind.min - zero_point) * layer.scale, (kind.max - zero_point) * layer.scale)
    return histogram(values, chosen)


def weight_histogram(layer: Layer) -> Histogram | None:
    """Of the float weight of a layer; the range is that of what its integers stand for."""
    if layer.weight is None or layer.rounded_weight is None:
        return None
    return histogram(layer.weight, (float(layer.rounded_weight.min()), float(layer.rounded_weight.max())))
