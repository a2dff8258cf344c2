"""Values that lie where strides or a mask say, as values that are taken by their places."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call, has_value

aten = torch.ops.aten


def _multiples(graph: fx.Graph, node: fx.Node, count: Any, step: Any) -> fx.Node:
    """0, step, 2 step, ..., so many."""
    if isinstance(step, int):
        return call(graph, node, aten.mul.Tensor, call(graph, node, aten.arange.default, count), step)
    end = call(graph, node, operator.mul, count, step)
    return call(graph, node, aten.arange.start_step, 0, end, step)


def _stride(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """The stride of an axis of a tensor whose values lie one behind the other: the product of the sizes behind it."""
    x = a["self"]
    if not has_value(x) or not x.meta["val"].is_contiguous():
        return None
    rank, made = x.meta["val"].dim(), None
    for axis in range(a["dim"] % rank + 1, rank):
        size = call(graph, node, aten.sym_size.int, x, axis)
        made = size if made is None else call(graph, node, operator.mul, made, size)
    return made


def _strided(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``as_strided`` of a tensor whose values lie one behind the other."""
    x, sizes, strides = a["self"], a["size"], a["stride"]
    if not has_value(x) or not x.meta["val"].is_contiguous() or x.meta["val"].storage_offset() != 0:
        return None
    if not sizes:
        return None
    places: Any = None
    for axis, (size, stride) in enumerate(zip(sizes, strides)):
        along = _multiples(graph, node, size, stride)
        along = call(graph, node, aten.reshape.default, along, [-1 if d == axis else 1 for d in range(len(sizes))])
        places = along if places is None else call(graph, node, aten.add.Tensor, places, along)
    if a["storage_offset"] is not None:
        if not isinstance(a["storage_offset"], int):
            return None
        places = call(graph, node, aten.add.Tensor, places, a["storage_offset"])
    flat = call(graph, node, aten.reshape.default, x, [-1])
    taken = call(graph, node, aten.index_select.default, flat, 0, call(graph, node, aten.reshape.default, places, [-1]))
    return call(graph, node, aten.reshape.default, taken, list(sizes))


def _scattered_by_mask(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``masked_scatter``: the values of the source, one behind the other, where a mask is true."""
    x, mask, source = (a[name] for name in ("self", "mask", "source"))
    if not all(map(has_value, (x, mask, source))) or x.meta["val"].dim() == 0:
        return None
    if any(str(v.meta["val"].shape) != str(node.meta["val"].shape) for v in (x, mask)):  # each may be the larger one
        x = call(graph, node, aten.where.self, mask, x, x)
    mask = call(graph, node, aten.expand_as.default, mask, x)
    numbers = call(graph, node, aten.to.dtype, call(graph, node, aten.reshape.default, mask, [-1]), torch.int64)
    place = call(graph, node, aten.sub.Scalar, call(graph, node, aten.cumsum.default, numbers, 0), 1)
    place = call(graph, node, aten.clamp.default, place, 0)
    values = call(graph, node, aten.reshape.default, source, [-1])
    values = call(graph, node, aten.index_select.default, values, 0, place)
    values = call(graph, node, aten.reshape_as.default, values, x)
    return call(graph, node, aten.where.self, mask, values, x)


PLACES: dict[str, Any] = {
    "as_strided.default": _strided,
    "sym_stride.int": _stride,
    "masked_scatter.default": _scattered_by_mask,
}
