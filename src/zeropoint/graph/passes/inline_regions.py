"""Regions of a model that run with autocast or gradients switched, as part of the graph around them.

torch.export keeps what is inside ``with torch.autocast(...)`` or ``with torch.set_grad_enabled(...)`` as a graph of its
own. Inference on the CPU in float32 is the same without the switch, unless autocast is on for the CPU.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from zeropoint.graph import torch_internals as internals

__all__ = ["inline_regions"]

# Where the graph of a region stands among the arguments; what it is called with is behind it.
_GRAPH_AT = {"wrap_with_autocast": 4, "wrap_with_set_grad_enabled": 1}


def inline_regions(graph: fx.GraphModule) -> None:
    """Put the nodes of regions in the place of their calls, in place.

    Raises:
        NotImplementedError: for a region that computes in another dtype.
    """
    found = [node for node in graph.graph.nodes if internals.region_name(node.target) in _GRAPH_AT]
    for node in found:
        name = internals.region_name(node.target)
        if name == "wrap_with_autocast":
            _require_float32(*node.args[:3])
        place = _GRAPH_AT[name]
        inner: Any = graph
        for part in str(node.args[place].target).split("."):
            inner = getattr(inner, part)
        inline_regions(inner)
        _inline(graph, node, inner, node.args[place + 1 :])
    if found:
        graph.graph.eliminate_dead_code()
        graph.delete_all_unused_submodules()
        graph.recompile()


def _require_float32(device: str, dtype: torch.dtype, enabled: bool) -> None:
    if enabled and device == "cpu":
        raise NotImplementedError(
            f"forward enables autocast to {dtype}, but only float32 models can be quantized. Remove torch.autocast "
            "from forward, or pass enabled=False"
        )


def _inline(graph: fx.GraphModule, call: fx.Node, inner: fx.GraphModule, given: Any) -> None:
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
