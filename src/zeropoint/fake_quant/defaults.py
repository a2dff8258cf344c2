"""The fake-quantize modules that default training configurations are made of."""

from __future__ import annotations

from zeropoint.fake_quant.modules import FakeQuantize, FixedQParamsFakeQuantize, FusedMovingAvgObsFakeQuantize
from zeropoint.numerics.dtypes import qint8, quint4x2, quint8
from zeropoint.numerics.schemes import (
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
)
from zeropoint.observers.defaults import (
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)
from zeropoint.observers.histogram import HistogramObserver
from zeropoint.observers.minmax import MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver

_UNSIGNED = {"quant_min": 0, "quant_max": 255, "dtype": quint8}
_SIGNED = {"quant_min": -128, "quant_max": 127, "dtype": qint8}
# What XNNPACK's kernels ask for.
_WITHOUT_LOWEST = {"quant_min": -127, "quant_max": 127, "dtype": qint8, "eps": 2**-12}
_PER_TENSOR = {"observer": MovingAverageMinMaxObserver, "qscheme": per_tensor_symmetric}
_PER_CHANNEL = {"observer": MovingAveragePerChannelMinMaxObserver, "qscheme": per_channel_symmetric}
_PER_ROW = {
    "observer": MovingAveragePerChannelMinMaxObserver,
    "qscheme": per_channel_affine_float_qparams,
    "ch_axis": 0,
    "averaging_constant": 1,
}

# Activations.
default_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, qscheme=per_tensor_affine, reduce_range=True, **_UNSIGNED
)
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=HistogramObserver, qscheme=per_tensor_affine, reduce_range=True, **_UNSIGNED
)
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, is_dynamic=True, averaging_constant=1, **_UNSIGNED
)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_UNSIGNED
)

# Weights.
default_weight_fake_quant = FakeQuantize.with_args(reduce_range=False, **_PER_TENSOR, **_SIGNED)
default_per_channel_weight_fake_quant = FakeQuantize.with_args(reduce_range=False, ch_axis=0, **_PER_CHANNEL, **_SIGNED)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_PER_TENSOR, **_SIGNED)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_PER_CHANNEL, **_SIGNED)
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(**_PER_TENSOR, **_WITHOUT_LOWEST)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    **_PER_CHANNEL, **_WITHOUT_LOWEST
)

# Embeddings: a float zero point for each row, of the row as it is now.
default_embedding_fake_quant = FakeQuantize.with_args(**_PER_ROW, **_UNSIGNED)
default_embedding_fake_quant_4bit = FakeQuantize.with_args(dtype=quint4x2, **_PER_ROW)

# Functions whose range is known: tanh, and sigmoid, hardsigmoid, softmax.
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
