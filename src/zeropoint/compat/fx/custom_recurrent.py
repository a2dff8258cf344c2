"""LSTMs that are quantized as custom modules: their results are a nested tuple, dequantized part by part."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch import fx, nn

from zeropoint.compat.fx.modules import called_module, free_name
from zeropoint.nn import quantizable
from zeropoint.nn.stubs import DeQuantStub


def is_custom_lstm(node: Any, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a node calls an LSTM that is observed part by part."""
    return isinstance(called_module(node, modules), quantizable.LSTM)


def _is_call(node: Any, function: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target is function


def lstm_behind(node: fx.Node, modules: Mapping[str, nn.Module]) -> fx.Node | None:
    """The custom LSTM that a value comes from, through the stubs and tuples of `add_dequantize_stubs`."""
    value: Any = node
    if _is_call(value, tuple):
        value = value.args[0][0]
    if not isinstance(called_module(value, modules), DeQuantStub):
        return None
    value = value.args[0]
    depth = 0
    while _is_call(value, operator.getitem) and depth < 2:
        value, depth = value.args[0], depth + 1
    return value if depth and is_custom_lstm(value, modules) else None


def add_dequantize_stubs(node: fx.Node, model: nn.Module, modules: dict[str, nn.Module]) -> None:
    """A stub behind each part of ``(output, (hidden, cell))``, and the tuples again for whoever takes them."""
    graph = node.graph

    def item(source: fx.Node, index: int, after: fx.Node) -> fx.Node:
        with graph.inserting_after(after):
            return graph.call_function(operator.getitem, (source, index))

    def stub(value: fx.Node) -> fx.Node:
        name = free_name(model, "dequant_stub_")
        setattr(model, name, DeQuantStub())
        modules[name] = getattr(model, name)
        with graph.inserting_after(value):
            return graph.call_module(name, (value,))

    def together(*parts: fx.Node) -> fx.Node:
        with graph.inserting_after(parts[-1]):
            return graph.call_function(tuple, (list(parts),))

    users = list(node.users)
    output = stub(item(node, 0, node))
    states = item(node, 1, output)
    hidden = stub(item(states, 0, states))
    cell = stub(item(states, 1, hidden))
    whole = together(output, together(hidden, cell))
    for user in users:
        user.replace_input_with(node, whole)
    skip_tuples(graph)


def skip_tuples(graph: fx.Graph) -> None:
    """Let who takes a part of a tuple that the graph made take that part itself.

    ``getitem(getitem(tuple([a, tuple([b, c])]), 1), 0)`` is ``b``.
    """
    for node in graph.nodes:
        if not _is_call(node, operator.getitem):
            continue
        value: Any = node
        indices: list[Any] = []
        while _is_call(value, operator.getitem):
            indices.append(value.args[1])
            value = value.args[0]
        while indices and _is_call(value, tuple):
            value = value.args[0][indices.pop()]
        if not indices and isinstance(value, fx.Node) and not _is_call(value, operator.getitem):
            node.replace_all_uses_with(value)
