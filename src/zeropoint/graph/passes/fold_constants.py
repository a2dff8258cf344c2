"""What a graph computes from its parameters and numbers alone, computed once."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph import torch_internals as internals


def fold_constants(graph: fx.GraphModule) -> None:
    """Let tensors that depend on parameters and numbers only be parameters, in place: a weight that is reshaped or
    normalized, a mask of a fixed size."""
    values: dict[fx.Node, Any] = {}
    for node in list(graph.graph.nodes):
        if node.op == "get_attr":
            values[node] = operator.attrgetter(str(node.target))(graph)
        elif _is_foldable(node) and all(read in values for read in node.all_input_nodes):
            args, kwargs = internals.map_nodes((node.args, node.kwargs), values.__getitem__)
            with torch.no_grad():
                values[node] = node.target(*args, **kwargs)
            if isinstance(values[node], Tensor):
                _replace(graph, node, values)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _is_foldable(node: fx.Node) -> bool:
    """Whether a node gives the same whenever it is called with the same."""
    if node.op != "call_function" or not (node.target is operator.getitem or internals.is_operator(node.target)):
        return False
    tags = getattr(node.target, "tags", ())
    is_filled = not str(getattr(node.target, "_schema", "")).startswith(("aten::empty", "aten::new_empty"))
    return is_filled and not node.is_impure() and torch.Tag.nondeterministic_seeded not in tags


def _replace(graph: fx.GraphModule, node: fx.Node, values: dict[fx.Node, Any]) -> None:
    name = f"{node.name}_folded"
    graph.register_buffer(name, values[node].detach())
    with graph.graph.inserting_before(node):
        made = graph.graph.get_attr(name)
    made.meta.update(node.meta)
    values[made] = values[node]
    node.replace_all_uses_with(made)
