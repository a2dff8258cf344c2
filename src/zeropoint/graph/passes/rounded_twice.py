"""Linear layers on what rows are rounded to and on what that leaves, so that activations have 16 bits.

``x = k s + r`` with ``s = max|x| / 127`` for each row and integers ``k``: in 8 bits with ranges of rows, the layer on
``k s`` has no rounding error but that of its weight, and the layer on ``r`` one that is 254 times smaller than that on
``x``. Two products on integers take less time than one on floats. In float the sum of both is the layer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from zeropoint.graph.provenance import IDENTITY, ORIGIN, STAYS_FLOAT, origin
from zeropoint.operators.node import arguments, aten_name

aten = torch.ops.aten
_STEPS = 127.0
_TINY = 1e-30
_WHY = "it takes apart what a layer will round"


def round_twice(graph: fx.GraphModule, paths: Collection[str]) -> int:
    """Make two layers of each linear layer in the modules at `paths`; how many there were.

    Example:
        >>> from torch import nn
        >>> from zeropoint.graph.workflow import float_graph
        >>> model, x = nn.Sequential(nn.Linear(4, 8)).eval(), torch.randn(3, 4)
        >>> graph = float_graph(model, (x,))
        >>> round_twice(graph, ["0"])
        1
        >>> torch.allclose(graph(x), model(x), atol=1e-6)
        True
    """
    found = [n for n in graph.graph.nodes if origin(n).path in paths and aten_name(n) == "linear.default"]
    parts: dict[fx.Node, tuple[fx.Node, fx.Node]] = {}
    for node in found:
        a = arguments(node)
        x: Any = a["input"]
        if x not in parts:
            parts[x] = _parts(graph, x, node)
        with graph.graph.inserting_before(node):
            large = _call(graph, aten.linear.default, node, parts[x][0], a["weight"], a["bias"])
            small = _call(graph, aten.linear.default, node, parts[x][1], a["weight"], None)
            made = _call(graph, aten.add.Tensor, node, large, small)
        for part in (large, small, made):
            part.meta["val"] = node.meta.get("val")
        made.meta[STAYS_FLOAT] = _WHY
        if IDENTITY in node.meta:
            made.meta[IDENTITY] = node.meta[IDENTITY]
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)
    if found:
        graph.graph.lint()
        graph.recompile()
    return len(found)


def _parts(graph: fx.GraphModule, x: fx.Node, layer: fx.Node) -> tuple[fx.Node, fx.Node]:
    """What the rows of a value are rounded to, and the rest."""
    with graph.graph.inserting_before(layer):
        largest = _call(graph, aten.amax.default, layer, _call(graph, aten.abs.default, layer, x), [-1], True)
        step = _call(graph, aten.clamp_min.default, layer, _call(graph, aten.div.Tensor, layer, largest, _STEPS), _TINY)
        steps = _call(graph, aten.round.default, layer, _call(graph, aten.div.Tensor, layer, x, step))
        large = _call(graph, aten.mul.Tensor, layer, steps, step)
        small = _call(graph, aten.sub.Tensor, layer, x, large)
    return large, small


def _call(graph: fx.GraphModule, target: Any, layer: fx.Node, *args: Any) -> fx.Node:
    made = graph.graph.call_function(target, args)
    made.meta[ORIGIN] = origin(layer)
    if target is not aten.linear.default:
        made.meta[STAYS_FLOAT] = _WHY
        values = [arg.meta.get("val") if isinstance(arg, fx.Node) else arg for arg in args]
        if all(value is not None for value in values):
            made.meta["val"] = target(*values)
    return made
