"""Signal to noise of a quantized model's results: what `compare` gives, without capturing the float model for it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def sqnr_of(model: nn.Module, quantized: nn.Module, batches: Iterable[Tensor]) -> float:
    """``10 log10(sum x² / sum (x - q)²)`` over the results of all batches, in dB."""
    signal = noise = 0.0
    with torch.no_grad():
        for batch in batches:
            expected = model(batch).double()
            signal += float(expected.square().sum())
            noise += float((expected - quantized(batch)).square().sum())
    return 10 * math.log10(signal / noise)
