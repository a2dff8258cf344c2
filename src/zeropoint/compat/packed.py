"""Operators of torch.ops.quantized that read packed weights, or take them in unusual ways."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.compat.functions import reading
from zeropoint.numerics.dtypes import qint8, quint8
from zeropoint.observers.minmax import MinMaxObserver
from zeropoint.qfunctions import packed
from zeropoint.qfunctions.packed import (
    ConvPackedParams,
    LinearPackedParams,
    LinearPackedParamsFp16,
    linear_dynamic_fp16,
)
from zeropoint.qfunctions.recurrent import CellParams, make_quantized_cell_params_dynamic
from zeropoint.tensor.create import quantize_per_tensor
from zeropoint.tensor.qtensor import QTensor

unpack = reading("unpack")
stride, padding, output_padding = reading("stride"), reading("padding"), reading("output_padding")
dilation, groups = reading("dilation"), reading("groups")


def transpose(packed_weights: Any) -> int:
    """1 for transposed convolutions, 0 for others."""
    return int(packed_weights.transpose())


def unpack_sizes(packed_weights: ConvPackedParams) -> tuple[Any, ...]:
    """The sizes of weight and bias, and the numbers of a convolution."""
    weight, bias = packed_weights.unpack()
    sizes = list(weight.shape), None if bias is None else list(bias.shape)
    numbers = packed_weights.stride(), packed_weights.padding(), packed_weights.dilation(), packed_weights.groups()
    return *sizes, *numbers


def _with_one_dimension(packed_weight: ConvPackedParams) -> ConvPackedParams:
    """A 1d convolution from a file, where it is a 2d one with a first dimension of size 1."""
    if packed_weight._weight.dim() != 4:
        return packed_weight
    made = vars(packed_weight).get("_with_one_dimension")
    if made is None:
        weight, bias = packed_weight.unpack()
        stride_, padding_, dilation_ = (getattr(packed_weight, n)()[1:] for n in ("stride", "padding", "dilation"))
        more = packed_weight.output_padding()[1:] if packed_weight.transpose() else None
        made = ConvPackedParams(weight.squeeze(2), bias, stride_, padding_, dilation_, packed_weight.groups(), more)
        vars(packed_weight)["_with_one_dimension"] = made
    return made


def conv1d(qx: Tensor, packed_weight: ConvPackedParams, output_scale: float, output_zero_point: int) -> Tensor:
    """`zeropoint.qfunctions.conv1d`, for weights from files too."""
    return packed.conv(qx, _with_one_dimension(packed_weight), output_scale, output_zero_point)


def conv1d_relu(qx: Tensor, packed_weight: ConvPackedParams, output_scale: float, output_zero_point: int) -> Tensor:
    """As `conv1d`, with a ReLU."""
    return packed.conv_relu(qx, _with_one_dimension(packed_weight), output_scale, output_zero_point)


def conv1d_dynamic(X: Tensor, packed_weight: ConvPackedParams, reduce_range: bool = False) -> Tensor:
    """A convolution on floats, for weights from files too."""
    return packed.conv_dynamic(X, _with_one_dimension(packed_weight), reduce_range)


def conv1d_unpack(packed_weights: ConvPackedParams) -> tuple[Tensor, Tensor | None]:
    """The weight, of three dimensions, and the bias."""
    return _with_one_dimension(packed_weights).unpack()


def linear_dynamic_fp16_unpacked_weight(X: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`zeropoint.qfunctions.linear_dynamic_fp16` with a weight that is packed on the way."""
    return linear_dynamic_fp16(X, LinearPackedParamsFp16(weight, bias))


def linear_with_input_q_dq_qweight_dq_output_fp32(
    X: Tensor, X_scale: float, X_zero_point: int, W_prepack: LinearPackedParams
) -> Tensor:
    """A linear layer on floats that are quantized to quint8 as given; its result is float32.

    Example:
        >>> import zeropoint
        >>> w = zeropoint.quantize_per_tensor(torch.ones(1, 2), 0.5, 0, zeropoint.qint8)
        >>> packed = zeropoint.qfunctions.linear_prepack(w)
        >>> linear_with_input_q_dq_qweight_dq_output_fp32(torch.tensor([[1.0, 2.0]]), 0.5, 0, packed)
        tensor([[3.]])
    """
    q: Any = quantize_per_tensor(X, X_scale, X_zero_point, quint8)
    return torch.ops.zeropoint.linear_to_float(
        q._data, float(X_scale), int(X_zero_point), W_prepack._weight._data, W_prepack._scale, W_prepack._zero_point,
        W_prepack._bias,
    )  # fmt: skip


def linear_with_input_q_dq_qweight_dq_relu_output_fp32(
    X: Tensor, X_scale: float, X_zero_point: int, W_prepack: LinearPackedParams
) -> Tensor:
    """As `linear_with_input_q_dq_qweight_dq_output_fp32`, with a ReLU."""
    return linear_with_input_q_dq_qweight_dq_output_fp32(X, X_scale, X_zero_point, W_prepack).relu_()


def make_quantized_cell_params(w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> CellParams:
    """The parameters of a recurrent cell with 8-bit weights, from floats: one scale for each matrix."""

    def packed_weight(weight: Tensor, bias: Tensor) -> LinearPackedParams:
        observer = MinMaxObserver(dtype=qint8)
        observer(weight)
        scale, zero_point = observer.calculate_qparams()
        quantized = quantize_per_tensor(weight, scale, zero_point, qint8)
        assert isinstance(quantized, QTensor)  # of one weight
        return packed.linear_prepack(quantized, bias)

    return make_quantized_cell_params_dynamic(packed_weight(w_ih, b_ih), packed_weight(w_hh, b_hh), b_ih, b_hh)
