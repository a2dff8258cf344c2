"""Sums and products of two quantized tensors, requantized, as PyTorch 2.13's vectorized kernels compute them.

==========  ==========================================================================  ============================
operation   in float32                                                                  rounded
==========  ==========================================================================  ============================
add         ``fma(a_scale, a, -(a_scale * a_zero_point)) + fma(b_scale, b, ...)``       `split`; int32: `saturating`
multiply    ``((a - a_zero_point) * (b - b_zero_point)) * ((a_scale * b_scale) / scale)``  ``rne(...) + zero_point``
==========  ==========================================================================  ============================

`fixed_add` is the sum as QNNPACK has it, in integers: with ``shift = 21 - exponent(max(a_scale, b_scale) / scale)`` and
factors ``rne(a_scale / scale * 2**shift)``, it is ``(a_factor * (a - a_zero_point) + b_factor * (b - b_zero_point))``
over ``2**shift``, halves rounded away from zero.

Divisions by `scale` are products with its float32 reciprocal, the differences and their product are exact, and a ReLU
is part of the clamp. (PyTorch rounds its last few elements, and tensors whose strides differ, as `joined`; its products
of 32-bit integers wrap around. Ours do neither.)
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics import affine
from zeropoint.numerics.affine import INTEGER_CODES, RoundingVariant
from zeropoint.numerics.blocks import is_dense, memory_order
from zeropoint.numerics.functions import dequantize_fused, ratio, single

# Rows shorter than this cost more to begin than to compute: the operands are then copied to the shape of the result.
_SHORT = 64


class Operation(enum.IntEnum):
    """See BinaryOperation in native/kernels/binary/binary.h."""

    add = 0
    multiply = 1
    fixed_add = 2


class Operand(NamedTuple):
    """A quantized tensor: integers, scale and zero point."""

    q: Tensor
    scale: float
    zero_point: int


def empty_result(a: Tensor, b: Tensor) -> Tensor:
    """Where ``a o b`` goes: laid out as the operand that has the shape of the result, `a` if both have it.

    Example:
        >>> empty_result(torch.empty(3, 1), torch.empty(2)).shape
        torch.Size([3, 2])
    """
    shape = a.shape if a.shape == b.shape else torch.broadcast_shapes(a.shape, b.shape)
    if a.shape == shape:
        return torch.empty_like(a)
    return torch.empty_like(b) if b.shape == shape else a.new_empty(shape)


def has_fixed_add(a: Operand, b: Operand, scale: float) -> bool:
    """Whether QNNPACK adds these, and its factors are there: uint8 of one shape, scales that are not too far apart.

    Example:
        >>> a = Operand(torch.zeros(2, dtype=torch.uint8), 0.5, 0)
        >>> has_fixed_add(a, a, 1.0), has_fixed_add(a, a, 1e9)
        (True, False)
    """
    return a.q.dtype == torch.uint8 and a.q.shape == b.q.shape and fits_fixed_add(a.scale, b.scale, scale)


def fits_fixed_add(a_scale: float, b_scale: float, scale: float) -> bool:
    """Whether `fixed_add` has factors for these scales.

    Example:
        >>> fits_fixed_add(0.5, 0.25, 1.0), fits_fixed_add(0.5, 0.25, 1e-3)
        (True, False)
    """
    return _native.fits_fixed_add(a_scale, b_scale, scale)


def combine(
    operation: Operation, a: Operand, b: Operand, scale: float, zero_point: int, *, relu: bool = False
) -> Tensor:
    """``quantize(dequantize(a) o dequantize(b))`` of two tensors of one dtype; shapes broadcast.

    Args:
        a: uint8, int8 or int32 tensor with its scale and zero point.
        b: of the same dtype.

    Example:
        >>> a = Operand(torch.tensor([12, 14], dtype=torch.uint8), 0.5, 10)
        >>> combine(Operation.add, a, a, 1.0, 0), combine(Operation.multiply, a, a, 1.0, 0)
        (tensor([2, 4], dtype=torch.uint8), tensor([1, 4], dtype=torch.uint8))
    """
    y = empty_result(a.q, b.q)
    if not y.numel():
        return y
    if y.element_size() > 1 or not y.is_cpu:
        return y.copy_(_formula(operation, a, b, scale, zero_point, relu))
    if a.q.shape == b.q.shape and a.q.stride() == b.q.stride() and is_dense(a.q):
        places: _native.Places = ([], [], [], y.numel(), False)
    else:
        a, b, places = _placed(a, b, y)
    _native.binary(
        operation,
        INTEGER_CODES[y.dtype],
        (a.q.data_ptr(), a.scale, a.zero_point),
        (b.q.data_ptr(), b.scale, b.zero_point),
        (y.data_ptr(), scale, zero_point),
        relu,
        places,
    )
    return y


def _placed(a: Operand, b: Operand, y: Tensor) -> tuple[Operand, Operand, _native.Places]:
    """The operands in the order in which they are walked, copied where they cannot be, and how to walk them."""
    axes = _axes(a.q.expand(y.shape), b.q.expand(y.shape), y)
    length, a_step, b_step = axes[-1] if axes else (1, 1, 1)
    steps_fit = {a_step, b_step} <= {0, 1} and (a_step, b_step) != (0, 0)
    if not steps_fit or (length < _SHORT and len(axes) > 1):
        a, b = (o if _lies_like(o.q, y) else o._replace(q=torch.empty_like(y).copy_(o.q)) for o in (a, b))
        return a, b, ([], [], [], y.numel(), False)
    outer = axes[:-1]
    sizes, a_strides, b_strides = ([axis[i] for axis in outer] for i in range(3))
    if a_step == 0:  # both operations are symmetric
        return b, a, (sizes, b_strides, a_strides, length, True)
    return a, b, (sizes, a_strides, b_strides, length, b_step == 0)


def _lies_like(q: Tensor, y: Tensor) -> bool:
    return q.shape == y.shape and q.stride() == y.stride()


def _axes(a: Tensor, b: Tensor, y: Tensor) -> list[tuple[int, int, int]]:
    """Size and strides of each axis, in the order of `y` in memory, those that can be walked as one taken together."""
    axes: list[tuple[int, int, int]] = []
    for d in memory_order(y):
        n, a_stride, b_stride = y.shape[d], a.stride(d), b.stride(d)
        if n == 1:
            continue
        if axes and axes[-1][1] == n * a_stride and axes[-1][2] == n * b_stride:
            axes[-1] = (axes[-1][0] * n, a_stride, b_stride)
        else:
            axes.append((n, a_stride, b_stride))
    return axes


def _formula(operation: Operation, a: Operand, b: Operand, scale: float, zero_point: int, relu: bool) -> Tensor:
    """The same in torch operations, for 32 bits and for other devices."""
    dtype = a.q.dtype
    info = torch.iinfo(dtype)
    low = max(info.min, zero_point) if relu else info.min
    if operation == Operation.add:
        total = dequantize_fused(a.q, a.scale, a.zero_point) + dequantize_fused(b.q, b.scale, b.zero_point)
        variant = RoundingVariant.saturating if dtype == torch.int32 else RoundingVariant.split
        y = affine.quantize_tensor(
            total, single(scale), zero_point, qmin=info.min, qmax=info.max, dtype=dtype, variant=variant
        )
        return y.clamp_min(low)
    if operation == Operation.fixed_add:
        return _fixed_sum(a, b, scale, zero_point, low).to(dtype)
    product = (a.q.to(torch.int64) - a.zero_point) * (b.q.to(torch.int64) - b.zero_point)
    factor = ratio(single(single(a.scale) * single(b.scale)), scale)
    rounded = torch.round(product.to(torch.float32) * factor)
    return (rounded.to(torch.float64) + zero_point).clamp(low, info.max).to(dtype)


def _fixed_sum(a: Operand, b: Operand, scale: float, zero_point: int, low: int) -> Tensor:
    ratios = torch.tensor([a.scale, b.scale], dtype=torch.float32) / torch.tensor(scale, dtype=torch.float32)
    shift = 22 - int(torch.frexp(ratios.max()).exponent)
    a_factor, b_factor = torch.ldexp(ratios, torch.tensor(shift)).round().to(torch.int64).tolist()
    total = a_factor * (a.q.to(torch.int64) - a.zero_point) + b_factor * (b.q.to(torch.int64) - b.zero_point)
    rounded = ((total.abs() + (1 << (shift - 1))) >> shift) * total.sign()
    return (rounded + zero_point).clamp(low, 255)
