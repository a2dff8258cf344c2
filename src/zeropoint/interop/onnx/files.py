"""ONNX files as they come from anywhere: read without running anything, and without leaving their folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from zeropoint.described import shortened
from zeropoint.regular_file import Allowance, open_regular, require_regular

MOST_BYTES = 2**31  # that protobuf reads
MOST_NODES = 1_000_000
MOST_CALLED = 100_000  # nodes that calls of functions make, which may call functions in turn
DEEPEST_CALL = 100
OLDEST_OPSET = 7  # before it arithmetic had axes of its own


class OnnxFileError(ValueError):
    """A file that is no ONNX model, or one that is not read."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


def read_model(path: str | os.PathLike[str]) -> ModelProto:
    """The model of a file, with its weights, checked: one graph, whose data lies in the folder of the file.

    Raises:
        OnnxFileError: with the reason.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"from_onnx: no such file: {path}")
    size = require_regular(path)
    if size >= MOST_BYTES:
        raise OnnxFileError(f"from_onnx: {path} has {size} bytes; store larger weights as external data")
    try:
        model = onnx.load_model_from_string(_content(path))
    except Exception as error:  # protobuf has several kinds
        raise OnnxFileError(f"from_onnx: {path} is not an ONNX model: {error}") from error
    if not model.graph.node:
        raise OnnxFileError(f"from_onnx: {path} is not an ONNX model, or has no nodes")
    _check(model, path)
    outside = [tensor for tensor in _tensors(model) if tensor.data_location == TensorProto.EXTERNAL]
    places = [_require_inside(tensor, path.parent, path) for tensor in outside]
    allowance = Allowance(size + sum({file: stored for file, stored, _ in places}.values()))
    allowance.take(sum(taken for *_, taken in places), f"the external data of {path}")
    if model.functions:
        from onnx import inliner

        _require_few_calls(model, path, allowance)
        model = inliner.inline_local_functions(model)
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
    except Exception as error:
        raise OnnxFileError(f"from_onnx: the data of {path} cannot be read: {error}") from error
    return model


def _check(model: ModelProto, path: Path) -> None:
    opset = {entry.domain: entry.version for entry in model.opset_import}.get("", OLDEST_OPSET)
    if opset < OLDEST_OPSET:
        raise OnnxFileError(f"from_onnx: {path} has opset {opset}; {OLDEST_OPSET} and later are supported")
    if len(model.graph.node) > MOST_NODES:
        raise OnnxFileError(f"from_onnx: {path} has {len(model.graph.node)} nodes; the limit is {MOST_NODES}")
    if model.graph.sparse_initializer:
        raise OnnxFileError(f"from_onnx: {path} has sparse weights, which are not supported")


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


def _require_few_calls(model: ModelProto, path: Path, allowance: Allowance) -> None:
    """Refuse functions that would become too many nodes, or too many bytes, where they are called."""
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    known: dict[Any, tuple[int, int]] = {}

    def made(nodes: Iterable[NodeProto], depth: int) -> tuple[int, int]:
        """Nodes that are there in the end, and their bytes."""
        if depth > DEEPEST_CALL:
            raise OnnxFileError(f"from_onnx: {path} has functions that call each other {depth} levels deep, or forever")
        count, size = 0, 0
        for node in nodes:
            called = functions.get((node.domain, node.op_type, node.overload))
            inner = [a.g.node for a in node.attribute if a.type == AttributeProto.GRAPH]
            inner += [g.node for a in node.attribute for g in a.graphs]
            if called is not None and id(called) not in known:
                known[id(called)] = made(called.node, depth + 1)
            parts = [known[id(called)]] if called is not None else [(1, node.ByteSize())]
            for n, b in (*parts, *(made(body, depth + 1) for body in inner)):
                count, size = count + n, size + b
        return count, size

    count, size = made(model.graph.node, 0)
    if count > MOST_CALLED + len(model.graph.node):
        raise OnnxFileError(
            f"from_onnx: {path} has {count} nodes once its functions are put where they are called; the limit is "
            f"{MOST_CALLED} more than in its graph"
        )
    allowance.take(size, f"the functions of {path}, put where they are called,")


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor that is stored: weights, and those of attributes, in graphs within nodes and in functions, too."""
    graphs: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    while graphs:
        graph = graphs.pop()
        if isinstance(graph, GraphProto):
            yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.TENSOR:
                    yield attribute.t
                elif attribute.type == AttributeProto.GRAPH:
                    graphs.append(attribute.g)
                yield from attribute.tensors
                graphs.extend(attribute.graphs)


def _require_inside(tensor: TensorProto, folder: Path, path: Path) -> tuple[Path, int, int]:
    """Refuse data outside of the folder, and beyond the end of its file: that file, its size, and how much is read."""
    given: dict[str, Any] = {entry.key: entry.value for entry in tensor.external_data}
    location = given.get("location", "")
    whole = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not whole.is_relative_to(folder.resolve()):
        raise OnnxFileError(
            f"from_onnx: {path}: the data of {tensor.name!r} is at {location!r}, outside the folder of the file"
        )
    if not os.path.exists(whole):  # also where the name is longer than names of files can be
        raise OnnxFileError(f"from_onnx: {path}: the data of {tensor.name!r} is missing: {location!r}")
    stored = require_regular(whole)
    try:
        offset, length = int(given.get("offset", 0)), int(given.get("length", 0))
    except ValueError as error:
        raise OnnxFileError(f"from_onnx: {path}: the offset or length of {tensor.name!r} is not a number") from error
    if offset < 0 or length < 0 or offset + length > stored:
        raise OnnxFileError(f"from_onnx: {path}: the data of {tensor.name!r} extends past the end of {location!r}")
    return whole, stored, length or stored - offset
