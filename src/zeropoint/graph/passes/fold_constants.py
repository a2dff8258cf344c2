"""What a graph computes from its parameters and numbers alone, computed once."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph import torch_internals as internals
from zeropoint.operators.node import arguments, aten_name

# Operators that take a tensor for its dtype alone, and what they fill the result with.
_FILLED: dict[str, Any] = {"new_zeros.default": 0, "new_ones.default": 1, "new_full.default": "fill_value"}


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
        elif (filled := _filled(node)) is not None:
            values[node] = filled
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


def _filled(node: fx.Node) -> Tensor | None:
    """A result that is the same number everywhere, if its sizes are numbers in the call.

    Those of an example's value are not asked: where a pass made the node, they may be the example's alone.
    """
    value, number = node.meta.get("val"), _FILLED.get(aten_name(node) or "")
    if number is None or not isinstance(value, Tensor):
        return None
    given = arguments(node)
    number, sizes = given[number] if isinstance(number, str) else number, given["size"]
    if not isinstance(number, (bool, int, float)) or not all(type(size) is int for size in sizes):
        return None
    return torch.full(list(sizes), number, dtype=value.dtype)


def _replace(graph: fx.GraphModule, node: fx.Node, values: dict[fx.Node, Any]) -> None:
    name = f"{node.name}_folded"
    graph.register_buffer(name, values[node].detach())
    with graph.graph.inserting_before(node):
        made = graph.graph.get_attr(name)
    made.meta.update(node.meta)
    values[made] = values[node]
    node.replace_all_uses_with(made)
