"""Functions of each element on quantized tensors: sums, products, cat, and functions with a table of 256 results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from zeropoint.numerics import scalars
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.ops.library import INTEGERS as DTYPES, named
from zeropoint.qfunctions.dispatch import run
from zeropoint.qfunctions.operands import activation, require_quantized, result
from zeropoint.tensor.qtensor import QTensor
from zeropoint.tensor.quantizer import PerTensorQuantizer
from zeropoint.tensor.write import copy_

__all__ = [
    "add",
    "add_out",
    "add_relu",
    "add_relu_out",
    "add_scalar",
    "add_scalar_out",
    "add_scalar_relu",
    "add_scalar_relu_out",
    "cat",
    "cat_out",
    "cat_relu",
    "cat_relu_out",
    "clamp",
    "dropout",
    "gelu",
    "leaky_relu",
    "mul",
    "mul_out",
    "mul_relu",
    "mul_relu_out",
    "mul_scalar",
    "mul_scalar_out",
    "mul_scalar_relu",
    "mul_scalar_relu_out",
    "relu6",
    "requantize",
    "threshold",
]

Number = int | float


def _into(op: str, y: QTensor, out: QTensor | None) -> QTensor:
    """`y`, or `out` after it took over the integers and the parameters of `y`."""
    if out is None:
        return y
    require_quantized(op, "out", out, DTYPES)
    if out._qdtype != y._qdtype or out.shape != y.shape:
        raise ValueError(
            f"{op}: out must be {y._qdtype.name} of shape {tuple(y.shape)}, got {out._qdtype.name} of shape"
            f" {tuple(out.shape)}"
        )
    copy_(out, y)
    return out


# ------------------------------------------------------------------------------------------------ sums and products


def _binary(op: str, qa: QTensor, qb: QTensor, scale: float, zero_point: int, out: QTensor | None = None) -> QTensor:
    a, b = activation(op, qa, "the first", DTYPES), activation(op, qb, "the second", DTYPES)
    scale, zero_point = float(scale), int(zero_point)
    return _into(op, result(run(op, *a, *b, scale, zero_point), scale, zero_point, qa._qdtype), out)


def _scalar(op: str, qa: QTensor, b: Any, out: QTensor | None = None) -> QTensor:
    """A tensor and a number, which may come in a tensor of one element."""
    q, scale, zero_point = activation(op, qa, dtypes=DTYPES)
    if isinstance(b, Tensor) and b.numel() != 1:
        raise ValueError(f"{op}: the number must be one, got a tensor of shape {tuple(b.shape)}")
    if not isinstance(b, (int, float, Tensor)):
        raise TypeError(f"{op}: expected a number, got {type(b).__name__}")
    number = float(b)
    parameters = scalars.sum_parameters if op.startswith("add") else scalars.product_parameters
    new = parameters(scale, zero_point, number, q.dtype)
    return _into(op, result(run(op, q, scale, zero_point, number), *new, qa._qdtype), out)


def _either(op: str, qa: Any, qb: Any, scale: float | None, zero_point: int | None) -> QTensor:
    """Two tensors and the parameters of the result, or a tensor and a number in either order."""
    if isinstance(qa, QTensor) and isinstance(qb, QTensor):
        if scale is None or zero_point is None:
            raise TypeError(f"{op}: two quantized tensors need the scale and zero_point of the result")
        return _binary(op, qa, qb, scale, zero_point)
    if scale is not None or zero_point is not None:
        require_quantized(op, "the first", qa, DTYPES)
        require_quantized(op, "the second", qb, DTYPES)
    base, relu = op.removesuffix("_relu"), "_relu" if op.endswith("_relu") else ""
    return _scalar(f"{base}_scalar{relu}", *((qa, qb) if isinstance(qa, QTensor) else (qb, qa)))


def _define(op: str, sign: str) -> tuple[Callable[..., QTensor], ...]:
    """A sum or a product of two tensors or of one and a number; into another tensor; and of a number alone."""
    what = f"``{sign.format('qa', 'qb')}``, requantized"
    base, relu = op.removesuffix("_relu"), "_relu" if op.endswith("_relu") else ""

    def either(qa: Any, qb: Any, scale: float | None = None, zero_point: int | None = None) -> QTensor:
        return _either(op, qa, qb, scale, zero_point)

    def either_out(qa: Any, qb: Any, out: QTensor) -> QTensor:
        _, scale, zero_point = activation(op, out, "out", DTYPES)
        if isinstance(qa, QTensor) and isinstance(qb, QTensor):
            return _binary(op, qa, qb, scale, zero_point, out)
        return _into(op, _either(op, qa, qb, None, None), out)

    def scalar(qa: QTensor, b: Number | Tensor) -> QTensor:
        return _scalar(f"{base}_scalar{relu}", qa, b)

    def scalar_out(qa: QTensor, b: Number | Tensor, out: QTensor) -> QTensor:
        return _scalar(f"{base}_scalar{relu}", qa, b, out)

    return (
        named(op, either, f"{what}; shapes broadcast. Without scale and zero point, one of the two is a number."),
        named(f"{op}_out", either_out, f"{what}, with the parameters of `out`, written there."),
        named(f"{base}_scalar{relu}", scalar, f"{what}, for a number: the parameters of the result follow from it."),
        named(f"{base}_scalar{relu}_out", scalar_out, f"{what}, for a number; `out` takes over the parameters."),
    )


add, add_out, add_scalar, add_scalar_out = _define("add", "{} + {}")
add_relu, add_relu_out, add_scalar_relu, add_scalar_relu_out = _define("add_relu", "relu({} + {})")
mul, mul_out, mul_scalar, mul_scalar_out = _define("mul", "{} * {}")
mul_relu, mul_relu_out, mul_scalar_relu, mul_scalar_relu_out = _define("mul_relu", "relu({} * {})")


# ----------------------------------------------------------------------------------------------------------- joining


def _cat(op: str, qx: Sequence[QTensor], dim: int, scale: float | None, zero_point: int | None) -> QTensor:
    if not qx:
        raise ValueError(f"{op}: needs at least one tensor")
    tensors, scales, zero_points = zip(*(activation(op, q, f"tensor {i}", DTYPES) for i, q in enumerate(qx)))
    scale = scales[0] if scale is None else float(scale)
    zero_point = zero_points[0] if zero_point is None else int(zero_point)
    y = run(op, list(tensors), list(scales), list(zero_points), dim, scale, zero_point)
    return result(y, scale, zero_point, qx[0]._qdtype)


def cat(qx: Sequence[QTensor], dim: int, scale: float | None = None, zero_point: int | None = None) -> QTensor:
    """Tensors joined along `dim`, each requantized to `scale` and `zero_point`; if not given, to those of the first.

    Example:
        >>> import torch
        >>> import zeropoint
        >>> a = zeropoint.quantize_per_tensor(torch.tensor([1.0]), 0.5, 0, zeropoint.quint8)
        >>> b = zeropoint.quantize_per_tensor(torch.tensor([2.0]), 0.25, 3, zeropoint.quint8)
        >>> cat([a, b], 0).int_repr()
        tensor([2, 4], dtype=torch.uint8)
    """
    return _cat("cat", qx, dim, scale, zero_point)


def cat_relu(qx: Sequence[QTensor], dim: int, scale: float | None = None, zero_point: int | None = None) -> QTensor:
    """As `cat`, with a ReLU."""
    return _cat("cat_relu", qx, dim, scale, zero_point)


def cat_out(qx: Sequence[QTensor], dim: int, out: QTensor) -> QTensor:
    """`cat` with the parameters of `out`, written there."""
    return _into("cat", _cat("cat", qx, dim, *activation("cat", out, "out", DTYPES)[1:]), out)


def cat_relu_out(qx: Sequence[QTensor], dim: int, out: QTensor) -> QTensor:
    """`cat_relu` with the parameters of `out`, written there."""
    return _into("cat_relu", _cat("cat_relu", qx, dim, *activation("cat_relu", out, "out", DTYPES)[1:]), out)


# --------------------------------------------------------------------------------------------- functions with a table


def _unary(op: str, q: QTensor, scale: float, zero_point: int, *arguments: float) -> QTensor:
    parameters = float(scale), int(zero_point)
    y = run(op, *activation(op, q, dtypes=DTYPES), *(float(a) for a in arguments), *parameters)
    return result(y, *parameters, q._qdtype)


def gelu(input: QTensor, output_scale: float, output_zero_point: int, approximate: str = "none") -> QTensor:
    """GELU of each value, quantized as asked; `approximate` is "none" or "tanh"."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return _unary("gelu", input, output_scale, output_zero_point, approximate == "tanh")


def leaky_relu(
    qx: QTensor, negative_slope: float, inplace: bool, output_scale: float, output_zero_point: int
) -> QTensor:
    """Negative values times `negative_slope`, quantized as asked.

    Args:
        inplace: PyTorch's operator takes it, warns and does without, and so does this one.

    Example:
        >>> import torch
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([-8.0, 2.0]), 0.1, 100, zeropoint.quint8)
        >>> leaky_relu(q, 0.5, False, 0.1, 100).dequantize()
        tensor([-4.,  2.])
    """
    if inplace:
        warnings.warn(
            "leaky_relu: the result has its own qparams, so inplace=True returns a new tensor: omit it",
            stacklevel=2,
        )
    return _unary("leaky_relu", qx, output_scale, output_zero_point, negative_slope)


def requantize(qx: QTensor, scale: float, zero_point: int, dtype: Any = None) -> QTensor:
    """The same values with other parameters, and another dtype if given.

    Example:
        >>> import torch
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 10, zeropoint.quint8)
        >>> requantize(q, 0.25, 0, zeropoint.qint8).int_repr()
        tensor([4, 8], dtype=torch.int8)
    """
    kind = qx._qdtype if dtype is None else quantized_dtype(dtype)
    if kind.name not in DTYPES:
        raise TypeError(f"requantize: dtype must be {' or '.join(reversed(DTYPES))}, got {kind.name}")
    operand = activation("requantize", qx, dtypes=DTYPES)
    parameters = float(scale), int(zero_point)
    return result(run("requantize", *operand, *parameters, kind.torch_storage), *parameters, kind)


# ------------------------------------------------------------------------------------------------ bounds on integers


def _kept(op: str, q: QTensor, *arguments: Any) -> QTensor:
    """A function that keeps the parameters."""
    data, scale, zero_point = activation(op, q, dtypes=DTYPES)
    return QTensor(run(op, data, scale, zero_point, *arguments), PerTensorQuantizer(scale, zero_point), q._qdtype)


def clamp(qx: QTensor, min: float | None = None, max: float | None = None) -> QTensor:
    """Values between `min` and `max`; the parameters stay.

    Example:
        >>> import torch
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([-1.0, 2.0]), 0.5, 10, zeropoint.quint8)
        >>> clamp(q, 0.0, 1.0).dequantize()
        tensor([0., 1.])
    """
    return _kept("clamp", qx, *(None if bound is None else float(bound) for bound in (min, max)))


def relu6(qx: QTensor, inplace: bool = False) -> QTensor:
    """Values between 0 and 6; the parameters stay. `inplace` changes `qx` itself.

    Example:
        >>> import torch
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([-1.0, 8.0]), 0.5, 10, zeropoint.quint8)
        >>> relu6(q).dequantize()
        tensor([0., 6.])
    """
    y = _kept("relu6", qx)
    return _into("relu6", y, qx) if inplace else y


def threshold(qx: QTensor, threshold: float, value: float) -> QTensor:
    """Values above `threshold` as they are, `value` for all others; the parameters stay.

    Example:
        >>> import torch
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([0.5, 2.0]), 0.5, 10, zeropoint.quint8)
        >>> threshold(q, 1.0, 0.0).dequantize()
        tensor([0., 2.])
    """
    return _kept("threshold", qx, float(threshold), float(value))


def dropout(
    input: QTensor, output_scale: float, output_zero_point: int, p: float = 0.5, training: bool = False
) -> QTensor:
    """`input` itself: quantized models are not trained. As in PyTorch, it keeps its parameters, whatever is asked.

    Raises:
        NotImplementedError: if `training` is True.
    """
    activation("dropout", input, dtypes=DTYPES)
    if training:
        raise NotImplementedError("dropout: quantized tensors cannot be used in training; call it with training=False")
    return input
