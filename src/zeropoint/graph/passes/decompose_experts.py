"""Mixtures of experts as transformers writes them: tokens sorted by expert, one product for each group of rows.

How many rows a group has depends on data. In a graph all experts together are one linear layer on all rows, of whose
results each row keeps those of its expert: the same result, with as many products as there are experts for each one
that is needed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call, fixed_size

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
    count, inputs, outputs = (fixed_size(size) for size in values[1].shape)
    if count is None or inputs is None or outputs is None:
        return None
    rows = call(graph, node, aten.arange.default, call(graph, node, aten.sym_size.int, x, 0))
    is_behind = call(graph, node, aten.ge.Tensor, call(graph, node, aten.unsqueeze.default, rows, -1), ends)
    expert = call(graph, node, aten.sum.dim_IntList, is_behind, [-1])
    expert = call(graph, node, aten.clamp_max.default, expert, count - 1)  # rows behind the last group belong to none
    side_by_side = call(graph, node, aten.permute.default, matrices, [1, 0, 2])
    side_by_side = call(graph, node, aten.reshape.default, side_by_side, [inputs, count * outputs])
    every = call(graph, node, aten.matmul.default, x, side_by_side)
    every = call(graph, node, aten.reshape.default, every, [-1, outputs])
    wanted = call(graph, node, aten.add.Tensor, call(graph, node, aten.mul.Tensor, rows, count), expert)
    return call(graph, node, aten.index_select.default, every, 0, wanted)


EXPERTS: dict[str, Any] = {
    "histc.default": _counted,
    "_grouped_mm.default": _grouped,
    "transformers.grouped_mm_fallback.default": _grouped,
}
