"""Loggers in graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.fx.node import map_arg

from zeropoint.compat.fx.modules import free_name
from zeropoint.compat.numeric_suite.graph.matching import called
from zeropoint.compat.numeric_suite.graph.related import pair_names

# Functions that make one tensor of two, whose inputs are both logged.
_BINARY = pair_names()


class Layer(NamedTuple):
    """A layer as results name it."""

    name: str
    target_type: str


def target_name(gm: nn.Module, node: fx.Node) -> str:
    """What a node calls, in words."""
    if node.op in ("call_function", "call_module"):
        return torch.typename(called(gm, node))
    return str(node.target) if node.op == "call_method" else ""


def node_path(gm: Any, node: fx.Node) -> str | None:
    """The path of the module that a node stands in, if the graph knows it."""
    scopes = getattr(gm, "_node_name_to_scope", None)
    found = None if scopes is None else scopes.get(node.name)
    if found is None and scopes is not None and node.op == "call_module" and node.args:
        return node_path(gm, node.args[0]) if isinstance(node.args[0], fx.Node) else None  # an observer
    return None if found is None else found[0]


def insert_logger(
    gm: nn.Module,
    value: fx.Node,
    logger_cls: Callable[..., nn.Module],
    suffix: str,
    ref_node_name: str,
    model_name: str,
    layer: Layer,
    results_type: str,
    path: str | None,
    place: tuple[int, int] = (0, 0),
    target: str | None = None,
) -> fx.Node:
    """A call of a new logger behind a node; `place` is which argument it is, and where in it."""
    name = free_name(gm, value.name + suffix)
    kind = target_name(gm, value) if target is None else target
    arguments = ref_node_name, value.name, model_name, layer.name, kind, layer.target_type, results_type
    setattr(gm, name, logger_cls(*arguments, place[1], place[0], path))
    return value.graph.create_node("call_module", name, (value,), {})


def inputs_to_log(node: fx.Node) -> list[int]:
    """Which arguments of a node are values: the first, and the second of sums and products of two tensors."""
    if not node.args:
        return []
    is_binary = node.op == "call_function" and getattr(node.target, "__name__", "") in _BINARY
    second = is_binary and len(node.args) > 1 and isinstance(node.args[1], fx.Node) and node.args[1].op != "get_attr"
    return [0, 1] if second else [0]


def with_loggers(
    gm: fx.GraphModule,
    inputs: Mapping[fx.Node, Layer],
    outputs: Mapping[fx.Node, Layer],
    logger_cls: Callable[..., nn.Module],
    model_name: str,
) -> fx.GraphModule:
    """A graph with a logger behind each of `outputs`, and one before each of `inputs`."""
    graph = fx.Graph()
    made: dict[fx.Node, Any] = {}

    def load(argument: Any) -> Any:
        return map_arg(argument, lambda node: made[node])

    for node in gm.graph.nodes:
        path = node_path(gm, node)
        if node in inputs:
            for index in inputs_to_log(node):
                argument = node.args[index]
                parts = argument if isinstance(argument, (list, tuple)) else [argument]
                for within, part in enumerate(p for p in parts if isinstance(p, fx.Node)):
                    made[part] = insert_logger(
                        gm, made[part], logger_cls, "_ns_logger_", node.name, model_name, inputs[node], "node_input",
                        path, (index, within), target_name(gm, part),
                    )  # fmt: skip
        if node.op == "output":
            graph.output(load(node.args[0]))
            continue
        made[node] = graph.node_copy(node, load)
        if node in outputs:
            made[node] = insert_logger(
                gm, made[node], logger_cls, "_ns_logger_", node.name, model_name, outputs[node], "node_output", path
            )
    return fx.GraphModule(gm, graph)
