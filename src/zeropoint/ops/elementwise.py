"""The operators ``torch.ops.zeropoint.add``, ``mul``, ``cat``, ``hardswish`` and their relatives, on plain integers.

Each takes integers (uint8, int8 or int32) with their scale and zero point beside them; ``scale`` and ``zero_point`` are
those of the result. The formulas are in `zeropoint.numerics`: binary, scalars, joining and functions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics import concatenation, functions, scalars
from zeropoint.numerics.binary import Operand, Operation, combine, empty_result, has_fixed_add
from zeropoint.numerics.blocks import is_dense
from zeropoint.numerics.dtypes import qint8, qint32, quint8
from zeropoint.numerics.functions import FUNCTIONS, FloatFunction, Step, ratio
from zeropoint.ops import checks
from zeropoint.ops.library import INTEGERS, composite, named, operator
from zeropoint.ops.rounding import QNNPACK, of_values

_TO = "float output_scale, int output_zero_point"
STORED = (torch.uint8, torch.int8, torch.int32)
_LEAST_ROW = 32  # bytes; shorter rows take longer to begin than to look up
_QUANTIZED = {torch.uint8: quint8, torch.int8: qint8, torch.int32: qint32}


def _require(op: str, q: Tensor, scale: float, zero_point: int, name: str = "input") -> None:
    """Integers, and parameters that the result of an operator can have."""
    checks.require_dtype(op, name, q.dtype, STORED)
    _require_parameters(op, q.dtype, scale, zero_point)


def _require_parameters(op: str, dtype: torch.dtype, scale: float, zero_point: int) -> None:
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"{op}: scale must be positive and finite, got {scale}")
    _require_zero_point(op, dtype, zero_point)


def _require_zero_point(op: str, dtype: torch.dtype, zero_point: int) -> None:
    low, high = checks.bounds(dtype)
    if not low <= zero_point <= high:
        raise ValueError(
            f"{op}: zero_point {zero_point} is outside the range of {checks.names([dtype])}, {low}..{high}"
        )


@functools.lru_cache(maxsize=1024)  # an operator is asked for the same few again and again
def _require_all(op: str, dtype: torch.dtype, scale: float, *zero_points: int) -> None:
    """Parameters that the result can have, and zero points of the operands behind them."""
    _require_parameters(op, dtype, scale, zero_points[0])
    for zero_point in zero_points[1:]:
        _require_zero_point(op, dtype, zero_point)


def _fake_same(input: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(input)


# ------------------------------------------------------------------------------------------------ sums and products


def _require_pair(op: str, a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype:
        raise TypeError(f"{op}: both tensors must have one dtype, got {checks.names([a.dtype, b.dtype])}")
    if a.shape == b.shape:
        return
    try:
        torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        raise ValueError(f"{op}: shapes {tuple(a.shape)} and {tuple(b.shape)} do not broadcast") from None


def _fake_binary(a: Tensor, b: Tensor) -> Tensor:
    return empty_result(a, b)


def _define_binary(name: str, operation: Operation, relu: bool, what: str) -> Callable[..., Tensor]:
    @operator(fake=_fake_binary, name=name)
    def binary(
        a: Tensor,
        a_scale: float,
        a_zero_point: int,
        b: Tensor,
        b_scale: float,
        b_zero_point: int,
        scale: float,
        zero_point: int,
    ) -> Tensor:
        checks.require_dtype(name, "a", a.dtype, STORED)
        _require_pair(name, a, b)
        _require_all(name, a.dtype, scale, zero_point, a_zero_point, b_zero_point)
        first, second = Operand(a, a_scale, a_zero_point), Operand(b, b_scale, b_zero_point)
        fixed = operation == Operation.add and of_values() == QNNPACK and has_fixed_add(first, second, scale)
        return combine(Operation.fixed_add if fixed else operation, first, second, scale, zero_point, relu=relu)

    return named(name, binary, f"{what} of two quantized tensors, requantized; shapes broadcast. See `combine`.")


add = _define_binary("add", Operation.add, False, "``a + b``")
add_relu = _define_binary("add_relu", Operation.add, True, "``relu(a + b)``")
mul = _define_binary("mul", Operation.multiply, False, "``a * b``")
mul_relu = _define_binary("mul_relu", Operation.multiply, True, "``relu(a * b)``")


def _define_scalar(name: str, compute: Callable[..., Tensor], relu: bool, what: str) -> Callable[..., Tensor]:
    @operator(fake=_fake_same, name=name)
    def scalar(input: Tensor, input_scale: float, input_zero_point: int, other: float) -> Tensor:
        _require(name, input, input_scale, input_zero_point)
        return compute(input, input_scale, input_zero_point, other, relu=relu)

    return named(name, scalar, what)


_SUM = "of a quantized tensor and a number, with the parameters of `zeropoint.numerics.scalars.sum_parameters`."
_PRODUCT = "of a quantized tensor and a number, with the parameters of `zeropoint.numerics.scalars.product_parameters`."
add_scalar = _define_scalar("add_scalar", scalars.add_number, False, f"The sum {_SUM}")
add_scalar_relu = _define_scalar("add_scalar_relu", scalars.add_number, True, f"The ReLU of the sum {_SUM}")
mul_scalar = _define_scalar("mul_scalar", scalars.multiply_number, False, f"The product {_PRODUCT}")
mul_scalar_relu = _define_scalar(
    "mul_scalar_relu", scalars.multiply_number, True, f"The ReLU of the product {_PRODUCT}"
)


def _define_parameters(name: str, compute: Callable[..., scalars.Parameters]) -> Callable[..., tuple[float, int]]:
    @composite(name=name)
    def parameters(input_scale: float, input_zero_point: int, other: float, dtype: torch.dtype) -> tuple[float, int]:
        scale, zero_point = compute(input_scale, input_zero_point, other, dtype)
        return scale, zero_point

    what = f"`zeropoint.numerics.scalars.{compute.__name__}`, for scripted code."
    return named(name, parameters, what)


add_scalar_parameters = _define_parameters("add_scalar_parameters", scalars.sum_parameters)
mul_scalar_parameters = _define_parameters("mul_scalar_parameters", scalars.product_parameters)


# ----------------------------------------------------------------------------------------------------------- joining


def _pieces(op: str, inputs: Sequence[Tensor], dim: int) -> tuple[list[Tensor], int]:
    """The tensors that have something to join, and `dim` counted from the front."""
    if not inputs:
        raise ValueError(f"{op}: needs at least one tensor")
    # An empty tensor of one dimension fits everywhere, as in torch.cat.
    tensors = [t for t in inputs if tuple(t.shape) != (0,)] or [inputs[0]]
    first = tensors[0]
    dim = checks.require_axis(op, first, dim)
    shape = first.shape
    for t in tensors[1:]:
        if t.dtype != first.dtype:
            raise TypeError(f"{op}: all tensors must have one dtype, got {checks.names([first.dtype, t.dtype])}")
        if t.shape != shape and (
            t.dim() != first.dim() or any(a != b for d, (a, b) in enumerate(zip(t.shape, shape)) if d != dim)
        ):
            raise ValueError(
                f"{op}: shapes may differ in dimension {dim} only, got {tuple(shape)} and {tuple(t.shape)}"
            )
    return tensors, dim


def _fake_cat(inputs: Sequence[Tensor], dim: int) -> Tensor:
    return concatenation.empty_joined(*_pieces("cat", inputs, dim))


def _define_cat(name: str, relu: bool) -> Callable[..., Tensor]:
    @operator(fake=_fake_cat, name=name)
    def cat(
        inputs: Sequence[Tensor],
        scales: Sequence[float],
        zero_points: Sequence[int],
        dim: int,
        scale: float,
        zero_point: int,
    ) -> Tensor:
        tensors, dim = _pieces(name, inputs, dim)
        if not len(inputs) == len(scales) == len(zero_points):
            raise ValueError(
                f"{name}: {len(inputs)} tensors need as many scales and zero points, got {len(scales)} and"
                f" {len(zero_points)}"
            )
        _require(name, tensors[0], scale, zero_point)
        kept = {id(t) for t in tensors}
        pieces = [Operand(*p) for p in zip(inputs, scales, zero_points) if id(p[0]) in kept]
        return concatenation.join(pieces, dim, scale, zero_point, relu=relu)

    what = f"Quantized tensors joined along `dim`{', with a ReLU' if relu else ''}, each requantized to the parameters"
    return named(name, cat, f"{what} of the result. See `zeropoint.numerics.concatenation`.")


cat = _define_cat("cat", relu=False)
cat_relu = _define_cat("cat_relu", relu=True)


# --------------------------------------------------------------------------------------------- functions with a table


def _step(
    q: Tensor,
    input_scale: float,
    input_zero_point: int,
    scale: float,
    zero_point: int,
    dtype: torch.dtype | None = None,
) -> Step:
    return Step(input_scale, input_zero_point, scale, zero_point, *checks.bounds(dtype or q.dtype))


@operator(fake=_fake_same)
def unary(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    name: str,
    arguments: Sequence[float],
    scale: float,
    zero_point: int,
) -> Tensor:
    """``quantize(function(dequantize(input), *arguments))``; the names are those of `FUNCTIONS`.

    Example:
        >>> unary(torch.tensor([8, 12], dtype=torch.uint8), 1.0, 10, "leaky_relu", [0.5], 1.0, 10)
        tensor([ 9, 12], dtype=torch.uint8)
    """
    numbers = tuple([float(a) for a in arguments])
    step = _checked_step(input.dtype, input_scale, input_zero_point, name, numbers, scale, zero_point)
    return functions.apply(input, name, numbers, step)


@functools.lru_cache(maxsize=1024)
def _checked_step(
    dtype: torch.dtype,
    input_scale: float,
    input_zero_point: int,
    name: str,
    arguments: tuple[float, ...],
    scale: float,
    zero_point: int,
) -> Step:
    """What `functions.apply` wants for `unary`, whose arguments are checked here."""
    entry = FUNCTIONS.get(name)
    if entry is None:
        raise ValueError(f"unary: no function {name!r}; there are {', '.join(sorted(FUNCTIONS))}")
    if len(arguments) != len(entry.arguments):
        names = ", ".join(entry.arguments) or "none"
        raise ValueError(f"unary: {name} takes {len(entry.arguments)} arguments ({names}), got {len(arguments)}")
    checks.require_dtype(name, "input", dtype, STORED)
    _require_parameters(name, dtype, scale, zero_point)
    return Step(input_scale, input_zero_point, scale, zero_point, *checks.bounds(dtype))


def _define_function(name: str, entry: FloatFunction) -> None:
    """The operator of one entry of FUNCTIONS, its arguments before the parameters of the result."""

    def function(input: Tensor, input_scale: float, input_zero_point: int, *rest: Any, **more: Any) -> Tensor:
        if more:
            rest = (*rest, *(more[n] for n in (*entry.arguments, "scale", "zero_point")[len(rest) :]))
        is_of_qnnpack = entry.of_qnnpack and input.dtype == torch.uint8 and of_values() == QNNPACK
        formula = entry.of_qnnpack if is_of_qnnpack else name
        return unary(input, input_scale, input_zero_point, formula, rest[:-2], rest[-2], rest[-1])

    taken = f" with its {', '.join(entry.arguments)}" if entry.arguments else ""
    named(name, function, f"{name}{taken} of a quantized tensor, requantized: a table of 256 results on 8 bits.")
    numbers = "".join(f" float {argument}," for argument in entry.arguments)
    given = f"Tensor input, float input_scale, int input_zero_point,{numbers} float scale, int zero_point"
    on_qtensors = "" if entry.on_qtensors is None else ", ".join(filter(None, ("Tensor qx", _TO, entry.on_qtensors)))
    operator(f"{name}({given}) -> Tensor", fake=_fake_same, on_qtensors=on_qtensors, dtypes=INTEGERS)(function)


for _name, _entry in FUNCTIONS.items():
    if _entry.operator:
        _define_function(_name, _entry)


@operator(fake=_fake_same, on_qtensors=f"Tensor qx, Tensor weight, {_TO}", dtypes=INTEGERS)
def prelu(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    weight: Tensor,
    weight_scale: float,
    weight_zero_point: int,
    scale: float,
    zero_point: int,
) -> Tensor:
    """Negative values times the slope of their channel, requantized.

    (PyTorch 2.13 multiplies the others too, by 1.0 as the parameters of `weight` can say it: by 0.25 if that is the
    largest value they have. Ours stay what they are.)

    Args:
        input: ``(N, C, ...)``, or of any shape for a single slope.
        weight: ``(C,)`` or ``(1,)``, of the dtype of `input`.

    Example:
        >>> q = torch.tensor([[8, 12]], dtype=torch.uint8)
        >>> prelu(q, 1.0, 10, torch.tensor([1, 2], dtype=torch.uint8), 0.5, 0, 1.0, 10)
        tensor([[ 9, 12]], dtype=torch.uint8)
    """
    _require("prelu", input, scale, zero_point)
    _require_zero_point("prelu", input.dtype, input_zero_point)
    _require_zero_point("prelu", input.dtype, weight_zero_point)
    if weight.dtype != input.dtype:
        raise TypeError(f"prelu: weight must have the dtype of the input, got {checks.names([weight.dtype])}")
    channels = input.shape[1] if input.dim() > 1 else 1
    if weight.dim() > 1 or weight.numel() not in (1, channels):
        raise ValueError(
            f"prelu: weight must have one value, or one for each of {channels} channels, got shape"
            f" {tuple(weight.shape)}"
        )
    parameters = weight, input_scale, input_zero_point, weight_scale, weight_zero_point, scale, zero_point
    # Rows that have one slope each: a table of 256 results for each slope, where those are fewer than the values.
    slopes = weight.numel()
    rows = 1 if slopes == 1 else input.shape[0] * channels
    in_rows = is_dense(input) if slopes == 1 else input.is_contiguous()
    are_worth = input.numel() >= max(256 * slopes, _LEAST_ROW * rows)
    if input.element_size() > 1 or not input.is_cpu or not in_rows or not are_worth:
        return _prelu(input, *parameters)
    every = torch.arange(256, dtype=torch.uint8).view(input.dtype).repeat(1, slopes, 1)
    return functions.look_up_rows(input, _prelu(every, *parameters), rows)


def _prelu(
    input: Tensor,
    weight: Tensor,
    input_scale: float,
    input_zero_point: int,
    weight_scale: float,
    weight_zero_point: int,
    scale: float,
    zero_point: int,
) -> Tensor:
    """The formula of `prelu`."""
    slopes = weight.reshape(()) if weight.numel() == 1 else weight.reshape(-1, *[1] * (input.dim() - 2))
    # What is above the zero point, the zero point taken out and the rest one factor, as in the product below.
    step = _step(input, 1.0, input_zero_point, 1.0, zero_point)
    above = functions.apply(input, "scaled", (ratio(input_scale, scale),), step).clamp_min_(zero_point)
    operand = Operand(input.clamp_max(input_zero_point), input_scale, input_zero_point)
    below = combine(Operation.multiply, operand, Operand(slopes, weight_scale, weight_zero_point), scale, zero_point)
    # One of the two is the zero point: integers that wrap around give the other (torch.where takes 100 times as long).
    return below.add_(above).sub_(zero_point)


def _fake_requantize(input: Tensor, *rest: Any) -> Tensor:
    dtype = rest[4] if len(rest) > 4 else None
    return torch.empty_like(input, dtype=dtype or input.dtype)


@operator(fake=_fake_requantize)
def requantize(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    scale: float,
    zero_point: int,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The same values with other parameters, and another dtype if asked: ``quantize_per_tensor(dequantize(input))``.

    Example:
        >>> requantize(torch.tensor([8, 12], dtype=torch.uint8), 1.0, 10, 0.5, 0, torch.int8)
        tensor([-4,  4], dtype=torch.int8)
    """
    dtype = dtype or input.dtype
    checks.require_dtype("requantize", "input", input.dtype, STORED)
    checks.require_dtype("requantize", "dtype", dtype, STORED)
    _require_parameters("requantize", dtype, scale, zero_point)
    step = _step(input, input_scale, input_zero_point, scale, zero_point, dtype)
    return functions.apply(input, "requantize", (), step, dtype)


# ------------------------------------------------------------------------------------------------ bounds on integers


@operator(fake=_fake_same)
def clamp(
    input: Tensor, input_scale: float, input_zero_point: int, min: float | None = None, max: float | None = None
) -> Tensor:
    """The integers between those of `min` and `max`; the parameters stay.

    Example:
        >>> clamp(torch.tensor([8, 12, 14], dtype=torch.uint8), 0.5, 10, 0.0, 1.0)
        tensor([10, 12, 12], dtype=torch.uint8)
    """
    _require("clamp", input, input_scale, input_zero_point)
    if min is None and max is None:
        raise ValueError("clamp: at least one of min and max must be given")

    def integer(bound: float | None) -> int | None:
        if bound is None:
            return None
        return functions.quantize_number(bound, input_scale, input_zero_point, _QUANTIZED[input.dtype])

    return torch.clamp(input, integer(min), integer(max))


@operator(fake=_fake_same)
def relu6(input: Tensor, input_scale: float, input_zero_point: int) -> Tensor:
    """`clamp` between 0 and 6.

    Example:
        >>> relu6(torch.tensor([8, 12, 30], dtype=torch.uint8), 0.5, 10)
        tensor([10, 12, 22], dtype=torch.uint8)
    """
    return clamp(input, input_scale, input_zero_point, 0.0, 6.0)


@operator(fake=_fake_same)
def threshold(input: Tensor, input_scale: float, input_zero_point: int, threshold: float, value: float) -> Tensor:
    """Values above `threshold` as they are, `value` for all others; the parameters stay.

    Example:
        >>> threshold(torch.tensor([8, 12, 14], dtype=torch.uint8), 0.5, 10, 1.0, 0.0)
        tensor([10, 10, 14], dtype=torch.uint8)
    """
    parameters = input_scale, input_zero_point
    return unary(input, *parameters, "threshold", [threshold, value], *parameters)
