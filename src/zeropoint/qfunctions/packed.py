"""Packed weights, and the linear layers, convolutions and matrix products that run on them.

A packed weight is a Python object around the plain quantized weight and bias: `unpack` gives them back, copying and
saving keep nothing else, and what is packed for this CPU is made again wherever the object is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.ops import checks, layers, rounding
from zeropoint.ops.geometry import Geometry
from zeropoint.ops.weight_only import make_fp16_layer, run_weight_only
from zeropoint.qfunctions.operands import activation, require_quantized, result
from zeropoint.tensor.qtensor import QTensor
from zeropoint.tensor.quantizer import PerChannelQuantizer, PerTensorQuantizer
from zeropoint.tensor.recording import is_recorded, is_watched, needs_dispatch

__all__ = [
    "ConvPackedParams",
    "LinearPackedParams",
    "LinearPackedParamsFp16",
    "bmm",
    "conv_prepack",
    "conv_transpose_prepack",
    "linear",
    "linear_dynamic",
    "linear_dynamic_fp16",
    "linear_leaky_relu",
    "linear_prepack",
    "linear_prepack_fp16",
    "linear_relu",
    "linear_relu_dynamic",
    "linear_relu_dynamic_fp16",
    "linear_tanh",
    "linear_unpack",
    "matmul",
]


def _weight_parameters(op: str, weight: QTensor, axis: int, repeat: int = 1) -> tuple[Tensor, Tensor]:
    """Scales and zero points of a weight whose channels lie along `axis`, each for `repeat` groups."""
    quantizer = weight._qparams.quantizer
    if isinstance(quantizer, PerTensorQuantizer):
        return torch.tensor([quantizer.scale]), torch.tensor([quantizer.zero_point])
    assert isinstance(quantizer, PerChannelQuantizer)
    if quantizer.zero_points.is_floating_point():
        raise ValueError(f"{op}: weight has float zero points, which are for embeddings only; use integer ones")
    if quantizer.axis != axis:
        raise ValueError(f"{op}: weight must be quantized along axis {axis}, got axis {quantizer.axis}")
    return quantizer.scales.to(torch.float32).repeat(repeat), quantizer.zero_points.repeat(repeat)


def _float_bias(op: str, bias: Tensor | None) -> Tensor | None:
    if bias is not None and (isinstance(bias, QTensor) or not bias.is_floating_point()):
        raise TypeError(f"{op}: bias must be float32; it is added with full precision")
    return None if bias is None else bias.detach().clone()


class LinearPackedParams:
    """Copies of the quantized weight and the bias of a linear layer, packed for this CPU.

    Args:
        weight: ``(outputs, inputs)``, qint8 or quint8, per tensor or along axis 0.
        bias: ``(outputs,)``, float32, or None.

    Example:
        >>> import zeropoint
        >>> weight = zeropoint.quantize_per_tensor(torch.ones(2, 3), 0.5, 0, zeropoint.qint8)
        >>> packed = LinearPackedParams(weight, torch.zeros(2))
        >>> packed.unpack()[0].int_repr()
        tensor([[2, 2, 2],
                [2, 2, 2]], dtype=torch.int8)
    """

    def __init__(self, weight: QTensor, bias: Tensor | None = None) -> None:
        require_quantized("linear_prepack", "weight", weight)
        self._weight, self._bias = weight.detach().clone(), _float_bias("linear_prepack", bias)
        self._scale, self._zero_point = _weight_parameters("linear_prepack", weight, 0)
        self._rounding = rounding.chosen(self._zero_point)
        self._layer: tuple[str, _native.LinearLayer] | None = None
        self.layer()

    def layer(self) -> _native.LinearLayer:
        """The native layer for the instruction set in use."""
        isa = _native.isa()
        if self._layer is None or self._layer[0] != isa:
            weight = self._weight._data, self._scale, self._zero_point, self._bias
            made = layers.make_linear_layer("linear", *weight, self._rounding)
            self._layer = isa, made
        return self._layer[1]

    def operands(self) -> tuple[Any, ...]:
        """What operators take for it: integers, scales, zero points, bias."""
        return self._weight._data, self._scale, self._zero_point, self._bias

    def unpack(self) -> tuple[QTensor, Tensor | None]:
        """The weight and the bias."""
        return self._weight, self._bias

    def bias(self) -> Tensor | None:
        """The bias."""
        return self._bias

    def __getstate__(self) -> tuple[tuple[QTensor, Tensor | None], str]:
        """What objects of torch.ao answer: the weight with the bias, and a name. Files have what `__reduce__` says."""
        return self.unpack(), "LinearPackedParams"

    def __reduce__(self) -> Any:
        return LinearPackedParams, (self._weight, self._bias)

    def __repr__(self) -> str:
        return f"LinearPackedParams(weight={tuple(self._weight.shape)}, {self._weight.qscheme()})"


class LinearPackedParamsFp16:
    """The float16 weight and the bias of a linear layer; values beyond float16 stand at its largest.

    Example:
        >>> LinearPackedParamsFp16(torch.tensor([[1e9]])).unpack()[0]
        tensor([[65504.]])
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        if isinstance(weight, QTensor) or not weight.is_floating_point() or weight.dim() != 2:
            raise TypeError("linear_prepack_fp16: weight must be a float tensor (outputs, inputs)")
        self._weight, self._bias = layers.to_fp16_weight(weight), _float_bias("linear_prepack_fp16", bias)
        self._layer: tuple[str, _native.WeightOnlyLayer] | None = None
        self.layer()

    def layer(self) -> _native.WeightOnlyLayer:
        """The native layer for the instruction set in use."""
        isa = _native.isa()
        if self._layer is None or self._layer[0] != isa:
            self._layer = isa, make_fp16_layer("linear_prepack_fp16", self._weight, self._bias)
        return self._layer[1]

    def unpack(self) -> tuple[Tensor, Tensor | None]:
        """The weight, as float32, and the bias."""
        return self._weight.to(torch.float32), self._bias

    def bias(self) -> Tensor | None:
        """The bias."""
        return self._bias

    def __getstate__(self) -> tuple[tuple[Tensor, Tensor | None], str]:
        """As that of `LinearPackedParams`."""
        return self.unpack(), "LinearPackedParamsFp16"

    def __reduce__(self) -> Any:
        return LinearPackedParamsFp16, (self._weight, self._bias)


class ConvPackedParams:
    """Copies of the quantized weight and the bias of a convolution with its geometry, packed for this CPU.

    Args:
        weight: ``(out, in / groups, ...)``, or, transposed, ``(in, out / groups, ...)``; per tensor, or along the axis
            of the output channels.
        bias: ``(out,)``, float32, or None.
        output_padding: given for transposed convolutions.

    Example:
        >>> import zeropoint
        >>> weight = zeropoint.quantize_per_tensor(torch.ones(4, 2, 3, 3), 0.5, 0, zeropoint.qint8)
        >>> ConvPackedParams(weight, None, padding=[1, 1]).padding()
        [1, 1]
    """

    def __init__(
        self,
        weight: QTensor,
        bias: Tensor | None = None,
        stride: Sequence[int] = (1,),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        groups: int = 1,
        output_padding: Sequence[int] | None = None,
    ) -> None:
        transposed = output_padding is not None
        dims = weight.dim() - 2
        op = f"conv{'_transpose' if transposed else ''}{dims}d_prepack"
        require_quantized(op, "weight", weight)
        if dims not in (1, 2, 3):
            raise ValueError(f"{op}: weight must have 3 to 5 dimensions, got shape {tuple(weight.shape)}")
        self._weight, self._bias = weight.detach().clone(), _float_bias(op, bias)
        self._arguments = (self._weight, self._bias, stride, padding, dilation, groups, output_padding)
        self._geometry = Geometry(op, dims, stride, padding, dilation, groups, output_padding)
        self._geometry.check_weight(weight)
        repeat = groups if transposed else 1
        self._scale, self._zero_point = _weight_parameters(op, weight, 1 if transposed else 0, repeat)
        self._rounding = rounding.chosen(self._zero_point, groups, output_padding or ())
        self._layer: tuple[str, _native.ConvLayer] | None = None
        if self._geometry.has_small_output_padding():  # else it can be unpacked, and refuses to run
            self.layer()

    def layer(self) -> _native.ConvLayer:
        """The native layer for the instruction set in use."""
        isa = _native.isa()
        if self._layer is None or self._layer[0] != isa:
            weight = self._weight._data, self._scale, self._zero_point, self._bias
            made = layers.make_conv_layer(self._geometry, *weight, self._rounding)
            self._layer = isa, made
        return self._layer[1]

    def operands(self) -> tuple[Any, ...]:
        """What operators take for it: integers, scales, zero points, bias, and the numbers of the geometry."""
        weight = self._weight._data, self._scale, self._zero_point, self._bias
        pads = (self.padding(), self.output_padding()) if self.transpose() else (self.padding(),)
        return *weight, self.stride(), *pads, self.dilation(), self.groups()

    def unpack(self) -> tuple[QTensor, Tensor | None]:
        """The weight and the bias."""
        return self._weight, self._bias

    def stride(self) -> list[int]:
        """The stride, one for each dimension."""
        return list(self._geometry.stride[3 - self._geometry.dims :])

    def padding(self) -> list[int]:
        """The padding, one for each dimension."""
        return list(self._geometry.padding[3 - self._geometry.dims :])

    def dilation(self) -> list[int]:
        """The dilation, one for each dimension."""
        return list(self._geometry.dilation[3 - self._geometry.dims :])

    def output_padding(self) -> list[int]:
        """The output padding, one for each dimension."""
        return list(self._geometry.output_padding[3 - self._geometry.dims :])

    def groups(self) -> int:
        """The number of groups."""
        return self._geometry.groups

    def transpose(self) -> bool:
        """Whether it is a transposed convolution."""
        return self._geometry.transposed

    def __reduce__(self) -> Any:
        return ConvPackedParams, self._arguments

    def __repr__(self) -> str:
        return f"ConvPackedParams(weight={tuple(self._weight.shape)}, {self._weight.qscheme()})"


# ---------------------------------------------------------------------------------------------------------- prepack


def linear_prepack(W: QTensor, B: Tensor | None = None) -> LinearPackedParams:
    """Pack the weight of a linear layer.

    Example:
        >>> import zeropoint
        >>> linear_prepack(zeropoint.quantize_per_tensor(torch.ones(2, 3), 0.5, 0, zeropoint.qint8))
        LinearPackedParams(weight=(2, 3), zeropoint.per_tensor_affine)
    """
    return LinearPackedParams(W, B)


def linear_unpack(W_prepack: LinearPackedParams) -> tuple[QTensor, Tensor | None]:
    """The weight and the bias of a packed linear layer."""
    return W_prepack.unpack()


def linear_prepack_fp16(W: Tensor, B: Tensor | None = None) -> LinearPackedParamsFp16:
    """Keep the weight of a linear layer in float16."""
    return LinearPackedParamsFp16(W, B)


def conv_prepack(
    weight: QTensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> ConvPackedParams:
    """Pack the weight of a convolution of as many dimensions as it has."""
    return ConvPackedParams(weight, bias, stride, padding, dilation, groups)


def conv_transpose_prepack(
    weight: QTensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> ConvPackedParams:
    """Pack the weight of a transposed convolution of as many dimensions as it has."""
    return ConvPackedParams(weight, bias, stride, padding, dilation, groups, output_padding)


def _is_recorded() -> bool:
    """Whether operators have to be called: a native layer leaves nothing for those who write down what is called."""
    return is_watched() and is_recorded()


def _recorded(op: str, X: QTensor, operands: tuple[Any, ...], scale: float, zero_point: int, *more: Any) -> QTensor:
    x, scale, zero_point = activation(op, X), float(scale), int(zero_point)
    y = getattr(torch.ops.zeropoint, op)(*x, *operands, scale, zero_point, *more)
    return result(y, scale, zero_point, X._qdtype)


# ------------------------------------------------------------------------------------------------------------ linear


def linear(X: QTensor, W_prepack: LinearPackedParams, Y_scale: float, Y_zero_point: int) -> QTensor:
    """A linear layer: ``(..., inputs)`` to ``(..., outputs)``, quantized as asked, of the dtype of `X`.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[1.0, 2.0]]), 0.1, 0, zeropoint.quint8)
        >>> w = linear_prepack(zeropoint.quantize_per_tensor(torch.ones(1, 2), 0.5, 0, zeropoint.qint8))
        >>> linear(x, w, 0.1, 0).dequantize()
        tensor([[3.]])
    """
    if _is_recorded():
        return _recorded("linear", X, W_prepack.operands(), Y_scale, Y_zero_point, W_prepack._rounding)
    return run_linear("linear", X, W_prepack.layer(), Y_scale, Y_zero_point)


def linear_relu(X: QTensor, W_prepack: LinearPackedParams, Y_scale: float, Y_zero_point: int) -> QTensor:
    """As `linear`, with a ReLU."""
    if _is_recorded():
        return _recorded("linear_relu", X, W_prepack.operands(), Y_scale, Y_zero_point, W_prepack._rounding)
    return run_linear("linear_relu", X, W_prepack.layer(), Y_scale, Y_zero_point, relu=True)


def linear_leaky_relu(
    X: QTensor, W_prepack: LinearPackedParams, Y_scale: float, Y_zero_point: int, negative_slope: float
) -> QTensor:
    """As `linear`, with negative results multiplied by `negative_slope`."""
    if _is_recorded():
        more = (negative_slope, W_prepack._rounding)
        return _recorded("linear_leaky_relu", X, W_prepack.operands(), Y_scale, Y_zero_point, *more)
    return run_linear("linear_leaky_relu", X, W_prepack.layer(), Y_scale, Y_zero_point, slope=negative_slope)


def linear_tanh(X: QTensor, W_prepack: LinearPackedParams, Y_scale: float, Y_zero_point: int) -> QTensor:
    """As `linear`, with a tanh of the result before it is rounded."""
    if _is_recorded():
        return _recorded("linear_tanh", X, W_prepack.operands(), Y_scale, Y_zero_point)
    return run_linear_tanh(X, W_prepack.layer(), float(Y_scale), int(Y_zero_point))


def run_linear_tanh(X: QTensor, layer: _native.LinearLayer, scale: float, zero_point: int) -> QTensor:
    """`linear_tanh` with a layer that is already packed for this CPU."""
    x, x_scale, x_zero_point = activation("linear_tanh", X)
    y = layers.run_linear_tanh(x, x_scale, x_zero_point, layer, scale, zero_point)
    return result(y, scale, zero_point, X._qdtype)


def run_linear(
    op: str,
    X: QTensor,
    layer: _native.LinearLayer,
    scale: float,
    zero_point: int,
    relu: bool = False,
    slope: float = 1.0,
) -> QTensor:
    """A linear layer that is already packed for this CPU, on a QTensor."""
    x, x_scale, x_zero_point = activation(op, X)
    scale, zero_point = float(scale), int(zero_point)
    y = layers.run_linear(op, x, x_scale, x_zero_point, layer, scale, zero_point, relu=relu, slope=slope)
    return result(y, scale, zero_point, X._qdtype)


def linear_dynamic(
    X: Tensor, W_prepack: LinearPackedParams, reduce_range: bool = False, per_token: bool = False
) -> Tensor:
    """A linear layer on floats: quantized by their own range on the way in, float32 out.

    Args:
        reduce_range: quantize to 7 bits; our kernels do not need it.
        per_token: a range for each row, symmetric, instead of one for all.

    Example:
        >>> import zeropoint
        >>> w = linear_prepack(zeropoint.quantize_per_tensor(torch.ones(1, 2), 0.5, 0, zeropoint.qint8))
        >>> linear_dynamic(torch.tensor([[1.0, 2.0]]), w)
        tensor([[2.9961]])
    """
    reduce_range = rounding.takes_7_bits(reduce_range, W_prepack._rounding)
    if _is_recorded():
        return torch.ops.zeropoint.linear_dynamic(
            X, *W_prepack.operands(), reduce_range, per_token, W_prepack._rounding
        )
    return layers.run_linear_dynamic("linear_dynamic", X, W_prepack.layer(), reduce_range, per_token, False)


def linear_relu_dynamic(
    X: Tensor, W_prepack: LinearPackedParams, reduce_range: bool = False, per_token: bool = False
) -> Tensor:
    """As `linear_dynamic`, with a ReLU."""
    reduce_range = rounding.takes_7_bits(reduce_range, W_prepack._rounding)
    if _is_recorded():
        return torch.ops.zeropoint.linear_relu_dynamic(
            X, *W_prepack.operands(), reduce_range, per_token, W_prepack._rounding
        )
    return layers.run_linear_dynamic("linear_relu_dynamic", X, W_prepack.layer(), reduce_range, per_token, True)


def linear_dynamic_fp16(X: Tensor, W_prepack: LinearPackedParamsFp16) -> Tensor:
    """A linear layer in float32 whose weights are kept in float16."""
    return _linear_fp16("linear_dynamic_fp16", X, W_prepack, relu=False)


def linear_relu_dynamic_fp16(X: Tensor, W_prepack: LinearPackedParamsFp16) -> Tensor:
    """As `linear_dynamic_fp16`, with a ReLU."""
    return _linear_fp16("linear_relu_dynamic_fp16", X, W_prepack, relu=True)


def _linear_fp16(op: str, X: Tensor, packed: LinearPackedParamsFp16, relu: bool) -> Tensor:
    checks.require_dtype(op, "input", X.dtype, (torch.float32,))
    if _is_recorded():
        made: Tensor = getattr(torch.ops.zeropoint, op)(X, packed._weight, packed._bias)
        return made
    return run_weight_only(op, X, packed.layer(), relu)


# ------------------------------------------------------------------------------------------------------ convolutions


def conv(qx: QTensor, packed_weight: ConvPackedParams, output_scale: float, output_zero_point: int) -> QTensor:
    """A convolution, plain or transposed, of as many dimensions as the weight has; channels innermost in memory.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.ones(1, 1, 3, 3), 0.1, 0, zeropoint.quint8)
        >>> weight = zeropoint.quantize_per_tensor(torch.ones(1, 1, 3, 3), 0.5, 0, zeropoint.qint8)
        >>> conv(x, ConvPackedParams(weight), 0.5, 0).dequantize()
        tensor([[[[9.]]]])
    """
    return _conv(qx, packed_weight, output_scale, output_zero_point, relu=False)


def conv_relu(qx: QTensor, packed_weight: ConvPackedParams, output_scale: float, output_zero_point: int) -> QTensor:
    """As `conv`, with a ReLU."""
    return _conv(qx, packed_weight, output_scale, output_zero_point, relu=True)


def conv_add(
    qx: QTensor, qaccum: QTensor, packed_weight: ConvPackedParams, output_scale: float, output_zero_point: int
) -> QTensor:
    """``conv(qx) + qaccum``, rounded once."""
    return _conv(qx, packed_weight, output_scale, output_zero_point, relu=False, other=qaccum)


def conv_add_relu(
    qx: QTensor, qaccum: QTensor, packed_weight: ConvPackedParams, output_scale: float, output_zero_point: int
) -> QTensor:
    """``relu(conv(qx) + qaccum)``, rounded once."""
    return _conv(qx, packed_weight, output_scale, output_zero_point, relu=True, other=qaccum)


def _conv(
    X: QTensor, packed: ConvPackedParams, scale: float, zero_point: int, relu: bool, other: QTensor | None = None
) -> QTensor:
    if _is_recorded():
        op = packed._geometry.op.removesuffix("_prepack") + ("_add" if other is not None else "")
        op += "_relu" if relu else ""
        added = () if other is None else activation(op, other, "what is added")
        return _recorded(op, X, (*packed.operands(), *added), scale, zero_point, packed._rounding)
    return run_conv(X, packed._geometry, packed._weight._data, packed.layer(), scale, zero_point, relu, other)


def run_conv(
    X: QTensor,
    geometry: Geometry,
    weight: Tensor,
    layer: _native.ConvLayer,
    scale: float,
    zero_point: int,
    relu: bool = False,
    other: QTensor | None = None,
) -> QTensor:
    """A convolution that is already packed for this CPU, on a QTensor; of `weight` only the shape is used."""
    op = geometry.op.removesuffix("_prepack")
    x, x_scale, x_zero_point = activation(op, X)
    scale, zero_point = float(scale), int(zero_point)
    y = layers.run_conv(
        geometry,
        x,
        x_scale,
        x_zero_point,
        weight,
        layer,
        scale,
        zero_point,
        relu=relu,
        residual=None if other is None else activation(op, other, "what is added"),
    )
    return result(y, scale, zero_point, X._qdtype)


def conv_dynamic(X: Tensor, packed_weight: ConvPackedParams, reduce_range: bool = False) -> Tensor:
    """A convolution on floats: quantized by their own range on the way in, float32 out."""
    reduce_range = rounding.takes_7_bits(reduce_range, packed_weight._rounding)
    if _is_recorded():
        op = packed_weight._geometry.op.removesuffix("_prepack") + "_dynamic"
        made: Tensor = getattr(torch.ops.zeropoint, op)(X, *packed_weight.operands(), reduce_range)
        return made
    return layers.run_conv_dynamic(
        packed_weight._geometry, X, packed_weight._weight._data, packed_weight.layer(), reduce_range
    )


# --------------------------------------------------------------------------------------------------- matrix products


def matmul(qa: QTensor, qb: QTensor, scale: float, zero_point: int) -> QTensor:
    """``qa @ qb``, requantized; batches broadcast.

    Example:
        >>> import zeropoint
        >>> a = zeropoint.quantize_per_tensor(torch.tensor([[1.0, 2.0]]), 0.1, 0, zeropoint.quint8)
        >>> matmul(a, a.t(), 0.1, 0).dequantize()
        tensor([[5.]])
    """
    a, a_scale, a_zero_point = activation("matmul", qa, "the first")
    b, b_scale, b_zero_point = activation("matmul", qb, "the second")
    scale, zero_point = float(scale), int(zero_point)
    run = torch.ops.zeropoint.matmul if needs_dispatch(a) else layers.run_matmul
    return result(
        run(a, a_scale, a_zero_point, b, b_scale, b_zero_point, scale, zero_point), scale, zero_point, qa._qdtype
    )


def bmm(qa: QTensor, qb: QTensor, scale: float, zero_point: int) -> QTensor:
    """`matmul` of two batches of matrices."""
    if qa.dim() != 3 or qb.dim() != 3 or qa.shape[0] != qb.shape[0]:
        raise ValueError(f"bmm: needs (B, M, K) and (B, K, N), got {tuple(qa.shape)} and {tuple(qb.shape)}")
    return matmul(qa, qb, scale, zero_point)


torch.serialization.add_safe_globals([LinearPackedParams, LinearPackedParamsFp16, ConvPackedParams])
