"""Functions on quantized tensors, with the names and arguments of torch.ao.nn.quantized.functional.

Each packs its weight; what is packed is kept for as long as the weight lives. Modules, and loops that count
microseconds, hold a packed weight instead (`zeropoint.qfunctions.packed`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zeropoint import qfunctions
from zeropoint.numerics.dtypes import quantized_dtype, quint8
from zeropoint.ops import layers, rounding
from zeropoint.ops.library import INTEGERS, named
from zeropoint.qfunctions import elementwise, packed
from zeropoint.qfunctions.operands import require_quantized
from zeropoint.tensor.qtensor import QTensor
from zeropoint.tensor.recording import is_recorded

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool2d",
    "avg_pool3d",
    "bmm",
    "celu",
    "clamp",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "elu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "interpolate",
    "leaky_relu",
    "linear",
    "matmul",
    "max_pool1d",
    "max_pool2d",
    "threshold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

Sizes = int | Sequence[int]


def _kept(weight: QTensor, bias: Tensor | None, shape: tuple[Any, ...], make: Any) -> Any:
    """The native layer of `weight` for these other arguments, made once unless something changed.

    What `make` gives must not hold the weight, which then would live forever.
    """
    # A write to a quantized tensor counts there, one to its integers is seen by `layers.kept`.
    writes = 0 if weight.is_inference() else weight._version
    choice = rounding.chosen(torch.zeros(1), shape[3] if shape else 0)  # that of symmetric weights tells enough
    others = (bias, weight._qparams.quantizer, writes, shape, choice)
    return layers.kept(weight._data, others, make)


def linear(
    input: QTensor,
    weight: QTensor,
    bias: Tensor | None = None,
    scale: float | None = None,
    zero_point: int | None = None,
) -> QTensor:
    """``input @ weight.T + bias``, quantized with `scale` and `zero_point`; by default the input's.

    Args:
        input: ``(..., inputs)``, quint8 or qint8, per tensor.
        weight: ``(outputs, inputs)``, qint8 or quint8, per tensor or along axis 0.
        bias: ``(outputs,)``, float32.

    Returns:
        ``(..., outputs)`` of the dtype of `input`.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[1.0, 2.0]]), 0.1, 0, zeropoint.quint8)
        >>> w = zeropoint.quantize_per_tensor(torch.ones(1, 2), 0.5, 0, zeropoint.qint8)
        >>> linear(x, w, torch.tensor([1.0])).dequantize()
        tensor([[4.]])
    """
    require_quantized("linear", "weight", weight)
    require_quantized("linear", "input", input)
    scale = input.q_scale() if scale is None else scale
    zero_point = input.q_zero_point() if zero_point is None else zero_point
    layer = _kept(weight, bias, (), lambda: packed.LinearPackedParams(weight, bias).layer())
    return packed.run_linear("linear", input, layer, scale, zero_point)


def _sizes(values: Sizes, dims: int) -> tuple[int, ...]:
    """A value for each dimension; one counts for all."""
    given = (values,) if isinstance(values, int) else tuple(values)
    return given * dims if len(given) == 1 else given


def reflected(op: str, input: QTensor, padding: Sequence[int], dims: int) -> QTensor:
    """`input` padded with its own mirror image."""
    sizes = input.shape[2:]
    if len(sizes) != dims or len(padding) != dims or not all(0 <= p < n for p, n in zip(padding, sizes)):
        raise ValueError(
            f"{op}: reflected padding must have {dims} values (or one), from 0 to less than the input's size: got"
            f" {list(padding)} for an input of shape {tuple(input.shape)}"
        )
    both = [p for size in reversed(padding) for p in (size, size)]
    # Padding copies integers, so it may be done on them in any type that has the operation.
    data = torch.nn.functional.pad(input._data.to(torch.float32), both, mode="reflect").to(input._data.dtype)
    return QTensor(data, input._qparams.quantizer, input._qdtype)


def _conv(
    op: str,
    dims: int,
    input: QTensor,
    weight: QTensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    padding_mode: str,
    scale: float,
    zero_point: int,
    dtype: Any,
    output_padding: Sizes | None = None,
) -> QTensor:
    require_quantized(op, "weight", weight)
    require_quantized(op, "input", input)
    if weight.dim() != dims + 2:
        raise ValueError(f"{op}: weight must have {dims + 2} dimensions, got shape {tuple(weight.shape)}")
    if dtype is not None and quantized_dtype(dtype) is not input._qdtype:
        raise NotImplementedError(f"{op}: the output has the input's dtype, {input._qdtype.name}; got dtype={dtype}")
    pads = _sizes(padding, dims)
    if padding_mode == "reflect":
        input, pads = reflected(op, input, pads, dims), (0,) * dims
    elif padding_mode != "zeros":
        raise NotImplementedError(f"{op}: padding_mode must be 'zeros' or 'reflect', got {padding_mode!r}")
    more = None if output_padding is None else _sizes(output_padding, dims)
    shape = (_sizes(stride, dims), pads, _sizes(dilation, dims), groups, more)

    def make() -> Any:
        made = packed.ConvPackedParams(weight, bias, *shape)
        return made._geometry, made.layer()

    geometry, layer = _kept(weight, bias, shape, make)
    return packed.run_conv(input, geometry, weight._data, layer, scale, zero_point)


def _convolution(dims: int) -> Callable[..., QTensor]:
    def conv(
        input: QTensor,
        weight: QTensor,
        bias: Tensor | None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        scale: float = 1.0,
        zero_point: int = 0,
        dtype: Any = quint8,
    ) -> QTensor:
        more = (stride, padding, dilation, groups, padding_mode, scale, zero_point, dtype)
        return _conv(f"conv{dims}d", dims, input, weight, bias, *more)

    return conv


conv1d = named("conv1d", _convolution(1), "A one-dimensional convolution, ``(N, C, L)``; see `conv2d`.")
conv2d = named(
    "conv2d",
    _convolution(2),
    """A two-dimensional convolution, quantized with `scale` and `zero_point`.

    Args:
        input: ``(N, C, H, W)`` in any memory format, quint8 or qint8, per tensor.
        weight: ``(out, C / groups, kH, kW)``, per tensor or along axis 0.
        bias: ``(out,)``, float32, or None.
        padding_mode: "zeros" (the zero point) or "reflect".

    Returns:
        ``(N, out, H', W')``, channels last in memory.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.ones(1, 1, 3, 3), 0.1, 0, zeropoint.quint8)
        >>> w = zeropoint.quantize_per_tensor(torch.ones(1, 1, 3, 3), 0.5, 0, zeropoint.qint8)
        >>> conv2d(x, w, None, scale=0.5).dequantize()
        tensor([[[[9.]]]])
    """,
)
conv3d = named("conv3d", _convolution(3), "A three-dimensional convolution, ``(N, C, D, H, W)``; see `conv2d`.")


def _conv_transpose(dims: int) -> Callable[..., QTensor]:
    def conv_transpose(
        input: QTensor,
        weight: QTensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
        scale: float = 1.0,
        zero_point: int = 0,
    ) -> QTensor:
        more = (stride, padding, dilation, groups, "zeros", scale, zero_point, None, output_padding)
        return _conv(f"conv_transpose{dims}d", dims, input, weight, bias, *more)

    what = (
        f"A transposed convolution of {dims} dimension{'s' if dims > 1 else ''}, grouped and per channel, too."
        "\n\n    Args:\n        weight: ``(in, out / groups, ...)``, per tensor or along axis 1."
    )
    return named(f"conv_transpose{dims}d", conv_transpose, what)


conv_transpose1d = _conv_transpose(1)
conv_transpose2d = _conv_transpose(2)
conv_transpose3d = _conv_transpose(3)

matmul = packed.matmul
bmm = packed.bmm


# ------------------------------------------------------------------------------------------------ pools, interpolation


def avg_pool2d(
    input: QTensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> QTensor:
    """The mean of each window, with the scale and zero point of `input`.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[[[1.0, 3.0]]]]), 0.5, 0, zeropoint.quint8)
        >>> avg_pool2d(x, (1, 2)).dequantize()
        tensor([[[[2.]]]])
    """
    require_quantized("avg_pool2d", "input", input, INTEGERS)
    return F.avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: QTensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> QTensor:
    """`avg_pool2d` of three dimensions."""
    require_quantized("avg_pool3d", "input", input, INTEGERS)
    return F.avg_pool3d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def adaptive_avg_pool2d(input: QTensor, output_size: Any) -> QTensor:
    """Means of as many windows as `output_size` says, with the scale and zero point of `input`.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[[[1.0, 3.0]]]]), 0.5, 0, zeropoint.quint8)
        >>> adaptive_avg_pool2d(x, 1).dequantize()
        tensor([[[[2.]]]])
    """
    require_quantized("adaptive_avg_pool2d", "input", input, INTEGERS)
    return F.adaptive_avg_pool2d(input, output_size)


def adaptive_avg_pool3d(input: QTensor, output_size: Any) -> QTensor:
    """`adaptive_avg_pool2d` of three dimensions."""
    require_quantized("adaptive_avg_pool3d", "input", input, INTEGERS)
    return F.adaptive_avg_pool3d(input, output_size)


def _max_pool(op: str, input: QTensor, arguments: tuple[Any, ...], return_indices: bool) -> QTensor:
    require_quantized(op, "input", input, INTEGERS)
    if return_indices:
        raise NotImplementedError(
            f"{op}: return_indices is not supported for quantized tensors: call .dequantize() first"
        )
    return getattr(torch, op)(input, *arguments)


def max_pool1d(
    input: QTensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> QTensor:
    """`max_pool2d` of one dimension."""
    stride = kernel_size if stride is None else stride
    return _max_pool("max_pool1d", input, (kernel_size, stride, padding, dilation, ceil_mode), return_indices)


def max_pool2d(
    input: QTensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> QTensor:
    """The maximum of each window, with the scale and zero point of `input`.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[[[1.0, 3.0]]]]), 0.5, 0, zeropoint.quint8)
        >>> max_pool2d(x, (1, 2)).dequantize()
        tensor([[[[3.]]]])
    """
    stride = kernel_size if stride is None else stride
    return _max_pool("max_pool2d", input, (kernel_size, stride, padding, dilation, ceil_mode), return_indices)


def interpolate(
    input: QTensor,
    size: Sizes | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> QTensor:
    """`input` resampled to `size`, or by `scale_factor`, with its scale and zero point.

    Args:
        mode: "nearest" of 3 to 5 dimensions, or "bilinear" of 4.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[[[1.0, 3.0]]]]), 0.5, 0, zeropoint.quint8)
        >>> interpolate(x, size=(1, 4)).dequantize()
        tensor([[[[1., 1., 3., 3.]]]])
    """
    require_quantized("interpolate", "input", input, INTEGERS)
    if is_recorded():
        spatial = input.dim() - 2
        sizes, factors = (
            v if v is None or isinstance(v, (list, tuple)) else [v] * spatial for v in (size, scale_factor)
        )
        return torch.ops.zeropoint.interpolate(input, sizes, factors, mode, bool(align_corners))
    return F.interpolate(input, size, scale_factor, mode, align_corners)


def upsample(
    input: QTensor,
    size: Sizes | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> QTensor:
    """`interpolate`, under its old name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_bilinear(input: QTensor, size: Sizes | None = None, scale_factor: Any = None) -> QTensor:
    """`interpolate`, bilinear, with the corners aligned."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def upsample_nearest(input: QTensor, size: Sizes | None = None, scale_factor: Any = None) -> QTensor:
    """`interpolate`, nearest."""
    return interpolate(input, size, scale_factor, "nearest")


# ---------------------------------------------------------------------------------------------- functions of each value


def elu(input: QTensor, scale: float, zero_point: int, alpha: float = 1.0) -> QTensor:
    """``x`` for positive values, ``alpha * (exp(x) - 1)`` for others, quantized with `scale` and `zero_point`.

    Example:
        >>> import zeropoint
        >>> elu(
        ...     zeropoint.quantize_per_tensor(torch.tensor([-8.0, 2.0]), 0.1, 100, zeropoint.quint8), 0.1, 10
        ... ).dequantize()
        tensor([-1.,  2.])
    """
    return qfunctions.elu(input, scale, zero_point, alpha)


def celu(input: QTensor, scale: float, zero_point: int, alpha: float = 1.0) -> QTensor:
    """``x`` for positive values, ``alpha * (exp(x / alpha) - 1)`` for others, quantized as asked."""
    return qfunctions.celu(input, scale, zero_point, alpha)


def hardswish(input: QTensor, scale: float, zero_point: int) -> QTensor:
    """``x * relu6(x + 3) / 6``, quantized with `scale` and `zero_point`."""
    return qfunctions.hardswish(input, scale, zero_point)


def leaky_relu(
    input: QTensor,
    negative_slope: float = 0.01,
    inplace: bool = False,
    scale: float | None = None,
    zero_point: int | None = None,
) -> QTensor:
    """Negative values times `negative_slope`, quantized as asked, or as `input` is if nothing is asked.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([-8.0, 2.0]), 0.1, 100, zeropoint.quint8)
        >>> leaky_relu(q, 0.5).dequantize()
        tensor([-4.,  2.])
    """
    require_quantized("leaky_relu", "input", input, INTEGERS)
    if scale is None and zero_point is None:
        return F.leaky_relu(input, negative_slope, inplace)
    if scale is None or zero_point is None:
        raise ValueError(f"leaky_relu: pass both scale and zero_point, or neither, got {scale} and {zero_point}")
    return elementwise.leaky_relu(input, negative_slope, inplace, scale, zero_point)


def hardtanh(input: QTensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> QTensor:
    """Values between `min_val` and `max_val`; scale and zero point stay."""
    require_quantized("hardtanh", "input", input, INTEGERS)
    # Not F.hardtanh, which refuses bounds that are the wrong way round: as in PyTorch, the upper one then wins.
    aten = torch.ops.aten
    return (aten.hardtanh_ if inplace else aten.hardtanh)(input, min_val, max_val)


def hardsigmoid(input: QTensor, inplace: bool = False) -> QTensor:
    """``relu6(x + 3) / 6``; scale and zero point are fixed, 1/256 and 0 for quint8."""
    require_quantized("hardsigmoid", "input", input, INTEGERS)
    return F.hardsigmoid(input, inplace)


def threshold(input: QTensor, threshold: float, value: float) -> QTensor:
    """Values above `threshold` as they are, `value` for all others; scale and zero point stay."""
    return elementwise.threshold(input, threshold, value)


def clamp(input: QTensor, min_: float, max_: float) -> QTensor:
    """Values between `min_` and `max_`; scale and zero point stay."""
    return elementwise.clamp(input, min_, max_)
