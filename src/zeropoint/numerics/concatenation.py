"""Quantized tensors joined along an axis, each requantized to the parameters of the result on the way.

On 8 bits a piece with other parameters than the result goes through a table of 256 bytes. The tables are those of
PyTorch 2.13: `fused`, as quantize_per_tensor rounds, or `split` for images that are channels last and joined along
their channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics import functions
from zeropoint.numerics.binary import Operand
from zeropoint.numerics.blocks import CHANNELS_LAST
from zeropoint.numerics.dtypes import qint8, qint32, quint8
from zeropoint.numerics.functions import Step

_FEW = 1 << 14  # bytes that torch.cat copies before our kernel has begun
_LIMITS = {kind.torch_storage: (kind.qmin, kind.qmax) for kind in (quint8, qint8, qint32)}


class _Target(NamedTuple):
    """What the pieces become."""

    step: tuple[float, int, int, int]  # scale, zero point, smallest and largest integer
    function: str


def empty_joined(tensors: Sequence[Tensor], dim: int, channels_last: bool | None = None) -> Tensor:
    """Where the tensors go: channels last if they all are (which the caller may know), else contiguous.

    Example:
        >>> empty_joined([torch.empty(2, 3), torch.empty(2, 1)], 1).shape
        torch.Size([2, 4])
    """
    first = tensors[0]
    shape = list(first.shape)
    shape[dim] = sum(t.shape[dim] for t in tensors)
    if _channels_last(tensors) if channels_last is None else channels_last:
        memory_format = CHANNELS_LAST[len(shape)]
        return torch.empty(shape, dtype=first.dtype, device=first.device, memory_format=memory_format)
    return first.new_empty(shape)


def _channels_last(tensors: Sequence[Tensor]) -> bool:
    memory_format = CHANNELS_LAST.get(tensors[0].dim())
    if memory_format is None:
        return False
    return all(t.is_contiguous(memory_format=memory_format) for t in tensors) and not all(
        t.is_contiguous() for t in tensors
    )


def join(pieces: Sequence[Operand], dim: int, scale: float, zero_point: int, *, relu: bool = False) -> Tensor:
    """The pieces one after the other along `dim`, which counts from the front.

    Args:
        pieces: tensors of one dtype, uint8, int8 or int32, whose shapes differ in `dim` only.

    Example:
        >>> q = torch.tensor([12, 14], dtype=torch.uint8)
        >>> join([Operand(q, 0.5, 10), Operand(q, 1.0, 10)], 0, 0.5, 10)
        tensor([12, 14, 14, 18], dtype=torch.uint8)
    """
    tensors = [p.q for p in pieces]
    inner = _channels_last(tensors)
    least, most = _LIMITS[tensors[0].dtype]
    low = max(least, zero_point) if relu else least
    kernel_rounds = inner and dim == 1 and tensors[0].dim() == 4
    target = _Target((scale, zero_point, low, most), "same" if kernel_rounds else "requantize")
    are_few = not inner and sum(t.numel() for t in tensors) < _FEW
    if are_few and all(p.q.is_contiguous() and _step(p, target) is None for p in pieces):
        return torch.cat(tensors, dim)
    y = empty_joined(tensors, dim, inner)
    if y.element_size() > 1 or not y.is_cpu:
        return y.copy_(torch.cat([_requantized(p, target) for p in pieces], dim))
    if inner:
        tensors = [t.movedim(1, -1) for t in tensors]
        dim = 0 if dim == 0 else y.dim() - 1 if dim == 1 else dim - 1
    tensors = [t.contiguous() for t in tensors]
    rows = math.prod(tensors[0].shape[:dim])
    tables = [_table(p, target) for p in pieces]
    _native.join(
        [
            (t.data_ptr(), 0 if table is None else table.data_ptr(), math.prod(t.shape[dim:]))
            for t, table in zip(tensors, tables)
        ],
        rows,
        y.data_ptr(),
    )
    return y


def _step(p: Operand, target: _Target) -> Step | None:
    """How a piece becomes part of the result; None where it is part of it as it is."""
    scale, zero_point, low, high = target.step
    if (p.scale, p.zero_point) == (scale, zero_point) and low == _LIMITS[p.q.dtype][0]:
        return None
    return Step(p.scale, p.zero_point, scale, zero_point, low, high)


def _table(p: Operand, target: _Target) -> Tensor | None:
    step = _step(p, target)
    return None if step is None else functions.table_of(target.function, (), step, p.q.dtype, p.q.dtype)


def _requantized(p: Operand, target: _Target) -> Tensor:
    step = _step(p, target)
    return p.q if step is None else functions.apply(p.q, target.function, (), step).clamp_min(step.qmin)
