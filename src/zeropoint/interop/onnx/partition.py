"""ONNX files of integers for our execution provider: parts of the graph become programs, the rest stays as it was.

Nodes are put into an order in which those that we can read come together. Every run of them that computes on integers
is compiled to a program, which one EPContext node holds. If a run has no program, halving it finds the nodes to blame,
and runs are made again without them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, NodeProto, helper, shape_inference

from zeropoint.compiler.compiler import compile
from zeropoint.compiler.errors import Unsupported
from zeropoint.graph.from_qdq import NothingQuantized, float_model, from_qdq
from zeropoint.interop.onnx.context import DOMAIN, context_node
from zeropoint.interop.onnx.control_flow import is_control_flow, with_outer_inputs
from zeropoint.interop.onnx.files import read_model
from zeropoint.interop.onnx.graph_reading import given_inputs, is_readable, needed, ordered, sizes_of, zeros
from zeropoint.interop.onnx.model import OnnxModel
from zeropoint.runtime import Program

_CANNOT = (NotImplementedError, ValueError, TypeError, RuntimeError)  # what reading and compiling a part may raise
_REASONS = 3  # that a message has


class OnnxFile:
    """A file and what its inputs are; its operators may be any."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.proto = read_model(path)
        self.given = given_inputs(self.proto.graph)
        self.input_names = [value.name for value in self.given]
        self.input_shapes = [sizes_of(value) for value in self.given]


@dataclass(frozen=True)
class _Part:
    """Nodes by their numbers, what they read from other nodes, and what these read of them."""

    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class _Graph:
    """The nodes of a file.

    Args:
        values: of an example, for every value that an operator computes.
        larger: the same where all free sizes of the inputs are twice as large; empty if that cannot be run.
    """

    def __init__(self, proto: ModelProto, values: Mapping[str, Any], larger: Mapping[str, Any]) -> None:
        self.proto, self.values, self.larger = proto, values, larger
        self.results = {value.name for value in proto.graph.output}
        self.protos = _needed(proto.graph.node, self.results)
        self.nodes = with_outer_inputs(self.protos)
        self.stored = {tensor.name: tensor for tensor in proto.graph.initializer}
        self.constants: dict[str, int] = {}  # computed of stored tensors alone: by which node
        for number, node in enumerate(self.nodes):
            if all(name in self.stored or name in self.constants for name in node.input if name):
                self.constants.update(dict.fromkeys(node.output, number))
        computed = set(self.constants.values())
        self.moving = [number for number in range(len(self.nodes)) if number not in computed]
        self.sizes = _sizes(proto)

    def runs(self, refused: Collection[int]) -> list[list[int]]:
        """Runs of nodes that can be read, each as long as it can be."""
        waiting = self.moving
        known = {"", *self.stored, *self.constants, *(value.name for value in self.proto.graph.input)}
        found: list[list[int]] = []
        readable = True
        while waiting:
            run = []
            for number in waiting:
                node = self.nodes[number]
                taken = is_readable(node) and not is_control_flow(node) and number not in refused
                if taken == readable and known.issuperset(node.input):
                    run.append(number)
                    known.update(node.output)
            if readable and run:
                found.append(run)
            waiting = [number for number in waiting if number not in set(run)]
            readable = not readable
        return found

    def part(self, numbers: Sequence[int]) -> _Part:
        chosen = set(numbers)
        nodes = [self.nodes[number] for number in numbers]
        read = {name for n in self.moving if n not in chosen for name in self.nodes[n].input} | self.results
        made = [name for node in nodes for name in node.output if name]
        known = {"", *made, *self.stored, *self.constants}
        given = dict.fromkeys(name for node in nodes for name in node.input if name not in known)
        return _Part(tuple(numbers), tuple(given), tuple(name for name in made if name in read))

    def program(self, part: _Part, may_be_float: bool = False) -> Program:
        """The program of a part; the error says why there is none."""
        odd = [name for name in (*part.inputs, *part.outputs) if not isinstance(self.values.get(name), np.ndarray)]
        if odd or not part.inputs:
            raise Unsupported(f"{odd[0]!r} is not a tensor" if odd else "it has no inputs")
        model = OnnxModel(self._model(part))
        example = tuple(torch.from_numpy(np.array(self.values[name])) for name in part.inputs)
        quantized = float_model(model, example) if may_be_float else from_qdq(model, example)
        program = compile(quantized, example)
        for name, (_, dtype, shape) in zip(part.inputs, program.inputs, strict=True):
            self._require_dtype(name, dtype)
            self._require_free(name, shape)
        for name, (_, dtype, _) in zip(part.outputs, program.outputs, strict=True):
            self._require_dtype(name, dtype)
        return program

    def _model(self, part: _Part) -> ModelProto:
        """A model of a part alone, with the constants that it reads."""
        numbers = sorted({*self.constants.values(), *part.nodes})
        nodes = _needed([self.protos[number] for number in numbers], set(part.outputs))
        read = {name for node in with_outer_inputs(nodes) for name in node.input}
        stored = [tensor for name, tensor in self.stored.items() if name in read]
        inputs, outputs = ([self.value(name) for name in names] for names in (part.inputs, part.outputs))
        graph = helper.make_graph(nodes, "part", inputs, outputs, stored)
        return helper.make_model(graph, opset_imports=self.proto.opset_import, ir_version=self.proto.ir_version)

    def value(self, name: str) -> Any:
        value = self.values[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)

    def _require_free(self, name: str, shape: Sequence[int | str]) -> None:
        """A program must not fix a size that is free in the file."""
        said = self.sizes.get(name) or [None] * len(shape)
        other = np.shape(self.larger[name]) if name in self.larger else (None,) * len(shape)
        for axis, (size, given) in enumerate(zip(shape, said)):
            if isinstance(size, int) and not isinstance(given, int) and size != other[axis]:
                raise Unsupported(
                    f"its program has the size {size} of {name!r} along axis {axis}, which the file does not fix; "
                    "example inputs with sizes other than 0 and 1 may keep it free"
                )

    def _require_dtype(self, name: str, dtype: str) -> None:
        found = self.values[name].dtype
        if found != np.dtype(dtype):
            raise Unsupported(f"{name!r} would be {dtype}; in the file it is {found}")


def with_programs(path: str | os.PathLike[str], example_inputs: Any = None) -> ModelProto:
    """The model of an ONNX file, its parts that compute on integers as nodes for our execution provider.

    Args:
        path: an ONNX file with quantized operators.
        example_inputs: tensors for its inputs, as a tuple or by name. By default, zeros of the sizes in the file, and
            2 for dynamic sizes.

    Raises:
        Unsupported: if no part can be compiled; the message says why.
    """
    file = OnnxFile(path)
    graph = _Graph(file.proto, *_values(file, _given(file, example_inputs)))
    programs, reasons = _programs(graph)
    if not programs:
        why = "; ".join(reasons[:_REASONS]) or "nothing in the file is computed on integers"
        raise Unsupported(f"export_onnx: no part of {Path(path).name} becomes a program: {why}")
    return _rewritten(graph, programs)


def _given(file: OnnxFile, example_inputs: Any) -> dict[str, Any]:
    example = zeros(file.given) if example_inputs is None else example_inputs
    if not isinstance(example, Mapping):
        example = dict(zip(file.input_names, example if isinstance(example, (tuple, list)) else (example,)))
    if set(example) != set(file.input_names):
        raise ValueError(
            f"export_onnx: the file takes {', '.join(file.input_names)}, got {', '.join(example) or 'none'}"
        )
    return {name: np.asarray(value) for name, value in example.items()}


def _values(file: OnnxFile, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Everything that operators compute from an example, as ONNX Runtime does it; and from a larger one."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError("export_onnx needs onnxruntime to take a file apart: pip install onnxruntime") from error
    proto = ModelProto()
    proto.CopyFrom(file.proto)
    results = {value.name for value in proto.graph.output}
    made = dict.fromkeys(name for node in proto.graph.node for name in node.output if name and name not in results)
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in made)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # what it cannot run is an exception
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(names, session.run(names, inputs))) | inputs

    values = run(dict(given))
    try:
        return values, run(
            {name: _twice(given[name], sizes) for name, sizes in zip(file.input_names, file.input_shapes)}
        )
    except Exception:  # of ONNX Runtime, for sizes that do not fit
        return values, {}


def _twice(value: Any, sizes: Sequence[int | str | None] | None) -> Any:
    for axis, size in enumerate(sizes or [None] * value.ndim):
        if not isinstance(size, int):
            value = np.concatenate([value, value], axis)
    return value


def _sizes(proto: ModelProto) -> dict[str, Any]:
    """The sizes of values as far as the file says them; those that it has of values inside may be of before."""
    plain = ModelProto()
    plain.CopyFrom(proto)
    plain.graph.ClearField("value_info")
    try:
        graph = shape_inference.infer_shapes(plain).graph
    except shape_inference.InferenceError:
        graph = plain.graph
    return {value.name: sizes_of(value) for value in (*graph.input, *graph.value_info, *graph.output)}


def _programs(graph: _Graph) -> tuple[list[tuple[_Part, Program]], list[str]]:
    """Programs of the graph, and why there are no more."""
    whole = graph.part(graph.moving)  # with conditions and loops, which may follow from constants
    try:
        return [(whole, graph.program(whole))], []
    except NothingQuantized:
        return [], []
    except _CANNOT as error:
        reasons = {_line(error): None}
    refused: set[int] = set()
    while True:
        made, before = [], len(refused)
        for run in graph.runs(refused):
            part = graph.part(run)
            try:
                made.append((part, graph.program(part)))
            except NothingQuantized:
                continue
            except _CANNOT as error:
                reasons[_line(error)] = None
                refused |= _culprits(graph, run)
        if len(refused) == before:
            return made, list(reasons)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _culprits(graph: _Graph, run: Sequence[int]) -> set[int]:
    """Nodes of a run without a program: in each half that has none; where both have one, what parts them."""
    if len(run) == 1:
        return set(run)
    found: set[int] = set()
    for half in (run[: len(run) // 2], run[len(run) // 2 :]):
        try:
            graph.program(graph.part(half), may_be_float=True)
        except _CANNOT:
            found |= _culprits(graph, half)
    return found or {run[len(run) // 2]}


def _rewritten(graph: _Graph, programs: Sequence[tuple[_Part, Program]]) -> ModelProto:
    """The model with one node for each program, without what is not read any more."""
    inside = {number for part, _ in programs for number in part.nodes}
    waiting = [node for number, node in enumerate(graph.protos) if number not in inside]
    waiting += [
        context_node(program, part.inputs, part.outputs, f"program_{number}")
        for number, (part, program) in enumerate(programs)
    ]
    nodes = _needed(waiting, graph.results)
    read = {name for node in with_outer_inputs(nodes) for name in node.input} | graph.results
    made = ModelProto()
    made.CopyFrom(graph.proto)
    for field in ("node", "value_info", "initializer"):
        made.graph.ClearField(field)
    made.graph.node.extend(nodes)
    given = [name for part, _ in programs for name in part.outputs if name not in graph.results]
    made.graph.value_info.extend(graph.value(name) for name in given)  # types that follow from no schema
    made.graph.initializer.extend(tensor for name, tensor in graph.stored.items() if name in read)
    if all(entry.domain != DOMAIN for entry in made.opset_import):
        made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


def _needed(nodes: Sequence[NodeProto], outputs: set[str]) -> list[NodeProto]:
    """The nodes that outputs depend on, through graphs inside of nodes, too, in an order to run them."""
    by_output = {tuple(node.output): node for node in nodes}
    return [by_output[tuple(node.output)] for node in needed(ordered(with_outer_inputs(nodes)), outputs)]
