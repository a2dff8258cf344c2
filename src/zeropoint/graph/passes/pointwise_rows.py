"""Convolutions over sequences whose window is one step, as linear layers, which have a range for each step.

A convolution on integers has one range for all that it gets, as each result is made of several steps. With a window of
one step it is a linear layer on ``(N, steps, channels)``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.fold_batch_norm import add_parameter
from zeropoint.graph.provenance import IDENTITY, ORIGIN, origin
from zeropoint.operators.node import arguments, aten_name, parameter

aten = torch.ops.aten


def rows_of_pointwise(graph: fx.GraphModule, paths: Collection[str]) -> int:
    """Make linear layers of the convolutions with a window of one step in the modules at `paths`; how many.

    Example:
        >>> from torch import nn
        >>> from zeropoint.graph.workflow import float_graph
        >>> model, x = nn.Sequential(nn.Conv1d(4, 8, 1)).eval(), torch.randn(1, 4, 5)
        >>> graph = float_graph(model, (x,))
        >>> rows_of_pointwise(graph, ["0"])
        1
        >>> torch.allclose(graph(x), model(x), atol=1e-6)
        True
    """
    found = [node for node in graph.graph.nodes if origin(node).path in paths and _is_pointwise(graph, node)]
    for node in found:
        _replace(graph, node)
    if found:
        graph.graph.eliminate_dead_code()
        graph.graph.lint()
        graph.recompile()
    return len(found)


def _is_pointwise(graph: fx.GraphModule, node: fx.Node) -> bool:
    if aten_name(node) != "conv1d.default":
        return False
    a = arguments(node)
    weight, value = parameter(graph, a["weight"]), node.meta.get("val")
    if weight is None or not isinstance(value, torch.Tensor) or value.dim() != 3 or weight.shape[2] != 1:
        return False
    ones = all(part == 1 for name in ("stride", "groups") for part in _numbers(a[name]))
    return ones and not any(_numbers(a["padding"]))


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _replace(graph: fx.GraphModule, node: fx.Node) -> None:
    a = arguments(node)
    x: Any = a["input"]
    stored = parameter(graph, a["weight"])
    assert stored is not None
    weight = add_parameter(graph, f"{a['weight'].target}_of_rows", stored.detach().squeeze(2), node)
    with graph.graph.inserting_before(node):
        rows = x.args[0] if _turns(x) else _turned(graph, x, node)
        made = graph.graph.call_function(aten.linear.default, (rows, weight, a["bias"]))
        made.meta.update({ORIGIN: origin(node), "val": node.meta["val"].transpose(1, 2)})
    for user in [user for user in node.users if _turns(user)]:
        user.replace_all_uses_with(made)
        graph.graph.erase_node(user)
    if node.users:
        with graph.graph.inserting_before(node):
            back = _turned(graph, made, node)
        back.meta.update({key: node.meta[key] for key in ("val", IDENTITY) if key in node.meta})
        node.replace_all_uses_with(back)
    graph.graph.erase_node(node)


def _turned(graph: fx.GraphModule, value: fx.Node, layer: fx.Node) -> fx.Node:
    made = graph.graph.call_function(aten.transpose.int, (value, 1, 2))
    made.meta[ORIGIN] = origin(layer)
    if isinstance(value.meta.get("val"), torch.Tensor):
        made.meta["val"] = value.meta["val"].transpose(1, 2)
    return made


def _turns(node: Any) -> bool:
    """Whether a node exchanges steps and channels."""
    name = aten_name(node) if isinstance(node, fx.Node) else ""
    if name == "transpose.int":
        return sorted(axis % 3 for axis in node.args[1:3]) == [1, 2]
    return name == "permute.default" and [axis % 3 for axis in node.args[1]] == [0, 2, 1]
