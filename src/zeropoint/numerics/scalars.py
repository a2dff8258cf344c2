"""A quantized tensor plus or times a number: new parameters where they can say it, new integers where they cannot.

``x + c``: with ``c_q = rne(c / scale)`` the zero point becomes ``zero_point - c_q``. Where that is no integer of the
dtype it stays at the nearest end, the scale grows to fit, and the integers are requantized:
``rne((q - zero_point + c_q) * (scale / new_scale)) + new_zero_point``.

``x * c``: the scale becomes ``scale * |c|``; for a negative c integers and zero point are mirrored, which is ``~q``.
Zero gives zeros, with scale 1 and zero point 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from zeropoint.numerics import functions
from zeropoint.numerics.functions import Step

_INT32 = 2**31


class Parameters(NamedTuple):
    """The scale and the zero point of a result."""

    scale: float
    zero_point: int


def _number(op: str, x: float) -> float:
    if not math.isfinite(x):
        raise ValueError(f"{op}: the number must be finite, got {x}")
    return float(x)


def _steps(op: str, scale: float, other: float) -> int:
    """`other` as a number of steps."""
    steps = _number(op, other) / scale if scale else math.inf
    if not abs(steps) < _INT32:
        raise ValueError(f"{op}: {other} is more than 2^31 steps of {scale}; dequantize, and quantize the result")
    return round(steps)


def sum_parameters(scale: float, zero_point: int, other: float, dtype: torch.dtype) -> Parameters:
    """The parameters of ``x + other``.

    Example:
        >>> sum_parameters(0.5, 10, 2.0, torch.uint8), sum_parameters(0.5, 10, 20.0, torch.uint8)
        (Parameters(scale=0.5, zero_point=6), Parameters(scale=0.5588235294117647, zero_point=0))
    """
    info = torch.iinfo(dtype)
    moved = zero_point - _steps("add_scalar", scale, other)
    if moved < info.min:
        return Parameters((info.max - moved) / (info.max - info.min) * scale, info.min)
    if moved > info.max:
        return Parameters((moved - info.min) / (info.max - info.min) * scale, info.max)
    return Parameters(scale, moved)


def add_number(q: Tensor, scale: float, zero_point: int, other: float, *, relu: bool = False) -> Tensor:
    """The integers of ``x + other``, for the parameters that `sum_parameters` gives.

    Example:
        >>> q = torch.tensor([10, 255], dtype=torch.uint8)
        >>> add_number(q, 0.5, 10, 2.0), add_number(q, 0.5, 10, 20.0)
        (tensor([ 10, 255], dtype=torch.uint8), tensor([ 36, 255], dtype=torch.uint8))
    """
    out = sum_parameters(scale, zero_point, other, q.dtype)
    moved = zero_point - _steps("add_scalar", scale, other)
    if out.zero_point == moved:
        return q.clamp_min(moved) if relu else q.clone()
    info = torch.iinfo(q.dtype)
    low = max(info.min, out.zero_point) if relu else info.min
    factor = functions.ratio(scale, out.scale)
    y = functions.apply(q, "scaled", (factor,), Step(1.0, moved, 1.0, out.zero_point, low, info.max))
    return y.clamp_min_(low) if relu else y


def product_parameters(scale: float, zero_point: int, other: float, dtype: torch.dtype) -> Parameters:
    """The parameters of ``x * other``.

    Example:
        >>> product_parameters(0.5, 10, -2.0, torch.uint8)
        Parameters(scale=1.0, zero_point=245)
    """
    other = _number("mul_scalar", other)
    if other == 0:
        return Parameters(1.0, 0)
    info = torch.iinfo(dtype)
    product = scale * abs(other)
    if not math.isfinite(product) or product == 0:
        raise ValueError(
            f"mul_scalar: scale {scale} times {other} is not a valid scale; dequantize, and quantize the result"
        )
    return Parameters(product, zero_point if other > 0 else info.max + info.min - zero_point)


def multiply_number(q: Tensor, scale: float, zero_point: int, other: float, *, relu: bool = False) -> Tensor:
    """The integers of ``x * other``, for the parameters that `product_parameters` gives.

    Example:
        >>> multiply_number(torch.tensor([10, 255], dtype=torch.uint8), 0.5, 10, -2.0)
        tensor([245,   0], dtype=torch.uint8)
    """
    out = product_parameters(scale, zero_point, other, q.dtype)
    if other == 0:
        return torch.zeros_like(q)
    if other > 0:
        return q.clamp_min(out.zero_point) if relu else q.clone()
    mirrored = torch.bitwise_not(q)
    return mirrored.clamp_min_(out.zero_point) if relu else mirrored
