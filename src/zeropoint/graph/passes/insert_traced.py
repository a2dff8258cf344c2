"""What a call does, traced, in the place of the call."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx

from zeropoint.graph import torch_internals as internals


def insert_traced(graph: fx.GraphModule, node: fx.Node, traced: fx.GraphModule, given: list[fx.Node]) -> Any:
    """Put the calls of `traced`, whose inputs are `given`, before `node`; the nodes of its results."""
    made: dict[fx.Node, fx.Node] = dict(zip((n for n in traced.graph.nodes if n.op == "placeholder"), given))
    known = {k: node.meta[k] for k in ("origin", "line") if k in node.meta}
    with graph.graph.inserting_before(node):
        for step in traced.graph.nodes:
            if step.op == "get_attr":  # a constant that the call makes
                name = f"{node.name}_{step.target}"
                graph.register_buffer(name, getattr(traced, str(step.target)))
                made[step] = graph.graph.get_attr(name)
                made[step].meta.update(step.meta)
            elif step.op == "call_function":
                made[step] = graph.graph.node_copy(step, made.__getitem__)
                made[step].meta.update(known)
    return internals.map_nodes(traced.graph.output_node().args[0], made.__getitem__)


def take_apart(graph: fx.GraphModule, node: fx.Node, function: Callable[..., Any], trace: Callable[..., Any]) -> bool:
    """Put the operators that `function` calls in the place of `node`; not where `trace` answers None."""
    reads = list(dict.fromkeys(node.all_input_nodes))

    def call(*values: Any) -> Any:
        known = dict(zip(reads, values))
        args, kwargs = internals.map_nodes((node.args, node.kwargs), known.__getitem__)
        return function(*args, **kwargs)

    traced = trace(call, [read.meta["val"] for read in reads])
    several = isinstance(node.meta["val"], (tuple, list))
    if traced is None or isinstance(traced.graph.output_node().args[0], (tuple, list)) != several:
        return False
    if several and any(user.target is not operator.getitem for user in node.users):
        return False
    made = insert_traced(graph, node, traced, reads)
    if several:
        for user in list(node.users):
            user.replace_all_uses_with(made[user.args[1]])
            graph.graph.erase_node(user)
    else:
        node.replace_all_uses_with(made)
    graph.graph.erase_node(node)
    return True
