"""Order: medians and other values by their place in it, as sorted values of an axis of a fixed size, and sorts whose
equal values stay in their order, as those of programs do. PyTorch leaves that open unless it is asked for.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call, fixed_size

aten = torch.ops.aten


def _size(a: dict[str, Any], axis: Any) -> int | None:
    """The size of an axis of the input, if it is fixed and there are values."""
    value = a["self"].meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() == 0 or not isinstance(axis, int):
        return None
    return fixed_size(value.shape[axis]) or None


def _ordered(graph: fx.Graph, node: fx.Node, target: Any, x: fx.Node, axis: int, descending: bool) -> fx.Node:
    """A call that keeps the order of equal values."""
    made = graph.call_function(target, (x,), {"stable": True, "dim": axis, "descending": descending})
    made.meta = dict(node.meta)
    return made


def _stable(target: Any) -> Any:
    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node:
        return _ordered(graph, node, target, a["self"], a["dim"], a["descending"])

    return made


def _top(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """Of integers; that of floats has its own operator in quantized graphs."""
    value = a["self"].meta.get("val")
    if not isinstance(value, torch.Tensor) or value.is_floating_point():
        return None
    made = graph.call_function(torch.ops.zeropoint.top.default, (a["self"], a["k"], a["dim"], a["largest"]))
    made.meta = dict(node.meta)
    return made


def _sorted(graph: fx.Graph, node: fx.Node, x: fx.Node, axis: int) -> list[fx.Node]:
    """The values in order, and where each was."""
    both = _ordered(graph, node, aten.sort.stable, x, axis, False)
    both.meta["val"] = torch.sort(x.meta["val"], stable=True, dim=axis)
    return [call(graph, node, operator.getitem, both, i) for i in (0, 1)]


def _taken(graph: fx.Graph, node: fx.Node, x: fx.Node, axis: int, place: int, keep: bool) -> fx.Node:
    taken = call(graph, node, aten.select.int, x, axis, place)
    return call(graph, node, aten.unsqueeze.default, taken, axis) if keep else taken


def _in_place(place: Any) -> Any:
    """The value, and where it was, that comes at ``place(arguments, size)`` in order."""

    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
        size = _size(a, a["dim"])
        if size is None or any(user.target is not operator.getitem for user in node.users):
            return None
        axis = a["dim"] % a["self"].meta["val"].dim()
        wanted = place(a, size)
        parts = [_taken(graph, node, x, axis, wanted, a["keepdim"]) for x in _sorted(graph, node, a["self"], axis)]
        for user in list(node.users):
            user.replace_all_uses_with(parts[user.args[1]])
            graph.erase_node(user)
        return parts[0]

    return made


def _median_of_all(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    flat = call(graph, node, aten.flatten.using_ints, a["self"])
    size = _size({"self": flat}, 0)
    return None if size is None else _taken(graph, node, _sorted(graph, node, flat, 0)[0], 0, (size - 1) // 2, False)


def _quantile(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """Between two neighbours in order, as near to each as the number says."""
    size = _size(a, a["dim"])
    if size is None or a["interpolation"] != "linear" or isinstance(a["q"], fx.Node):
        return None
    axis = a["dim"] % a["self"].meta["val"].dim()
    values, _ = _sorted(graph, node, a["self"], axis)
    place = float(a["q"]) * (size - 1)
    low, share = math.floor(place), place - math.floor(place)
    first = _taken(graph, node, values, axis, low, a["keepdim"])
    if share == 0:
        return first
    apart = call(graph, node, aten.sub.Tensor, _taken(graph, node, values, axis, low + 1, a["keepdim"]), first)
    return call(graph, node, aten.add.Tensor, first, call(graph, node, aten.mul.Tensor, apart, share))


ORDER: dict[str, Any] = {
    "sort.default": _stable(aten.sort.stable),
    "argsort.default": _stable(aten.argsort.stable),
    "topk.default": _top,
    "median.default": _median_of_all,
    "median.dim": _in_place(lambda a, size: (size - 1) // 2),
    "kthvalue.default": _in_place(lambda a, size: a["k"] - 1),
    "quantile.scalar": _quantile,
}
