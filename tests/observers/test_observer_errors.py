"""Bad input to observers: the right exception, words that name the value and the way out, and nothing recorded lost."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from observer_pairs import RANGES, assert_equal, copies, pair, qparams
from strategies import generator

import zeropoint
from zeropoint.observers import (
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    MSEObserver,
    PercentileObserver,
    PerChannelMinMaxObserver,
    UniformQuantizationObserverBase,
)

PER_TENSOR: list[Any] = [
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    HistogramObserver,
    PercentileObserver,
    MSEObserver,
    EntropyObserver,
]
PER_CHANNEL: list[Any] = [PerChannelMinMaxObserver, MovingAveragePerChannelMinMaxObserver]


def each(kinds: list[Any]) -> Any:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.__name__)


every = each([*PER_TENSOR, *PER_CHANNEL])
per_tensor, per_channel = each(PER_TENSOR), each(PER_CHANNEL)

# ------------------------------------------------------------------------------------------------------ construction


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool, "quint2x4"], ids=str)
def test_dtypes_that_no_observer_has_are_refused_by_name(kind, dtype):
    with pytest.raises(ValueError, match=rf"{kind.__name__}: dtype must be one of .*quint8.*got .*{dtype}"):
        kind(dtype=dtype)


@every
@pytest.mark.parametrize("dtype", ["int7", 8, None])
def test_what_is_no_dtype_is_a_type_error(kind, dtype):
    with pytest.raises(TypeError, match=rf"dtype must be .*got {dtype!r}"):
        kind(dtype=dtype)


@per_tensor
@pytest.mark.parametrize("scheme", [torch.per_channel_affine, torch.per_channel_symmetric], ids=str)
def test_per_channel_schemes_are_sent_to_the_other_observer(kind, scheme):
    with pytest.raises(NotImplementedError, match=r"per-tensor, got .*per_channel.*PerChannelMinMaxObserver"):
        kind(qscheme=scheme)


@per_channel
@pytest.mark.parametrize("scheme", [torch.per_tensor_affine, torch.per_tensor_symmetric], ids=str)
def test_per_tensor_schemes_are_sent_to_the_other_observer(kind, scheme):
    with pytest.raises(NotImplementedError, match=r"per-channel, got .*per_tensor.*; use MinMaxObserver"):
        kind(qscheme=scheme)


@every
def test_unknown_schemes_are_refused_by_name(kind):
    with pytest.raises((ValueError, TypeError), match="per_banana"):
        kind(qscheme="per_banana")


@every
@pytest.mark.parametrize("given", [{"quant_min": 0}, {"quant_max": 255}], ids=str)
def test_one_end_of_a_range_alone_is_refused(kind, given):
    ends = f"{given.get('quant_min')} and {given.get('quant_max')}"
    with pytest.raises(ValueError, match=f"both quant_min and quant_max, or neither, got {ends}"):
        kind(**given)


@every
@pytest.mark.parametrize(("low", "high"), [(1, 255), (-128, -1), (5, 3)])
def test_ranges_without_zero_are_refused(kind, low, high):
    with pytest.raises(ValueError, match=f"must contain 0, got {low} and {high}"):
        kind(quant_min=low, quant_max=high)


@every
def test_ranges_of_one_value_are_refused(kind):
    with pytest.raises(ValueError, match="quant_min must be below quant_max, both are 0"):
        kind(quant_min=0, quant_max=0)


@every
@pytest.mark.parametrize(("dtype", "high"), [("quint8", 256), ("qint8", 256), ("quint4x2", 16)])
def test_ranges_beyond_the_dtype_are_refused(kind, dtype, high):
    with pytest.raises(ValueError, match=rf"0\.\.{high} are {high + 1} values, but the dtype has {high}"):
        kind(dtype=dtype, quant_min=0, quant_max=high)


@pytest.mark.parametrize("dtype", list(RANGES), ids=str)
def test_what_the_oracle_takes_we_take(dtype):
    for low, high in RANGES[dtype]:
        for name in ("MinMaxObserver", "PerChannelMinMaxObserver"):
            mine, other = pair(name, dtype=dtype, quant_min=low, quant_max=high)
            assert (mine.quant_min, mine.quant_max) == (other.quant_min, other.quant_max)


@each([MinMaxObserver, MovingAverageMinMaxObserver, *PER_CHANNEL, PercentileObserver, MSEObserver, EntropyObserver])
def test_a_symmetric_quint8_cannot_be_reduced(kind):
    scheme = "per_channel_symmetric" if kind in PER_CHANNEL else "per_tensor_symmetric"
    with pytest.raises(NotImplementedError, match=r"quint8; use qint8, or quant_min=0 and quant_max=127"):
        kind(dtype="quint8", qscheme=scheme, reduce_range=True)
    kind(dtype="qint8", qscheme=scheme, reduce_range=True)
    kind(dtype="quint8", qscheme=scheme, quant_min=0, quant_max=127)


@every
def test_dynamic_quantization_is_for_moving_averages_of_one(kind):
    if kind is MinMaxObserver:
        assert kind(is_dynamic=True).is_dynamic
        return
    with pytest.raises(NotImplementedError, match=kind.__name__):
        kind(is_dynamic=True)
    with pytest.raises(NotImplementedError, match=r"averaging_constant must be 1, got 0\.5"):
        MovingAverageMinMaxObserver(averaging_constant=0.5, is_dynamic=True)


@pytest.mark.parametrize("percentile", [0.0, -1.0, 100.1, float("nan"), float("inf")])
def test_percentiles_outside_their_range_are_refused(percentile):
    with pytest.raises(ValueError, match=re.escape(f"above 0 and at most 100, got {percentile}")):
        PercentileObserver(percentile=percentile)


@pytest.mark.parametrize("given", [{"bins": 0}, {"bins": -3}, {"upsample_rate": 0}], ids=str)
def test_histograms_need_bins(given):
    with pytest.raises(ValueError, match="must be positive, got"):
        HistogramObserver(**given)


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="bananas"):
        MinMaxObserver(bananas=3)


def test_the_base_class_has_nothing_to_reset_or_merge():
    class Idle(UniformQuantizationObserverBase):
        def forward(self, x):
            return x

        def calculate_qparams(self):
            return None

    with pytest.raises(NotImplementedError, match="reset"):
        Idle().reset_min_max_vals()
    with pytest.raises(NotImplementedError, match="Idle cannot be merged"):
        Idle().merge(Idle())


# --------------------------------------------------------------------------------------------------------- in use


@every
def test_before_data_there_is_a_warning_and_a_default(kind):
    observer = kind()
    for _ in range(2):
        with pytest.warns(UserWarning, match="before the observer saw any data; it returns scale 1 and zero point 0"):
            scale, zero_point = observer.calculate_qparams()
        assert_equal(scale, torch.tensor([1.0]))
        assert_equal(zero_point, torch.tensor([0]))
        observer(torch.empty(0, 3))  # is no data


@per_channel
@pytest.mark.parametrize("axis", [2, 5, -3])
def test_an_axis_that_is_none_is_refused_and_nothing_is_lost(kind, axis):
    observer = kind(ch_axis=axis)
    with pytest.raises(
        ValueError, match=f"ch_axis {axis} is out of range for an input of 2 dimensions.*another ch_axis"
    ):
        observer(torch.ones(2, 3))
    assert observer.min_val.numel() == 0


@per_channel
@pytest.mark.parametrize("scripted", [False, True], ids=["eager", "scripted"])
def test_a_changed_number_of_channels_is_refused_and_nothing_is_lost(kind, scripted):
    observer = torch.jit.script(kind()) if scripted else kind()
    observer(torch.randn(3, 4, generator=generator(0)))
    before = copies(observer)
    words = r"(?s)\(5, 4\) has 5 channels along axis 0.*3|3.*\(5, 4\) has 5 channels along axis 0"
    with pytest.raises((ValueError, RuntimeError), match=words):
        observer(torch.full((5, 4), 100.0))
    with pytest.raises((ValueError, RuntimeError), match="1 channels"):
        observer(torch.full((1, 4), 100.0))  # would spread over all
    for key, value in before.items():
        assert_equal(observer.state_dict()[key], value)
    observer(torch.randn(3, 9, generator=generator(1)))


@per_channel
def test_observers_of_other_channels_do_not_merge(kind):
    one, two = kind(), kind()
    one(torch.ones(3, 2)), two(torch.ones(4, 2))
    with pytest.raises(ValueError, match="a range of 4 channels into one of 3"):
        one.merge(two)
    with pytest.raises(TypeError, match="the same type, got MinMaxObserver"):
        one.merge(MinMaxObserver())
    assert one.min_val.shape == (3,)


@each([MinMaxObserver, MovingAverageMinMaxObserver, *PER_CHANNEL])
def test_parameters_of_a_range_with_nan_are_refused(kind):
    """NaN is recorded, as in PyTorch; what follows from it is not made up."""
    observer = kind()
    observer(torch.tensor([[1.0, float("nan")]]))
    with pytest.raises(ValueError, match="nan"):
        observer.calculate_qparams()
    observer.reset_min_max_vals()
    observer(torch.tensor([[1.0, 2.0]]))
    assert qparams(observer)[0].isfinite().all()


@every
def test_integers_are_observed_as_their_values(kind):
    observer = kind()
    observer(torch.tensor([[1, 2, 7]]))
    assert (observer.min_val.item(), observer.max_val.item()) == (1.0, 7.0)


def test_errors_reach_users_of_a_model_in_words():
    model = torch.nn.Sequential(torch.nn.ReLU(), zeropoint.HistogramObserver())
    model(torch.ones(3))
    with pytest.raises(ValueError, match="1 NaN"):
        model(torch.tensor([1.0, float("nan")]))
