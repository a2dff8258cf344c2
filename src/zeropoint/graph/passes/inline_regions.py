"""Regions of a model that are graphs of their own, as part of the graph around them: both sides of a `torch.cond`, and
what runs with autocast or gradients switched.

A condition on a tensor chooses between two results, which are both computed: then all layers see all data, and a
program needs no branches. Inference on the CPU in float32 is the same without the switches; what autocast would do in
bfloat16 on the CPU is done in float32, too.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.passes.nodes import call
from zeropoint.operators.elementwise import COMPARISONS

# Where the graph of a region stands among the arguments; what it is called with is behind it.
_COMPARISONS = {getattr(operator, name): getattr(torch.ops.aten, name).Tensor for name in COMPARISONS}
_GRAPH_AT = {"wrap_with_autocast": 4, "wrap_with_set_grad_enabled": 1}


def inline_regions(graph: fx.GraphModule) -> None:
    """Put the nodes of regions in the place of their calls, in place."""
    found = [node for node in graph.graph.nodes if internals.region_name(node.target) in (*_GRAPH_AT, "cond")]
    for node in found:
        name = internals.region_name(node.target)
        if name == "cond":
            _inline_both(graph, node)
            continue
        place = _GRAPH_AT[name]
        _replace(graph, node, _copied(graph, node, _inner(graph, node.args[place]), node.args[place + 1 :]))
    if found:
        graph.graph.eliminate_dead_code()
        graph.delete_all_unused_submodules()
        graph.recompile()


def _inner(graph: fx.GraphModule, node: Any) -> fx.GraphModule:
    """The graph of a region, with those inside it inlined."""
    inner: Any = graph
    for part in str(node.target).split("."):
        inner = getattr(inner, part)
    inline_regions(inner)
    return inner


def _inline_both(graph: fx.GraphModule, node: fx.Node) -> None:
    """Both sides of a condition, and a choice between their results."""
    condition, yes, no, given = node.args[:4]
    made = node.meta.get("val")
    with graph.graph.inserting_before(node):
        condition = _of_sizes(graph.graph, condition)
    if condition is None or not all(isinstance(part, torch.Tensor) for part in (made or (None,))):
        return
    sides = [_copied(graph, node, _inner(graph, side), given) for side in (yes, no)]
    with graph.graph.inserting_before(node):
        chosen = []
        for value, *pair in zip(made, *sides):
            chosen.append(graph.graph.call_function(torch.ops.aten.where.self, (condition, *pair)))
            chosen[-1].meta.update(node.meta, val=value)
    _replace(graph, node, chosen)


def _of_sizes(graph: fx.Graph, condition: Any) -> fx.Node | None:
    """A condition as a tensor: one that compares sizes compares tensors of them; None for others."""
    if not isinstance(condition, fx.Node) or isinstance(condition.meta.get("val"), torch.Tensor):
        return condition if isinstance(condition, fx.Node) else None
    compare = _COMPARISONS.get(condition.target)
    if compare is None:
        return None
    numbers = []
    for value in condition.args:
        number: Any = value.meta.get("val") if isinstance(value, fx.Node) else value
        numbers.append(graph.call_function(torch.ops.aten.scalar_tensor.default, (value,), {"dtype": torch.int64}))
        if not isinstance(number, (int, torch.SymInt)):
            return None
        numbers[-1].meta.update(condition.meta, val=torch.empty([], dtype=torch.int64, device="meta"))
    return call(graph, condition, compare, *numbers)


def _copied(graph: fx.GraphModule, call: fx.Node, inner: fx.GraphModule, given: Any) -> Any:
    """The results of an inner graph, whose nodes are copied in front of its call."""
    inputs = iter(given)
    values: dict[fx.Node, Any] = {}
    results: Any = ()
    with graph.graph.inserting_before(call):
        for node in inner.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(inputs)
            elif node.op == "output":
                results = internals.map_nodes(node.args[0], values.__getitem__)
            else:
                values[node] = graph.graph.node_copy(node, values.__getitem__)
                if node.op == "get_attr":
                    values[node].target = _moved(graph, inner, str(node.target))
    return results


def _replace(graph: fx.GraphModule, call: fx.Node, results: Any) -> None:
    """Let those who read the results of a region read these."""
    for user in list(call.users):
        assert user.target is operator.getitem, user
        user.replace_all_uses_with(results[user.args[1]])
        graph.graph.erase_node(user)
    graph.graph.erase_node(call)


def _moved(graph: fx.GraphModule, inner: fx.GraphModule, name: str) -> str:
    """The name that something an inner graph refers to has in the outer one, which gets it if it has it not."""
    value, own = getattr(inner, name), name
    while hasattr(graph, own) and getattr(graph, own) is not value:
        own += "_"
    setattr(graph, own, value)
    return own
