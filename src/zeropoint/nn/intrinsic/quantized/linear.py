"""Linear layers with an activation function, on quantized tensors, rounded once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.nn import quantized as nnq
from zeropoint.nn.intrinsic import fused
from zeropoint.nn.quantized.linear import linear_graph
from zeropoint.nn.quantized.storage import integers_of, quantized
from zeropoint.numerics.dtypes import qint8
from zeropoint.qfunctions import packed
from zeropoint.tensor.qtensor import QTensor


class LinearReLU(nnq.Linear):
    """`zeropoint.nn.quantized.Linear` with a ReLU."""

    _FLOAT = (fused.LinearReLU,)
    _NAME = "QuantizedLinearReLU"
    _RELU = True
    _graph = linear_graph(torch.ops.zeropoint.linear_relu)

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = qint8) -> None:
        super().__init__(in_features, out_features, bias, dtype)


class LinearLeakyReLU(nnq.Linear):
    """`zeropoint.nn.quantized.Linear` whose negative results are multiplied by `negative_slope`."""

    _FLOAT = (fused.LinearLeakyReLU,)
    _NAME = "QuantizedLinearLeakyReLU"

    def __init__(
        self, in_features: int, out_features: int, negative_slope: float, bias: bool = True, dtype: Any = qint8
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype)
        self.negative_slope = float(negative_slope)

    def _graph(self, x: Tensor) -> Tensor:
        w = self._packed_params
        y = torch.ops.zeropoint.linear_leaky_relu(
            *integers_of(x), w._weight_values, w._weight_scales, w._weight_zero_points,
            w._bias, self.scale, self.zero_point, self.negative_slope, w._rounding,
        )  # fmt: skip
        return quantized(y, self.scale, self.zero_point)

    def _eager(self, x: QTensor) -> QTensor:
        layer = self._packed_params.layer()
        return packed.run_linear("linear_leaky_relu", x, layer, self.scale, self.zero_point, slope=self.negative_slope)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> LinearLeakyReLU:
        made = super().from_float(mod)
        made.negative_slope = float(mod[1].negative_slope)
        return made

    @classmethod
    def _of(cls, weight: QTensor, bias: Tensor | None, scale: float, zero_point: int) -> LinearLeakyReLU:
        outputs, inputs = weight.shape
        made = cls(inputs, outputs, 0.01, bias is not None, dtype=weight._qdtype)
        made.set_weight_bias(weight, bias)
        made.scale, made.zero_point = scale, zero_point
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any, output_scale: float, output_zero_point: int) -> LinearLeakyReLU:
        made = super().from_reference(ref_mod[0], output_scale, output_zero_point)
        made.negative_slope = float(ref_mod[1].negative_slope)
        return made


class LinearTanh(nnq.Linear):
    """`zeropoint.nn.quantized.Linear` with a tanh."""

    _FLOAT = (fused.LinearTanh,)
    _NAME = "QuantizedLinearTanh"

    def _graph(self, x: Tensor) -> Tensor:
        w = self._packed_params
        y = torch.ops.zeropoint.linear_tanh(
            *integers_of(x), w._weight_values, w._weight_scales, w._weight_zero_points,
            w._bias, self.scale, self.zero_point,
        )  # fmt: skip
        return quantized(y, self.scale, self.zero_point)

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = qint8) -> None:
        super().__init__(in_features, out_features, bias, dtype)

    def _eager(self, x: QTensor) -> QTensor:
        return packed.run_linear_tanh(x, self._packed_params.layer(), self.scale, self.zero_point)
