"""Scattered means, values that leave out what was there, and slices, as what programs have steps for."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call

__all__ = ["SCATTER"]

aten = torch.ops.aten
_FIRST = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}  # changes nothing that follows


def _scattered(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``scatter_reduce`` with what was there, and without means."""
    mode, includes, value = a["reduce"], a["include_self"], a["self"].meta.get("val")
    if mode not in _FIRST or (mode != "mean" and includes):
        return None
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return None
    place = (a["dim"], a["index"])
    begin = a["self"] if includes else call(graph, node, aten.scatter.value, a["self"], *place, _FIRST[mode])
    if mode != "mean":
        return call(graph, node, aten.scatter_reduce.two, begin, *place, a["src"], mode)
    total = call(graph, node, aten.scatter_add.default, begin, *place, a["src"])
    ones = call(graph, node, aten.ones_like.default, total)
    counts = ones if includes else call(graph, node, aten.scatter.value, ones, *place, 0.0)
    counts = call(
        graph, node, aten.scatter_add.default, counts, *place, call(graph, node, aten.ones_like.default, a["src"])
    )
    return call(graph, node, aten.div.Tensor, total, counts)


def _reduced(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``index_reduce``: slices that go where one index says, as values that each have theirs."""
    value = a["source"].meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return None
    axis = a["dim"] % value.dim()
    index = call(graph, node, aten.reshape.default, a["index"], [-1 if d == axis else 1 for d in range(value.dim())])
    index = call(graph, node, aten.expand_as.default, index, a["source"])
    options = (axis, index, a["source"], a["reduce"])
    made = graph.call_function(aten.scatter_reduce.two, (a["self"], *options), {"include_self": a["include_self"]})
    made.meta.update(origin=node.meta.get("origin"), val=node.meta.get("val"))
    return made


SCATTER: dict[str, Any] = {"scatter_reduce.two": _scattered, "index_reduce.default": _reduced}
