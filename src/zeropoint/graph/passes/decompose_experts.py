"""Mixtures of experts as transformers writes them: tokens sorted by expert, one product for each group of rows.

How many rows a group has depends on data. In a graph every expert is a linear layer on all rows, of which those of its
group are taken: the same result, with as many products as there are experts for each one that is needed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call

__all__ = ["EXPERTS"]

aten = torch.ops.aten


def _counted(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``histc`` of whole numbers with a bin for each: how often each occurs."""
    first, last, source = a["min"], a["max"], a["self"]
    whole = isinstance(source, fx.Node) and source.target in (aten.to.dtype, aten._to_copy.default)
    value = source.args[0].meta.get("val") if whole else None
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or last - first != a["bins"] - 1:
        return None
    numbers = call(graph, node, aten.arange.start, int(first), int(last) + 1)
    values = call(graph, node, aten.unsqueeze.default, source.args[0], -1)
    found = call(graph, node, aten.eq.Tensor, values, numbers)
    counts = call(graph, node, aten.sum.dim_IntList, found, [0])
    return call(graph, node, aten.to.dtype, counts, torch.float32)


def _grouped(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """A product of each group of rows with its own matrix; `ends` are the rows behind the groups."""
    x, matrices, ends = list(a.values())[:3]
    if any(value is not None for value in list(a.values())[3:]) or not isinstance(ends, fx.Node):
        return None
    values = [n.meta.get("val") for n in (x, matrices)]
    if not all(isinstance(v, torch.Tensor) for v in values) or values[0].dim() != 2 or values[1].dim() != 3:
        return None
    count = values[1].shape[0]
    if not isinstance(count, int):
        return None
    rows = call(graph, node, aten.arange.default, call(graph, node, aten.sym_size.int, x, 0))
    made = _expert(graph, node, x, matrices, count - 1)
    for expert in reversed(range(count - 1)):
        end = call(graph, node, aten.select.int, ends, 0, expert)
        is_before = call(graph, node, aten.unsqueeze.default, call(graph, node, aten.lt.Tensor, rows, end), -1)
        made = call(graph, node, aten.where.self, is_before, _expert(graph, node, x, matrices, expert), made)
    return made


def _expert(graph: fx.Graph, node: fx.Node, x: fx.Node, matrices: fx.Node, number: int) -> fx.Node:
    return call(graph, node, aten.matmul.default, x, call(graph, node, aten.select.int, matrices, 0, number))


EXPERTS: dict[str, Any] = {
    "histc.default": _counted,
    "_grouped_mm.default": _grouped,
    "transformers.grouped_mm_fallback.default": _grouped,
}
