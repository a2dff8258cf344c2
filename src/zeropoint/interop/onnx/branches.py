"""If of an ONNX file: its two graphs are models of their own, with what they read from outside as their inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper

__all__ = ["BRANCHES", "branch", "with_outer_inputs"]

BRANCHES = ("then_branch", "else_branch")


def _graphs(node: NodeProto) -> list[GraphProto]:
    return [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]


def _outer(graph: GraphProto) -> list[str]:
    """Names that a graph reads and does not define."""
    inside = {"", *(t.name for t in graph.initializer), *(v.name for v in graph.input)}
    found: dict[str, None] = {}
    for node in graph.node:
        names = [*node.input, *(name for inner in _graphs(node) for name in _outer(inner))]
        found.update(dict.fromkeys(name for name in names if name not in inside))
        inside.update(node.output)
    found.update(dict.fromkeys(value.name for value in graph.output if value.name not in inside))
    return list(found)


def with_outer_inputs(nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """The nodes; each If has what its graphs read behind its condition."""
    made = []
    for node in nodes:
        if node.op_type == "If":
            copy = NodeProto()
            copy.CopyFrom(node)
            names = dict.fromkeys(name for graph in _graphs(node) for name in _outer(graph))
            copy.input.extend(names)
            node = copy
        made.append(node)
    return made


def branch(node: NodeProto, name: str, opsets: Any) -> ModelProto:
    """One graph of an If, whose inputs are those of the node behind the condition."""
    graph = GraphProto()
    graph.CopyFrom(next(a.g for a in node.attribute if a.name == name))
    del graph.input[:]
    graph.input.extend(helper.make_tensor_value_info(given, 1, None) for given in dict.fromkeys(node.input[1:]))
    return helper.make_model(graph, opset_imports=list(opsets))
