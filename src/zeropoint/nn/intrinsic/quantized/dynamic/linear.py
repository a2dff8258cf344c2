"""Linear layers with a ReLU on floats, quantized on the way in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.nn.intrinsic import fused, qat as nniqat
from zeropoint.nn.quantized import dynamic
from zeropoint.numerics.dtypes import qint8
from zeropoint.ops import rounding


class LinearReLU(dynamic.Linear):
    """`zeropoint.nn.quantized.dynamic.Linear` with a ReLU."""

    _FLOAT = (fused.LinearReLU, nniqat.LinearReLU)
    _NAME = "DynamicQuantizedLinearReLU"
    _RELU = True

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = qint8) -> None:
        super().__init__(in_features, out_features, bias, dtype)

    def _graph(self, x: Tensor) -> Tensor:
        w = self._packed_params
        if w._weight_dtype == "float16":
            return torch.ops.zeropoint.linear_relu_dynamic_fp16(x, w._weight_values, w._bias)
        reduce_range = rounding.takes_7_bits(self.reduce_range, w._rounding)
        return torch.ops.zeropoint.linear_relu_dynamic(
            x, w._weight_values, w._weight_scales, w._weight_zero_points, w._bias, reduce_range, False, w._rounding
        )
