"""Histogram observers of parts of the data merge to one of all of it."""

from __future__ import annotations

import copy
import itertools

import hypothesis.strategies as st
import pytest
import torch
from histogram_data import DATA, INF, ONE_BIN, assert_counts_of, every_reader, growing
from hypothesis import given
from observer_pairs import (
    KINDS,
    assert_equal,
    assert_same_state,
    ids_of_buffers,
    qparams,
)
from strategies import generator

from zeropoint.numerics.histogram import (
    add_to_histogram,
    merge_histograms,
)
from zeropoint.observers import (
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    PercentileObserver,
)

# Two histograms on one pair of bins differ from one over all by what a value moves in two redrawings.
MERGED = 2 * ONE_BIN
# Of the scale. The divergence is flat around its minimum, so a few values more or less in a bin move that far.
CLOSE = {EntropyObserver: 0.15}


@every_reader
@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
@pytest.mark.parametrize("parts", [2, 4])
def test_parts_merge_to_what_one_observer_of_all_finds(kind, data, parts):
    x = data(generator(3))
    # Of 20000 values 99.99 percent are all but one at each end: a range that one value decides is no matter here.
    options = {"percentile": 99.5} if kind is PercentileObserver else {}
    every = kind(**options)
    every(x)
    observers = []
    for part in x.chunk(parts):
        observers.append(kind(**options))
        for batch in part.chunk(2):
            observers[-1](batch)
    merged = observers[0]
    ids = ids_of_buffers(merged)
    others = copy.deepcopy(observers[1:])
    for other in observers[1:]:
        merged.merge(other)
    assert ids_of_buffers(merged) == ids
    for other, unchanged in zip(observers[1:], others):
        assert_same_state(other, unchanged)
    assert_equal(merged.min_val, every.min_val)
    assert_equal(merged.max_val, every.max_val)
    assert merged.histogram.sum().item() == pytest.approx(20000, rel=1e-6)
    assert_counts_of(merged, x, MERGED)
    (scale, zero_point), (expected, expected_zero_point) = qparams(merged), qparams(every)
    assert scale.item() == pytest.approx(expected.item(), rel=CLOSE.get(kind, 0.01))
    assert abs(zero_point.item() - expected_zero_point.item()) <= (2 if kind not in CLOSE else 15)


def test_merging_into_or_from_nothing_takes_over_or_changes_nothing():
    seen, nothing = HistogramObserver(bins=16), HistogramObserver(bins=16)
    seen(torch.randn(100, generator=generator(0)))
    before = copy.deepcopy(seen)
    seen.merge(nothing)
    assert_same_state(seen, before)
    nothing.merge(seen)
    assert_same_state(nothing, before)
    empty = HistogramObserver(bins=16)
    empty.merge(HistogramObserver(bins=16))
    assert empty.histogram.sum() == 0
    assert empty.min_val == INF


def test_constants_merge_with_anything():
    for first, second in itertools.permutations(([2.0, 2.0, 2.0], [2.0], [-1.0, 5.0], [3.0]), 2):
        one, two = HistogramObserver(bins=10), HistogramObserver(bins=10)
        one(torch.tensor(first)), two(torch.tensor(second))
        one.merge(two)
        every = [*first, *second]
        assert (one.min_val.item(), one.max_val.item()) == (min(every), max(every))
        assert one.histogram.sum() == len(every)


@given(data=st.data())
def test_merging_keeps_mass_and_range_of_any_data(data):
    sides = []
    for _ in range(2):
        state = torch.zeros(50), torch.tensor(INF), torch.tensor(-INF)
        x = data.draw(growing(tuple(KINDS)))
        add_to_histogram(x, *state)
        sides.append((x, state))
    (x, one), (y, two) = sides
    merge_histograms(*one, two)
    every = torch.cat([x, y])
    assert one[0].sum().item() == pytest.approx(every.numel(), rel=1e-5)
    assert (one[1], one[2]) == (every.min(), every.max())


def test_only_equals_merge():
    with pytest.raises(TypeError, match="HistogramObserver can only be merged with the same type, got MinMaxObserver"):
        HistogramObserver().merge(MinMaxObserver())
    with pytest.raises(ValueError, match="a histogram of 8 bins into one of 16"):
        HistogramObserver(bins=16).merge(HistogramObserver(bins=8))
