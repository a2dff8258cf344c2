"""What a graph computes from its parameters alone, computed once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph import torch_internals as internals

__all__ = ["fold_constants"]


def fold_constants(graph: fx.GraphModule, reader: Callable[[fx.Node], bool] = lambda node: True) -> bool:
    """Let tensors that depend on parameters only, such as a weight that is reshaped, be parameters; in place.

    Args:
        reader: whether a node needs what it reads to be a parameter; others read what is computed.

    Returns:
        Whether there were any.
    """
    folded = False
    values: dict[fx.Node, Any] = {}
    for node in list(graph.graph.nodes):
        if node.op == "get_attr":
            values[node] = operator.attrgetter(str(node.target))(graph)
        elif _is_foldable(node) and all(read in values for read in node.all_input_nodes):
            args, kwargs = internals.map_nodes((node.args, node.kwargs), values.__getitem__)
            with torch.no_grad():
                values[node] = node.target(*args, **kwargs)
            if isinstance(values[node], Tensor) and any(reader(user) for user in node.users):
                _replace(graph, node, values)
                folded = True
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return folded


def _is_foldable(node: fx.Node) -> bool:
    """Whether a node gives the same for the same inputs, and has some."""
    if node.op != "call_function" or not node.all_input_nodes:
        return False
    if node.target is operator.getitem:
        return True
    tags = getattr(node.target, "tags", ())
    return internals.is_operator(node.target) and not node.is_impure() and torch.Tag.nondeterministic_seeded not in tags


def _replace(graph: fx.GraphModule, node: fx.Node, values: dict[fx.Node, Any]) -> None:
    name = f"{node.name}_folded"
    graph.register_buffer(name, values[node].detach())
    with graph.graph.inserting_before(node):
        made = graph.graph.get_attr(name)
    made.meta.update(node.meta)
    values[made] = values[node]
    node.replace_all_uses_with(made)
