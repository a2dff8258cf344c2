"""What tests of histogram observers share: the observers, data of several shapes, and how near a value stays to its bin."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from zeropoint.observers import EntropyObserver, HistogramObserver, MSEObserver, PercentileObserver

__all__ = ["DATA", "ONE_BIN", "OWN", "every_reader"]

OWN: list[Any] = [HistogramObserver, PercentileObserver, MSEObserver, EntropyObserver]
every_reader = pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)

# A value in a histogram stands within its bin, so it may move by one bin's width each time the bins are redrawn. Above
# that, float32 may round a value on a border to either side of it.
ONE_BIN = 1.0 + 1e-3

DATA = {
    "normal": lambda g: torch.randn(20000, generator=g),
    "relu": lambda g: torch.randn(20000, generator=g).relu(),
    "outliers": lambda g: torch.where(torch.rand(20000, generator=g) < 1e-3, 30.0, torch.randn(20000, generator=g)),
    "even": lambda g: torch.rand(20000, generator=g) * 5 - 1,
    "heavy": lambda g: torch.randn(20000, generator=g) / torch.randn(20000, generator=g).abs().clamp(0.05),
}
