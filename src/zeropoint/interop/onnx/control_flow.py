"""If, Loop and Scan of an ONNX file: their graphs are models of their own, run one after the other.

What such a graph reads from outside is an input of the node here. While a model is captured for a program, conditions
and numbers of turns must follow from sizes and constants; loops are then written out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper
from torch import nn

from zeropoint.interop.onnx.imported_value import Constant, Numbers, as_tensor
from zeropoint.interop.onnx.node import NotRead, broken

_MOST_TURNS = 10_000  # of all loops in one call of a model, those inside others too
_LEAST = {"If": 1, "Loop": 2, "Scan": 1}  # inputs


class _Turns(threading.local):
    left = _MOST_TURNS


_TURNS = _Turns()


def begin_turns() -> None:
    """A model is called: its loops have all their turns."""
    _TURNS.left = _MOST_TURNS


def _take_turn(kind: str) -> None:
    if not _TURNS.left:
        raise NotRead(f"from_onnx: {kind}: more than {_MOST_TURNS} turns of all loops are not supported")
    _TURNS.left -= 1


def is_control_flow(node: NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in _KINDS


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


def _all_outer(node: NodeProto) -> list[str]:
    return list(dict.fromkeys(name for graph in _graphs(node) for name in _outer(graph)))


def with_outer_inputs(nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """The nodes; those with graphs have what these read behind their own inputs."""
    made = []
    for node in nodes:
        if is_control_flow(node):
            copy = NodeProto()
            copy.CopyFrom(node)
            copy.input.extend(_all_outer(node))
            node = copy
        made.append(node)
    return made


def control_flow(node: NodeProto, opsets: Any) -> nn.Module:
    """The module of a node with graphs, as `with_outer_inputs` gives it."""
    return _KINDS[node.op_type](node, opsets)


def _chosen(value: Any) -> bool:
    """A condition as Python has it."""
    if isinstance(value, (Constant, Numbers)):
        return bool(value.array.reshape(-1)[0])
    try:
        return bool(as_tensor(value))
    except RuntimeError as error:  # while the model is captured for a program
        raise NotRead(
            "from_onnx: the condition of an If or a Loop depends on the values of an input. Programs and to_int8 take "
            "conditions that follow from sizes and constants: make that input a constant of the file"
        ) from error


class _Inner(nn.Module):
    """A node with graphs, and these as models."""

    def __init__(self, node: NodeProto, opsets: Any) -> None:
        super().__init__()
        self.outer = _all_outer(node)
        self.own = len(node.input) - len(self.outer)
        if self.own < _LEAST[node.op_type]:
            raise broken(f"{node.op_type} {node.name!r} has {self.own} inputs, and needs {_LEAST[node.op_type]}")
        self.kind = node.op_type
        self.attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.HasField("g")}
        self.opsets = list(opsets)

    def model(self, node: NodeProto, name: str) -> Any:
        from zeropoint.interop.onnx.model import OnnxModel

        found = next((a.g for a in node.attribute if a.name == name), None)
        if found is None:
            raise broken(f"{node.op_type} {node.name!r} has no {name}")
        graph = GraphProto()
        graph.CopyFrom(found)
        graph.input.extend(helper.make_tensor_value_info(outside, 1, None) for outside in self.outer)
        made: ModelProto = helper.make_model(graph, opset_imports=self.opsets)
        return OnnxModel(made)

    def run(self, model: Any, given: list[Any], inputs: list[Any]) -> list[Any]:
        """What a graph gives, from values for its own inputs, and those of the node for what it reads outside."""
        values = [*given, *inputs[self.own :]]
        if len(values) != len(model.input_names):
            raise broken(f"the graph of a {self.kind} takes {len(model.input_names) - len(self.outer)} inputs")
        return list(model.run(dict(zip(model.input_names, values))))


class _If(_Inner):
    """One of two graphs, by a condition."""

    def __init__(self, node: NodeProto, opsets: Any) -> None:
        super().__init__(node, opsets)
        self.then, self.other = self.model(node, "then_branch"), self.model(node, "else_branch")

    def forward(self, inputs: list[Any]) -> Any:
        return self.run(self.then if _chosen(inputs[0]) else self.other, [], inputs)


class _Loop(_Inner):
    """A graph, so many times or as long as it says; what it gives beside its state is put together."""

    def __init__(self, node: NodeProto, opsets: Any) -> None:
        super().__init__(node, opsets)
        self.body = self.model(node, "body")

    def forward(self, inputs: list[Any]) -> Any:
        given = [*inputs[: self.own], None, None]
        turns, goes_on = given[0], given[1] is None or _chosen(given[1])
        most = _MOST_TURNS + 1 if turns is None else _number(turns)
        state, kept, done = inputs[2 : self.own], [], 0
        while goes_on and done < most:
            _take_turn(self.kind)
            turn = Numbers(np.asarray(done, dtype=object), torch.int64)
            going = Numbers(np.asarray(True, dtype=object), torch.bool)
            condition, *results = self.run(self.body, [turn, going, *state], inputs)
            state, more = results[: len(state)], results[len(state) :]
            kept.append(more)
            goes_on, done = _chosen(condition), done + 1
        columns = zip(*kept)
        if not kept and len(self.body.output_names) > 1 + len(state):
            raise NotRead("from_onnx: Loop: no turn, and results of turns, are not supported together")
        return [*state, *(torch.stack([as_tensor(value) for value in column]) for column in columns)]


class _Scan(_Inner):
    """A graph for each place along an axis of its inputs."""

    def __init__(self, node: NodeProto, opsets: Any) -> None:
        super().__init__(node, opsets)
        self.body = self.model(node, "body")
        self.count = int(self.attributes.get("num_scan_inputs", 0))
        version = next((entry.version for entry in self.opsets if entry.domain in ("", "ai.onnx")), 1)
        if version < 9:
            raise NotRead("from_onnx: Scan of opset 8 is not supported: convert the file to a later opset")

    def forward(self, inputs: list[Any]) -> Any:
        own = inputs[: self.own]
        state, read = own[: self.own - self.count], [as_tensor(value) for value in own[self.own - self.count :]]
        axes = list(self.attributes.get("scan_input_axes", [0] * len(read)))
        backwards = list(self.attributes.get("scan_input_directions", [0] * len(read)))
        if not read:
            raise broken("a Scan has nothing to go over")
        turns = read[0].shape[axes[0]]
        if not isinstance(turns, int) or not 0 < turns <= _MOST_TURNS:
            raise NotRead(f"from_onnx: Scan over {turns} places is not supported: 1 to {_MOST_TURNS}, fixed, are")
        kept = []
        for turn in range(turns):
            _take_turn(self.kind)
            parts = [x.select(a, turns - 1 - turn if back else turn) for x, a, back in zip(read, axes, backwards)]
            results = self.run(self.body, [*state, *parts], inputs)
            state, more = results[: len(state)], results[len(state) :]
            kept.append(more)
        columns = list(zip(*kept))
        turned = list(self.attributes.get("scan_output_directions", [0] * len(columns)))
        along = list(self.attributes.get("scan_output_axes", [0] * len(columns)))
        return [*state, *(_stacked(*column) for column in zip(columns, turned, along))]


def _stacked(values: Any, backwards: int, axis: int) -> Any:
    tensors = [as_tensor(value) for value in values]
    return torch.stack(tensors[::-1] if backwards else tensors, axis)


def _number(value: Any) -> int:
    if isinstance(value, (Constant, Numbers)):
        number = value.array.reshape(-1)[0]
        if isinstance(number, torch.SymInt):
            raise NotRead("from_onnx: Loop: its number of turns is a size that is free: fix it with dynamic_shapes")
        return int(number)
    try:
        return int(as_tensor(value))
    except RuntimeError as error:
        raise NotRead("from_onnx: Loop: its number of turns depends on the values of an input") from error


_KINDS: dict[str, type[_Inner]] = {"If": _If, "Loop": _Loop, "Scan": _Scan}
