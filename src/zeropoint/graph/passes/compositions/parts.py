"""Parts and copies of tensors, diagonals and blocks, as other operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.graph.passes.compositions.common import NotComposed, aten, axis_of, compose, counted

# ----------------------------------------------------------------------------------------------------- parts and copies


def _equal_parts(x: Tensor, count: int, axis: int) -> list[Tensor]:
    """So many parts of one size; the reshape refuses a size that they do not divide."""
    return list(x.unflatten(axis, (count, -1)).unbind(axis))


def _parts_at(x: Tensor, places: Sequence[int], axis: int) -> list[Tensor]:
    if any(place < 0 for place in places):
        raise NotComposed
    begins, ends = [0, *places], [*places, None]
    return [x[(slice(None),) * axis + (slice(begin, end),)] for begin, end in zip(begins, ends)]


def _first_axes(*axes: int) -> Callable[[Tensor], int]:
    """The axis that is split: the first of them for a line, else the second."""
    return lambda x: axes[0] if x.dim() == 1 else axes[-1]


def _split(axis: Callable[[Tensor], int]) -> Callable[..., list[Tensor]]:
    return lambda x, sections: _equal_parts(x, sections, axis(x))


def _split_at(axis: Callable[[Tensor], int]) -> Callable[..., list[Tensor]]:
    return lambda x, indices: _parts_at(x, indices, axis(x))


def _broadcast(tensors: Sequence[Tensor]) -> list[Tensor]:
    """All in the shape of their sum."""
    total = tensors[0]
    for other in tensors[1:]:
        total = torch.logical_or(total, other)
    return [tensor.expand_as(total) for tensor in tensors]


def _resized(x: Tensor, size: Sequence[int], *, memory_format: Any = None) -> Tensor:
    """``resize`` of one element, or to the same size; else it depends on strides."""
    if str(list(x.shape)) == str(list(size)):
        return x.clone()
    if not all(isinstance(n, int) and n == 1 for n in (*x.shape, *size)):
        raise NotComposed
    return x.reshape(list(size)).clone()


def _cartesian_product(tensors: Sequence[Tensor]) -> Tensor:
    if len(tensors) == 1:
        return tensors[0].clone()
    made = tensors[0].unsqueeze(1)
    for tensor in tensors[1:]:
        first = made.unsqueeze(1).expand(-1, tensor.shape[0], -1)
        second = tensor.reshape(1, -1, 1).expand(made.shape[0], -1, -1)
        made = torch.cat([first, second], 2).flatten(0, 1)
    return made


def _without_dropping(x: Tensor, p: float, train: bool) -> Tensor:
    """A dropout that drops nothing."""
    if train and p != 0:
        raise NotComposed
    return x.clone()


def _narrow_copy(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x.narrow(dim, start, length).clone()


def _sum_to_size(x: Tensor, size: Sequence[int]) -> Tensor:
    """Sums over the axes that a tensor of this size would be broadcast along."""
    if x.dtype == torch.bool:
        raise NotComposed
    more = x.dim() - len(size)
    axes = [*range(more), *(more + i for i, n in enumerate(size) if isinstance(n, int) and n == 1)]
    return (x.sum(axes, keepdim=True) if axes else x).reshape(size)


def _shifted(back: bool) -> Callable[..., Tensor]:
    """Axes turned by half of their size, so that the middle is the first, or back."""

    def made(x: Tensor, dim: Any = None) -> Tensor:
        axes = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        for axis in axes:
            size = x.shape[axis]
            begin = size // 2 if back else size - size // 2
            x = torch.cat([x.narrow(axis, begin, size - begin), x.narrow(axis, 0, begin)], axis)
        return x

    return made


def _doubles(make: Callable[..., Tensor], value: float | None = None) -> Callable[..., Tensor]:
    """A number in float64 everywhere, as float32, which has it too."""

    def made(*args: Any, **options: Any) -> Tensor:
        number = args[-1] if value is None else value
        exact = isinstance(number, (bool, int, float)) and float(torch.tensor(number, dtype=torch.float32)) == number
        if options.get("dtype") != torch.float64 or not exact:
            raise NotComposed
        return make(*args, **{**options, "dtype": torch.float32}).to(torch.float64)

    return made


# ------------------------------------------------------------------------------------------------------------ diagonals


def _is_diagonal(x: Tensor, offset: int) -> Tensor:
    """Which places of matrices lie on a diagonal."""
    return counted(x, -1) - counted(x, -2) == offset


def _diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    if x.dim() == 0:
        raise NotComposed
    below, above = max(-offset, 0), max(offset, 0)
    padded = aten.constant_pad_nd(x, [below, above], 0)
    rows = padded.unsqueeze(-1).expand(*padded.shape, padded.shape[-1])
    made = torch.where(_is_diagonal(rows, offset), rows, torch.zeros_like(rows))
    rank = x.dim() + 1
    first, second = dim1 % rank, dim2 % rank
    order = list(range(x.dim() - 1))
    for axis, source in sorted(((first, rank - 2), (second, rank - 1))):
        order.insert(axis, source)
    return made.permute(order)


def _diag(x: Tensor, diagonal: int = 0) -> Tensor:
    return _diag_embed(x, diagonal) if x.dim() == 1 else x.diagonal(diagonal)


def _diagflat(x: Tensor, offset: int = 0) -> Tensor:
    return _diag_embed(x.reshape(-1), offset)


def _diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    first, second = axis_of(x, dim1), axis_of(x, dim2)
    order = [axis for axis in range(x.dim()) if axis not in (first, second)] + [first, second]
    turned = x.permute(order)
    rows, begin = turned.shape[-2], max(-offset, 0)
    src = src.reshape_as(turned.diagonal(offset, -2, -1))  # which refuses another size
    values = aten.constant_pad_nd(src, [begin, rows - begin - src.shape[-1]], 0).unsqueeze(-1)
    made = torch.where(_is_diagonal(turned, offset), values, turned)
    return made.permute([order.index(axis) for axis in range(x.dim())])


def _block_diag(tensors: Sequence[Tensor]) -> Tensor:
    blocks = [t if t.dim() == 2 else t.reshape(1, -1) for t in tensors]
    dtype = blocks[0].dtype
    for block in blocks[1:]:
        dtype = torch.promote_types(dtype, block.dtype)
    rows, before = [], 0
    after = sum(block.shape[1] for block in blocks)
    for block in blocks:
        after = after - block.shape[1]
        rows.append(aten.constant_pad_nd(block.to(dtype), [before, after], 0))
        before = before + block.shape[1]
    return torch.cat(rows)


compose("hsplit.int", _split(_first_axes(0, 1)))
compose("hsplit.array", _split_at(_first_axes(0, 1)))
compose("vsplit.int", _split(_first_axes(0)))
compose("vsplit.array", _split_at(_first_axes(0)))
compose("dsplit.int", _split(_first_axes(2)))
compose("dsplit.array", _split_at(_first_axes(2)))
compose("tensor_split.indices", lambda x, indices, dim=0: _parts_at(x, indices, axis_of(x, dim)))
compose("broadcast_tensors.default", _broadcast)
compose("expand_copy.default", lambda x, size, *, implicit=False: x.expand(size).clone())
compose("view_copy.default", lambda x, size: x.reshape(size).clone(), fixes=True)
compose("resize.default", _resized)
compose("resize_as.default", lambda x, template, **options: _resized(x, template.shape))
compose("unsafe_split.Tensor", lambda x, split_size, dim=0: list(x.split(split_size, dim)), fixes=True)
compose("cartesian_prod.default", _cartesian_product)
for _name in ("feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
    compose(f"{_name}.default", _without_dropping)
compose("narrow_copy.default", _narrow_copy)
compose("sum_to_size.default", _sum_to_size)
compose("fft_fftshift.default", _shifted(back=False))
compose("fft_ifftshift.default", _shifted(back=True))
compose("zeros_like.default", _doubles(aten.zeros_like.default, 0))
compose("ones_like.default", _doubles(aten.ones_like.default, 1))
compose("full_like.default", _doubles(aten.full_like.default))
compose("new_zeros.default", _doubles(aten.new_zeros.default, 0))
compose("new_ones.default", _doubles(aten.new_ones.default, 1))
compose("new_full.default", _doubles(aten.new_full.default))
compose("diag_embed.default", _diag_embed)
compose("diag.default", _diag)
compose("diagflat.default", _diagflat)
compose("diagonal_scatter.default", _diagonal_scatter)
compose("linalg_diagonal.default", lambda A, *, offset=0, dim1=-2, dim2=-1: A.diagonal(offset, dim1, dim2))
compose("block_diag.default", _block_diag)
