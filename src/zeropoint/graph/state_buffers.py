"""State: buffers that a model writes to in one call and reads in the next, as the cache of a decoder.

In a graph each is read once, at the beginning (`read_state`), and replaced once, at the end (`update_state`); between
the two nothing writes in place. `update_state` also holds the initial value: that of the buffer when the model was
captured.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

ours = torch.ops.zeropoint
_INITIAL = "_initial"


def read_states(graph: fx.GraphModule, written: set[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Let all readers of these tensors of a graph read copies of them; each copy, with a stand-in for its last value.

    Stand-ins are at the end of the graph, so that who follows writes finds the last value there. `keep_state` puts
    updates in their place.
    """
    stand_ins: dict[fx.Node, fx.Node] = {}
    last = next(node for node in reversed(graph.graph.nodes) if node.op == "output")
    for name in sorted({str(node.target) for node in written}):
        nodes = [node for node in graph.graph.nodes if node.op == "get_attr" and node.target == name]
        with graph.graph.inserting_after(nodes[0]):
            read = graph.graph.call_function(ours.read_state.default, (nodes[0],))
        read.meta.update(nodes[0].meta)
        read.meta.setdefault("val", _attribute(graph, name))
        for node in nodes:
            node.replace_all_uses_with(read, delete_user_cb=lambda user, read=read: user is not read)
        with graph.graph.inserting_before(last):
            stand_ins[read] = graph.graph.call_function(torch.ops.aten.alias.default, (read,))
    return stand_ins


def keep_state(graph: fx.GraphModule, stand_ins: dict[fx.Node, fx.Node]) -> None:
    """At the end of a graph that writes nothing in place: replace its states by what the stand-ins read now."""
    for read, stand_in in stand_ins.items():
        state: Any = read.args[0]
        name = str(state.target).replace(".", "_") + _INITIAL
        graph.register_buffer(name, _attribute(graph, str(state.target)).detach().clone())
        with graph.graph.inserting_before(stand_in):
            initial = graph.graph.get_attr(name)
            graph.graph.call_function(ours.update_state.default, (state, stand_in.args[0], initial))
        graph.graph.erase_node(stand_in)


def reset_state(graph: fx.GraphModule) -> None:
    """Give every state its initial value."""
    with torch.no_grad():
        for state, initial in _states(graph):
            state.copy_(initial)


@contextlib.contextmanager
def kept_state(graph: fx.GraphModule) -> Iterator[None]:
    """Run a graph from its initial state; afterwards its state is what it was before."""
    before = [state.clone() for state, _ in _states(graph)]
    reset_state(graph)
    try:
        yield
    finally:
        for (state, _), value in zip(_states(graph), before):
            state.copy_(value)


def _states(graph: fx.GraphModule) -> list[tuple[Tensor, Tensor]]:
    """Each state with its initial value."""
    updates = (node for node in graph.graph.nodes if node.target is ours.update_state.default)
    return [tuple(_attribute(graph, str(node.args[i].target)) for i in (0, 2)) for node in updates]


def _attribute(graph: fx.GraphModule, name: str) -> Tensor:
    return operator.attrgetter(name)(graph)
