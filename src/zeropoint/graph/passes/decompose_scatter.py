"""Scattered means, values that leave out what was there, and slices, as what programs have steps for."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call

aten = torch.ops.aten
_MODES = ("sum", "mean", "prod", "amax", "amin")


def _scattered(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``scatter_reduce`` with what was there, and without means."""
    mode, includes, value = a["reduce"], a["include_self"], a["self"].meta.get("val")
    if mode not in _MODES or not isinstance(value, torch.Tensor):
        return None
    if value.dtype == torch.bool:  # sums are whether any is, products whether all are
        numbers = {name: call(graph, node, aten.to.dtype, a[name], torch.int64) for name in ("self", "src")}
        made = _scattered(graph, node, {**a, **numbers})
        if made is None:
            given = (numbers["self"], a["dim"], a["index"], numbers["src"], mode)
            made = call(graph, node, aten.scatter_reduce.two, *given)
        return call(graph, node, aten.to.dtype, made, torch.bool)
    if mode != "mean" and includes:
        return None
    place = (a["dim"], a["index"])
    begin = a["self"]
    if not includes and mode in ("amax", "amin"):  # one of the values changes nothing
        begin = call(graph, node, aten.scatter.src, begin, *place, a["src"])
    elif not includes:
        begin = call(graph, node, aten.scatter.value, begin, *place, int(mode == "prod"))
    if mode != "mean":
        return call(graph, node, aten.scatter_reduce.two, begin, *place, a["src"], mode)
    total = call(graph, node, aten.scatter_add.default, begin, *place, a["src"])
    ones = call(graph, node, aten.ones_like.default, total)
    counts = ones if includes else call(graph, node, aten.scatter.value, ones, *place, 0)
    counts = call(
        graph, node, aten.scatter_add.default, counts, *place, call(graph, node, aten.ones_like.default, a["src"])
    )
    if value.is_floating_point():
        return call(graph, node, aten.div.Tensor, total, counts)
    return call(graph, node, aten.floor_divide.default, total, counts)


def _reduced(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``index_reduce``: slices that go where one index says, as values that each have theirs."""
    value = a["source"].meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    if value.dim() == 0:
        rows = {name: call(graph, node, aten.unsqueeze.default, a[name], 0) for name in ("self", "source")}
        made = _reduced(graph, node, {**a, **rows, "dim": 0})
        return None if made is None else call(graph, node, aten.squeeze.dim, made, 0)
    axis = a["dim"] % value.dim()
    index = call(graph, node, aten.reshape.default, a["index"], [-1 if d == axis else 1 for d in range(value.dim())])
    index = call(graph, node, aten.expand_as.default, index, a["source"])
    made = _scattered(graph, node, {**a, "dim": axis, "index": index, "src": a["source"]})
    if made is not None:
        return made
    options = (axis, index, a["source"], a["reduce"])
    made = graph.call_function(aten.scatter_reduce.two, (a["self"], *options), {"include_self": a["include_self"]})
    made.meta.update(origin=node.meta.get("origin"), val=a["self"].meta.get("val"))
    return made


SCATTER: dict[str, Any] = {"scatter_reduce.two": _scattered, "index_reduce.default": _reduced}
