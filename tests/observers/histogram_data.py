"""What tests of histogram observers share: the observers, data, and how near a value stays to its bin."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from observer_pairs import KINDS
from strategies import generator, seeds

from zeropoint.observers import EntropyObserver, HistogramObserver, MSEObserver, PercentileObserver

INF, NAN = float("inf"), float("nan")
# PyTorch's formulas overflow with ranges wider than float32; ours do not.
NOT_HUGE = tuple(kind for kind in KINDS if kind != "huge")
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


@st.composite
def growing(draw: st.DrawFn, kinds: tuple[str, ...] = NOT_HUGE) -> torch.Tensor:
    """A float32 batch whose range may be beyond all before."""
    kind = draw(st.sampled_from(kinds))
    n = draw(st.sampled_from([1, 2, 7, 100, 500]))
    x = KINDS[kind](generator(draw(seeds)), (n,)) * draw(st.sampled_from([1.0, 1.0, 0.3, 7.0, -2.0, 1e-3]))
    return x.clamp(-3.4e38, 3.4e38).to(torch.float32)


def cumulative(histogram: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.float64), histogram.to(torch.float64).cumsum(0)])


def assert_counts_of(observer: Any, values: torch.Tensor, bins: float) -> None:
    """The mass below each border is that of values below it, some values standing up to `bins` bins away."""
    values = values.to(torch.float64).sort().values
    low, high = observer.min_val.item(), observer.max_val.item()
    borders = torch.linspace(low, high, len(observer.histogram) + 1, dtype=torch.float64)
    slack = bins * (high - low) / len(observer.histogram)
    below = cumulative(observer.histogram)
    least = torch.searchsorted(values, borders - slack)
    most = torch.searchsorted(values, borders + slack, right=True)
    rounding = 1e-5 * len(values)
    assert (below >= least - rounding).all()
    assert (below <= most + rounding).all()
