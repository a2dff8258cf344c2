"""The observers that default configurations are made of."""

from __future__ import annotations

from zeropoint.numerics.dtypes import qint8, quint4x2, quint8
from zeropoint.numerics.schemes import per_channel_affine_float_qparams, per_channel_symmetric, per_tensor_symmetric
from zeropoint.observers.histogram import HistogramObserver
from zeropoint.observers.minmax import MinMaxObserver, PerChannelMinMaxObserver
from zeropoint.observers.passive import (
    FixedQParamsObserver,
    PlaceholderObserver,
    RecordingObserver,
    ReuseInputObserver,
)

# Activations.
default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_reuse_input_observer = ReuseInputObserver
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=quint8, quant_min=0, quant_max=255, is_dynamic=True
)

# Weights. The range without -128, and the larger smallest scale, are what XNNPACK's kernels ask for.
_WITHOUT_LOWEST = {"quant_min": -127, "quant_max": 127, "eps": 2**-12}
default_weight_observer = MinMaxObserver.with_args(dtype=qint8, qscheme=per_tensor_symmetric)
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(
    dtype=qint8, qscheme=per_tensor_symmetric, **_WITHOUT_LOWEST
)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(dtype=qint8, qscheme=per_channel_symmetric)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(
    dtype=qint8, qscheme=per_channel_symmetric, **_WITHOUT_LOWEST
)

# Embeddings: a float zero point for each row.
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=quint8, qscheme=per_channel_affine_float_qparams, ch_axis=0
)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(
    dtype=quint4x2, qscheme=per_channel_affine_float_qparams, ch_axis=0
)

# Functions whose range is known: tanh, and sigmoid, hardsigmoid, softmax.
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, dtype=quint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0, dtype=quint8, quant_min=0, quant_max=255
)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
