"""Convolutions with what follows them, on quantized tensors, rounded once."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from zeropoint.nn import quantized as nnq
from zeropoint.nn.intrinsic import fused
from zeropoint.nn.quantized.conv import conv_graph
from zeropoint.nn.quantized.storage import integers_of, quantized
from zeropoint.tensor.recording import is_recorded


class ConvReLU1d(nnq.Conv1d):
    """`zeropoint.nn.quantized.Conv1d` with a ReLU."""

    _FLOAT = (fused.ConvReLU1d,)
    _NAME = "QuantizedConvReLU1d"
    _RELU = True
    _graph = conv_graph(torch.ops.zeropoint.conv1d_relu)


class ConvReLU2d(nnq.Conv2d):
    """`zeropoint.nn.quantized.Conv2d` with a ReLU."""

    _FLOAT = (fused.ConvReLU2d,)
    _NAME = "QuantizedConvReLU2d"
    _RELU = True
    _graph = conv_graph(torch.ops.zeropoint.conv2d_relu)


class ConvReLU3d(nnq.Conv3d):
    """`zeropoint.nn.quantized.Conv3d` with a ReLU."""

    _FLOAT = (fused.ConvReLU3d,)
    _NAME = "QuantizedConvReLU3d"
    _RELU = True
    _graph = conv_graph(torch.ops.zeropoint.conv3d_relu)


def conv_add_graph(op: Any) -> Any:
    """The method `_add_graph` of a convolution to which a tensor is added."""

    def _add_graph(self: Any, x: Tensor, other: Tensor) -> Tensor:
        y = op(
            *self._mirrored(x), self._weight_values, self._weight_scales,
            self._weight_zero_points, self._bias, self._stride, self._pads, self._dilation, self.groups,
            *integers_of(other), self.scale, self.zero_point, self._rounding,
        )  # fmt: skip
        return quantized(y, self.scale, self.zero_point)

    return _add_graph


class ConvAdd2d(nnq.Conv2d):
    """``conv(input) + extra_input``, rounded once."""

    _FLOAT: ClassVar[Any] = (fused.ConvAdd2d,)
    _NAME = "QuantizedConvAdd2d"
    _add_graph = conv_add_graph(torch.ops.zeropoint.conv2d_add)

    def forward(self, input: Tensor, extra_input: Tensor) -> Tensor:  # type: ignore[override]
        if torch.jit.is_scripting():
            return self._add_graph(input, extra_input)
        else:
            return self._add_graph(input, extra_input) if is_recorded() else self._eager(input, extra_input)


class ConvAddReLU2d(ConvAdd2d):
    """``relu(conv(input) + extra_input)``, rounded once."""

    _FLOAT = (fused.ConvAddReLU2d,)
    _NAME = "QuantizedConvAddReLU2d"
    _RELU = True
    _add_graph = conv_add_graph(torch.ops.zeropoint.conv2d_add_relu)
