"""Programs as ONNX files for our execution provider: one EPContext node, the operator for compiled models."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zeropoint.compiler.errors import Unsupported
from zeropoint.runtime import Program

SOURCE = "zeropoint"  # the attribute by which native/onnx_provider/provider.cpp finds its nodes
DOMAIN = "com.microsoft"
_IR_VERSION, _OPSET = 10, 21
_LARGEST = 2**31 - 2**20  # bytes of a protobuf file


def context_model(program: Program) -> Any:
    """An ONNX model (a ModelProto) with the inputs and outputs of a program, and the program in its only node."""
    from onnx import helper

    inputs = [_value(name, dtype, shape) for name, dtype, shape in program.inputs]
    outputs = [_value(f"output_{n}", dtype, ("",) * len(shape)) for n, (_, dtype, shape) in enumerate(program.outputs)]
    node = context_node(program, [value.name for value in inputs], [value.name for value in outputs], "program")
    graph = helper.make_graph([node], "program", inputs, outputs)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="zeropoint")


def context_node(program: Program, inputs: Sequence[str], outputs: Sequence[str], name: str) -> Any:
    """The node that holds a program."""
    from onnx import helper

    if program.state:
        raise Unsupported("export_onnx: the program has state, which ONNX Runtime does not keep between calls")
    stored = _bytes(program)
    if len(stored) > _LARGEST:
        raise Unsupported(f"export_onnx: the program has {len(stored):,} bytes; an ONNX file has less than 2 GiB")
    return helper.make_node(
        "EPContext", inputs, outputs, name, domain=DOMAIN, main_context=1, embed_mode=1, source=SOURCE,
        ep_cache_context=stored,
    )  # fmt: skip


def _bytes(program: Program) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.zpt"
        program.save(path)
        return path.read_bytes()


def _value(name: str, dtype: str, shape: tuple[int | str, ...]) -> Any:
    from onnx import helper

    sizes = [None if size == "" else size for size in shape]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), sizes)
