"""Values by their place: reads, writes and reductions at indices, as other operators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.graph.passes.compositions.common import NotComposed, aten, compose, counted, in_dtype
from zeropoint.operators.node import overload_key


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    if x.dtype == torch.bool and accumulate:
        return _put(x.long(), index, source.long(), True).bool()
    flat, places = x.reshape(-1), index.reshape(-1)
    places = torch.where(places < 0, places + flat.shape[0], places)
    return aten.index_put(flat, [places], source.reshape(-1), accumulate).reshape(x.shape)


def _inside(mask: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Indices that are 0 where a mask is false."""
    return [None if index is None else torch.where(mask, index, torch.zeros_like(index)) for index in indices]


def _masked_index(x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Any) -> Tensor:
    """Values at places that may lie outside where a mask is false."""
    taken = aten.index(x, _inside(mask, indices))
    mask = mask.reshape(*mask.shape, *([1] * (taken.dim() - mask.dim())))
    return torch.where(mask, taken, torch.full_like(taken, fill))


def _masked_index_put(x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> Tensor:
    """Adds values at places that may lie outside where a mask is false."""
    if x.dtype == torch.bool:
        return _masked_index_put(x.long(), mask, indices, values.long()).bool()
    added = torch.where(mask, values, torch.zeros_like(values))
    if None in indices or values.dim() != mask.dim():
        raise NotComposed
    lines = [index.reshape(-1) for index in _inside(mask, indices) if index is not None]
    return aten.index_put(x, lines, added.reshape(-1), True)  # in an order that strides do not change


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    if x.dim() == 0:
        return _index_add(x.reshape(1), 0, index.reshape(-1), source.reshape(1), alpha=alpha).reshape([])
    if x.dtype == torch.bool:
        added = source & bool(alpha)
        return aten.index_add(x.long(), dim, index, added.long()).bool()
    if alpha == 1:
        raise NotComposed
    return aten.index_add(x, dim, index, source * in_dtype(alpha, x))


def _as_row(target: Any) -> Any:
    """A write to a number, as one to a row of one."""

    def made(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
        if x.dim():
            raise NotComposed
        value = value.reshape(1) if isinstance(value, Tensor) and target is aten.index_copy.default else value
        return target(x.reshape(1), 0, index.reshape(-1), value).reshape([])

    return made


def _scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    if x.dtype != torch.bool:
        raise NotComposed
    return aten.scatter_add(x.long(), dim, index, src.long()).bool()


def _as_strided_scatter(
    x: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Values at places in memory, of a tensor that is contiguous."""
    if not all(isinstance(n, int) for n in (*size, *stride)):
        raise NotComposed
    begin = storage_offset or 0
    places = [begin + sum(map(int.__mul__, at, stride)) for at in itertools.product(*map(range, size))]
    if len(set(places)) != len(places):
        raise NotComposed
    flat = x.reshape(-1)
    return aten.index_put(flat, [torch.tensor(places, dtype=torch.int64)], src.reshape(-1)).reshape(x.shape)


def _isin(elements: Tensor, tests: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    found = (elements.unsqueeze(-1) == tests.reshape(-1)).any(-1)
    return found.logical_not() if invert else found


def _isin_number(elements: Tensor, test: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    return elements != test if invert else elements == test


def _nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first places that are not zero: those of ones, sorted to the front in their order."""
    if not all(isinstance(n, int) for n in x.shape) or not isinstance(size, int):
        raise NotComposed
    if x.dim() == 0 or size == 0 or 0 in x.shape:
        return x.new_full([size, x.dim()], fill_value, dtype=torch.int64)
    found = (x != 0).reshape(-1).long()
    order = aten.sort.stable(1 - found, stable=True, dim=0)[1]
    short = size - order.shape[0]
    order = aten.constant_pad_nd(order, [0, short], 0) if short > 0 else order[:size]
    valid = counted(order, 0) < found.sum()
    places = []
    for n in reversed(x.shape):
        places.append(torch.remainder(order, int(n)))
        order = torch.div(order, int(n), rounding_mode="floor")
    every = torch.stack(places[::-1], 1)
    return torch.where(valid.unsqueeze(1), every, torch.full_like(every, fill_value))


def _combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    if not isinstance(x.shape[0], int) or r < 1:
        raise NotComposed
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = torch.tensor(list(choose(range(x.shape[0]), r)), dtype=torch.int64)
    return x.index_select(0, places.reshape(-1)).reshape(places.shape[0], r)


def _histogram(x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """``histc``: how many values lie in each part of a range that is given."""
    if min == max or not x.is_floating_point():
        raise NotComposed
    flat = x.reshape(-1)
    places = ((flat - min) * bins / (max - min)).floor().clamp(max=bins - 1).long()
    places = torch.where((flat >= min) & (flat <= max), places, torch.full_like(places, -1))
    return (places.unsqueeze(1) == torch.arange(bins)).sum(0).to(x.dtype)


compose("put.default", _put)
compose("_unsafe_masked_index.default", _masked_index)
compose("_unsafe_masked_index_put_accumulate.default", _masked_index_put)
compose("index_add.default", _index_add)
for _target in (aten.index_copy.default, aten.index_fill.int_Scalar, aten.index_fill.int_Tensor):
    compose(overload_key(_target), _as_row(_target))
compose("scatter_add.default", _scatter_add)
compose("as_strided_scatter.default", _as_strided_scatter)
compose("isin.Tensor_Tensor", _isin)
compose("isin.Tensor_Scalar", _isin_number)
compose("nonzero_static.default", _nonzero_static)
compose("combinations.default", _combinations)
compose("histc.default", _histogram)
