"""What a call does, traced, in the place of the call."""

from __future__ import annotations

from typing import Any

from torch import fx

from zeropoint.graph import torch_internals as internals

__all__ = ["insert_traced"]


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
