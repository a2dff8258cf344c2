"""What the ranges of our own histogram observers mean: least error, share of values, divergence."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from histogram_data import DATA, OWN, every_reader, growing
from hypothesis import given
from observer_pairs import (
    assert_same_qparams,
    assert_same_settings,
    assert_same_state,
    assert_twins,
    feed,
    pair,
    qparams,
)
from strategies import examples, generator, seeds

import zeropoint
from zeropoint.numerics.histogram import (
    least_error_range,
    percentile_range,
)
from zeropoint.observers import (
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    MSEObserver,
    PercentileObserver,
    StreamingHistogramObserver,
)


def squared_error(x: torch.Tensor, observer: Any) -> float:
    scale, zero_point = qparams(observer)
    low, high = observer.quant_min, observer.quant_max
    y = zeropoint.fake_quantize_per_tensor_affine(x, scale.item(), int(zero_point), low, high)
    return (y - x).square().mean().item()


def bell_with_outliers(seed: int = 0, outlier: float = 40.0) -> torch.Tensor:
    x = torch.randn(100_000, generator=generator(seed))
    x[::10_000] = outlier
    return x


BITS = {4: {"dtype": "quint4x2"}, 8: {"dtype": "quint8"}}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("scheme", ["per_tensor_affine", "per_tensor_symmetric"])
def test_mse_range_loses_less_than_the_whole_range(bits, scheme):
    x = bell_with_outliers(outlier=12.0)
    options = {
        "qscheme": scheme,
        "dtype": "qint8",
        "quant_min": -(2 ** (bits - 1)),
        "quant_max": 2 ** (bits - 1) - 1,
    }
    mse, minmax = MSEObserver(**options), MinMaxObserver(**options)
    mse(x), minmax(x)
    assert squared_error(x, mse) <= squared_error(x, minmax)
    if bits == 4:
        assert squared_error(x, mse) < 0.6 * squared_error(x, minmax)


@pytest.mark.parametrize("bits", BITS)
def test_mse_range_loses_no_more_than_any_other_observer(bits):
    x = torch.randn(100_000, generator=generator(1))
    errors = {}
    for kind in (MSEObserver, HistogramObserver, PercentileObserver, EntropyObserver, MinMaxObserver):
        observer = kind(**BITS[bits])
        observer(x)
        errors[kind.__name__] = squared_error(x, observer)
    # Bins have a width, so the least error of the histogram is not quite that of the data.
    assert errors["MSEObserver"] <= 1.02 * min(errors.values()), errors


def test_mse_of_a_grid_of_candidates_is_least_by_brute_force():
    """The search goes along the diagonal, then each end alone: here it finds the best of all pairs."""
    counts = torch.zeros(64)
    counts[8:40] = torch.rand(32, generator=generator(0)) * 100
    counts[63] = 1
    low, high = torch.tensor(-1.0), torch.tensor(3.0)
    eps = torch.tensor([1e-9])
    found = least_error_range(counts, low, high, 0, 15, eps=eps)
    middles = low + (high - low) * (torch.arange(64) + 0.5) / 64

    def error(a: torch.Tensor, b: torch.Tensor) -> float:
        scale = (b.clamp(min=0) - a.clamp(max=0)) / 15
        zero_point = (-torch.round(a.clamp(max=0) / scale)).clamp(0, 15)
        q = (torch.round(middles / scale) + zero_point).clamp(0, 15)
        return (((q - zero_point) * scale - middles).square() * counts).sum().item()

    best = min(error(low * i / 20, high * j / 20) for i in range(1, 21) for j in range(1, 21))
    assert error(*found) <= 1.1 * best


@pytest.mark.parametrize("percentile", [50.0, 90.0, 99.0, 99.99, 100.0])
@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
def test_percentile_range_holds_its_share_of_the_values(percentile, data):
    x = data(generator(5))
    observer = PercentileObserver(percentile=percentile)
    observer(x)
    low, high = observer._kept_range()
    assert observer.min_val <= low <= high <= observer.max_val
    width = (observer.max_val - observer.min_val).item() / observer.bins
    inside = ((x >= low - width) & (x <= high + width)).sum().item()
    assert inside >= percentile / 100 * len(x) - 1
    if percentile < 100:
        strictly = ((x > low + width) & (x < high - width)).sum().item()
        assert strictly <= percentile / 100 * len(x) + 1
    else:
        torch.testing.assert_close(torch.stack([low, high]), torch.stack([x.min(), x.max()]))


@given(data=st.data())
def test_percentile_range_is_inside_and_grows_with_the_percentile(data):
    counts = torch.rand(data.draw(st.integers(1, 40)), generator=generator(data.draw(seeds)))
    counts[torch.rand(counts.shape, generator=generator(1)) < 0.5] = 0
    counts[data.draw(st.integers(0, len(counts) - 1))] += 1
    ends = torch.tensor(-2.0), torch.tensor(5.0)
    last = None
    for percentile in (1.0, 30.0, 80.0, 99.9, 100.0):
        low, high = percentile_range(counts, *ends, percentile)
        assert ends[0] <= low <= high <= ends[1]
        if last is not None:
            assert low <= last[0]
            assert high >= last[1]
        last = low, high


def test_entropy_range_cuts_outliers():
    x = bell_with_outliers(outlier=100.0)
    observer = EntropyObserver()
    observer(x)
    low, high = observer._kept_range()
    assert 2.5 < high < 20
    assert low >= observer.min_val
    whole = MinMaxObserver()
    whole(x)
    bulk = x[x < 10]
    assert squared_error(bulk, observer) < 0.2 * squared_error(bulk, whole)


def test_entropy_range_is_not_drawn_to_the_peak_at_zero_of_a_relu():
    bell = torch.randn(200_000, generator=generator(0))
    relu, bare = EntropyObserver(), EntropyObserver()
    relu(torch.cat([bell.relu(), torch.zeros(1_000_000)]))
    bare(bell.abs())
    (low, high), (_, expected) = relu._kept_range(), bare._kept_range()
    assert low == 0
    assert high > 2
    assert high.item() == pytest.approx(expected.item(), rel=0.15)


@pytest.mark.parametrize("sign", [1, -1])
def test_entropy_range_of_one_sided_data_is_cut_at_its_far_end_only(sign):
    x = torch.rand(50_000, generator=generator(0)) + 1
    x[0] = 60
    observer = EntropyObserver()
    observer(sign * x)
    low, high = observer._kept_range()
    near, far = (low, high) if sign > 0 else (-high, -low)
    assert near == (sign * x).abs().min()
    assert 1.9 < far < 30


@every_reader
@pytest.mark.parametrize("value", [0.0, 3.0, -2.0, 1e-41])
def test_constant_data_has_sensible_parameters(kind, value):
    observer = kind()
    observer(torch.full((10,), value))
    scale, zero_point = qparams(observer)
    assert scale.isfinite().all()
    assert (scale > 0).all()
    assert 0 <= zero_point.item() <= 255
    y = zeropoint.fake_quantize_per_tensor_affine(torch.tensor([value]), scale.item(), int(zero_point), 0, 255)
    assert y.item() == pytest.approx(value, abs=max(abs(value) * 0.01, 1e-6))


@every_reader
@examples(30)
@given(data=st.data())
def test_kept_ranges_are_inside_what_was_seen(kind, data):
    observer = kind(
        bins=data.draw(st.sampled_from([1, 2, 16, 300])), dtype=data.draw(st.sampled_from(["quint8", "qint8"]))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        observer(data.draw(growing()))
    low, high = observer._kept_range()
    if kind is MSEObserver:  # which looks for a range with 0 in it, as quantization has
        assert low <= 0 <= high
        low, high = torch.maximum(low, observer.min_val), torch.minimum(high, observer.max_val)
    slack = 1e-5 * (observer.max_val - observer.min_val + observer.max_val.abs() + observer.min_val.abs())
    assert observer.min_val - slack <= low <= high <= observer.max_val + slack
    scale, zero_point = qparams(observer)
    assert scale > 0
    assert observer.quant_min <= zero_point <= observer.quant_max


@every_reader
def test_readers_script_save_and_answer_alike(kind, tmp_path):
    eager, scripted = kind(), torch.jit.script(kind())
    for seed in range(2):
        x = torch.randn(1000, generator=generator(seed)) * (1 + seed)
        eager(x), scripted(x)
    torch.jit.save(scripted, tmp_path / "observer.pt")
    loaded = torch.jit.load(tmp_path / "observer.pt")
    for other in (scripted, loaded):
        assert_same_state(eager, other)
        assert_same_qparams(eager, other)


@every_reader
def test_readers_warn_and_answer_defaults_before_data(kind):
    with pytest.warns(UserWarning, match="before the observer saw any data"):
        scale, zero_point = kind().calculate_qparams()
    assert (scale.tolist(), zero_point.tolist()) == ([1.0], [0])


def test_default_histogram_observer_equals_the_oracle():
    both = pair("default_histogram_observer")
    assert_same_settings(*both)
    feed(both, torch.randn(500, generator=generator(0)))
    assert_twins(*both)
    assert isinstance(both[0], StreamingHistogramObserver)


def test_readers_say_nothing_when_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in OWN:
            observer = kind()
            observer(torch.randn(100, generator=generator(0)))
            observer.calculate_qparams()
