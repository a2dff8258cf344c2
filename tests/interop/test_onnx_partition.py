"""Quantized ONNX files for the execution provider: parts that are programs, and nodes that stay.

The evaluator of onnx runs the nodes here; `onnx_provider.py` runs such files in sessions of ONNX Runtime.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from divided_files import STEP, by_condition, two_convolutions
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from ways import as_the_file_says

import zeropoint
from zeropoint.interop.onnx.control_flow import with_outer_inputs


def by_program(node: onnx.NodeProto, given: list[Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.zpt"
        path.write_bytes(next(a.s for a in node.attribute if a.name == "ep_cache_context"))
        return zeropoint.runtime.load(path)(*given)


def by_onnx(node: onnx.NodeProto, names: list[str], given: list[Any]) -> Any:
    read, made = ([helper.make_empty_tensor_value_info(name) for name in part] for part in (names, node.output))
    graph = helper.make_graph([node], "one", read, made)
    opsets = [helper.make_opsetid("", 21)]
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run(None, dict(zip(names, given)))


def evaluated(path: Path, x: Any) -> Any:
    """The output of a file, computed node by node."""
    graph = onnx.load(path).graph
    values = {"x": x} | {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node, read in zip(graph.node, with_outer_inputs(graph.node)):
        names = list(read.input)
        given = [values[name] for name in names]
        found = by_program(node, given) if node.op_type == "EPContext" else by_onnx(node, names, given)
        values |= zip(node.output, found if isinstance(found, (list, tuple)) else [found])
    return values[graph.output[0].name]


# Sequences, which are not read.
IN_PIECES = [
    helper.make_node("SplitToSequence", ["a_r"], ["pieces"], axis=1),
    helper.make_node("ConcatFromSequence", ["pieces"], ["b"], axis=1),
]
EXAMPLE = (torch.randn(3, 3, 6, 6, generator=torch.Generator().manual_seed(0)),)


def kinds(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def export(source: Path, example: Any = EXAMPLE) -> Path:
    path = source.with_name("divided.onnx")
    zeropoint.export_onnx(source, example, path, runtime="zeropoint")
    onnx.checker.check_model(onnx.load(path), full_check=True)
    return path


def require_same(path: Path, source: Path, x: torch.Tensor) -> None:
    found = evaluated(path, x.numpy())
    wanted = as_the_file_says(source, (x,))
    assert np.abs(wanted).max() > 10 * STEP
    assert np.abs(found - wanted).max() <= 1.01 * STEP


def test_a_file_that_can_be_compiled_is_one_program_with_the_names_of_the_file(tmp_path: Path) -> None:
    source = two_convolutions(tmp_path / "source.onnx")
    path = export(source)
    assert kinds(path) == ["EPContext"]
    made, given = onnx.load(path).graph, onnx.load(source).graph
    assert (list(made.input), list(made.output)) == (list(given.input), list(given.output))
    assert not made.initializer
    for batch in (1, 3, 5):
        require_same(path, source, torch.randn(batch, 3, 6, 6))


def test_nodes_that_are_not_read_stay_between_programs(tmp_path: Path) -> None:
    source = two_convolutions(tmp_path / "source.onnx", IN_PIECES)
    path = export(source)
    assert kinds(path) == ["EPContext", "SplitToSequence", "ConcatFromSequence", "EPContext"]
    require_same(path, source, torch.randn(2, 3, 6, 6))


def test_graphs_of_nodes_that_stay_read_results_of_programs(tmp_path: Path) -> None:
    source = two_convolutions(tmp_path / "source.onnx", *by_condition())
    path = export(source)
    assert kinds(path) == ["EPContext", "If", "EPContext"]
    assert {tensor.name for tensor in onnx.load(path).graph.initializer} == {"half", "more"}
    for shift in (-1.0, 1.0):
        require_same(path, source, torch.randn(2, 3, 6, 6) + shift)


def test_nodes_may_stand_before_those_that_they_read(tmp_path: Path) -> None:
    source = two_convolutions(tmp_path / "source.onnx", *by_condition())
    model = onnx.load(source)
    nodes = list(model.graph.node)[::-1]
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    onnx.save(model, source)
    path = export(source)
    assert kinds(path) == ["EPContext", "If", "EPContext"]
    require_same(path, source, torch.randn(2, 3, 6, 6))


def test_a_node_that_is_read_and_has_no_program_stays(tmp_path: Path) -> None:
    between = [
        helper.make_node("Unique", ["a_r"], ["different"]),
        helper.make_node("ReduceMax", ["different"], ["most"], keepdims=0),
        helper.make_node("Sub", ["a_r", "most"], ["b"]),
    ]
    source = two_convolutions(tmp_path / "source.onnx", between)
    path = export(source)
    assert kinds(path) == ["EPContext", "Unique", "EPContext"]
    require_same(path, source, torch.randn(2, 3, 6, 6))


def test_sizes_come_from_the_file_where_no_example_is_given(tmp_path: Path) -> None:
    source = two_convolutions(tmp_path / "source.onnx", IN_PIECES)
    path = export(source, None)
    require_same(path, source, torch.randn(4, 3, 6, 6))


def test_a_file_without_integers_is_refused(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "float", values[:1], values[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "float.onnx"
    )
    with pytest.raises(zeropoint.Unsupported, match=r"no part of float\.onnx becomes a program: nothing in the file"):
        export(tmp_path / "float.onnx", None)


def test_wrong_arguments_are_refused_in_words(tmp_path: Path) -> None:
    source = two_convolutions(tmp_path / "source.onnx")
    with pytest.raises(ValueError, match="the file takes x, got y"):
        export(source, {"y": EXAMPLE[0]})
    with pytest.raises(ValueError, match="pass from_onnx"):
        zeropoint.export_onnx(source, None, tmp_path / "made.onnx")
    with pytest.raises(FileNotFoundError):
        export(tmp_path / "absent.onnx")
