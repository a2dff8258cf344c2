"""Operators of ONNX files: ONNX's own tests, ONNX Runtime's results, and refusals of what is not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx_nodes import examine, node_tests, totals

import zeropoint
from zeropoint.interop.onnx.imported_value import tensor_of

RIGHT = 1133  # of ONNX's tests; more is better
CLOSE = 1e-5  # floats are summed in another order
MICROSOFT = "com.microsoft"
_RANDOM = np.random.default_rng(0)


def test_onnxs_own_tests_are_right_or_refused_in_words() -> None:
    results = [examine(test, programs=False) for test in node_tests()]
    bad = [f"{r['name']}: {r['why']}" for r in results if r["verdict"] in ("wrong", "internal")]
    assert not bad, "\n".join(bad)
    assert totals(results)["right"] >= RIGHT


def test_reductions_of_no_elements_become_programs_with_their_bytes() -> None:
    results = [examine(test) for test in node_tests(["empty_set"])]
    assert {r["name"]: r["why"] for r in results if r["program"] not in ("equal", "refused")} == {}


def floats(*shape: int) -> Any:
    return _RANDOM.normal(size=shape).astype(np.float32)


def integers(*shape: int) -> Any:
    return _RANDOM.integers(-127, 127, shape).astype(np.int8)


def node(op: str, inputs: list[str], outputs: list[str] | None = None, **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs or ["y"], **attributes)


def file_of(path: Path, nodes: list[Any], inputs: dict[str, Any], stored: dict[str, Any], opset: int = 21) -> Path:
    """A file with these inputs, and all results that are named."""
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    read = {name for each in nodes for name in each.input}
    named = [name for each in nodes for name in each.output if name and name not in read]
    graph = helper.make_graph(
        nodes, "graph", given, [onnx.ValueInfoProto(name=name) for name in named],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    for value, kind in zip(model.graph.output, _kinds(model)):
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, None))
    onnx.save(model, path)
    return path


def _kinds(model: Any) -> list[int]:
    """Dtypes of results, which ONNX infers; those of operators of others are floats here."""
    known = {
        value.name: value.type.tensor_type.elem_type for value in onnx.shape_inference.infer_shapes(model).graph.output
    }
    made = {name: each for each in model.graph.node for name in each.output}
    return [known[value.name] or _kind_of(made[value.name], value.name) for value in model.graph.output]


def _kind_of(each: Any, name: str) -> int:
    if each.op_type.endswith("EmbedLayerNormalization") and name != each.output[0]:
        return TensorProto.INT32
    return TensorProto.UINT8 if each.op_type.startswith("Q") and "yz" in each.input else TensorProto.FLOAT


def run_by_onnx_runtime(path: Path, inputs: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options).run(None, inputs)


def assert_as_onnx_runtime(path: Path, inputs: dict[str, Any], steps: float = CLOSE) -> Any:
    tensors = tuple(tensor_of(array) for array in inputs.values())
    model = zeropoint.from_onnx(path, tensors)
    with torch.no_grad():
        made = model(*tensors)
    for result, expected in zip(made if isinstance(made, tuple) else (made,), run_by_onnx_runtime(path, inputs)):
        assert tuple(result.shape) == expected.shape
        assert result.dtype == tensor_of(expected).dtype
        assert np.abs(result.numpy().astype(np.float64) - expected.astype(np.float64)).max() <= steps
    return model


GATES = {"x": floats(3, 2, 5)}
LSTM = {"w": floats(1, 16, 5), "r": floats(1, 16, 4)}
GRU = {"w": floats(1, 12, 5), "r": floats(1, 12, 4)}
IMAGE = {"x": floats(1, 4, 8, 8)}
CASES: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any]]] = {
    "QuantizeLinear, output_dtype": (
        [node("QuantizeLinear", ["x", "s"], output_dtype=TensorProto.INT8)], IMAGE, {"s": np.float32(0.02)}),
    "QuantizeLinear, channels": ([node("QuantizeLinear", ["x", "s"], axis=1)], IMAGE, {"s": np.full(4, 0.02, "f4")}),
    "QuantizeLinear, 16 bits": (
        [node("QuantizeLinear", ["x", "s", "z"])], IMAGE, {"s": np.float32(1e-4), "z": np.uint16(30000)}),
    "LSTM, last state": ([node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=4)], GATES, LSTM),
    "LSTM, last cell": ([node("LSTM", ["x", "w", "r"], ["y", "", "c"], hidden_size=4)], GATES, LSTM),
    "LSTM, reverse": (
        [node("LSTM", ["x", "w", "r"], ["y", "h", "c"], hidden_size=4, direction="reverse")], GATES, LSTM),
    "LSTM, clip": ([node("LSTM", ["x", "w", "r"], hidden_size=4, clip=0.3)], GATES, LSTM),
    "LSTM, activations": (
        [node("LSTM", ["x", "w", "r"], hidden_size=4, activations=["Sigmoid", "Relu", "Tanh"])], GATES, LSTM),
    "LSTM, lengths": (
        [node("LSTM", ["x", "w", "r", "", "n"], ["y", "h"], hidden_size=4, direction="reverse")], GATES,
        {**LSTM, "n": np.array([3, 2], np.int32)}),
    "GRU, reset before": ([node("GRU", ["x", "w", "r"], ["y", "h"], hidden_size=4)], GATES, GRU),
    "GRU, last state": (
        [node("GRU", ["x", "w", "r"], ["", "h"], hidden_size=4, linear_before_reset=1)], GATES, GRU),
    "DynamicQuantizeLSTM, reverse": (
        [node("DynamicQuantizeLSTM", ["x", "w", "r", *[""] * 5, "ws", "wz", "rs", "rz"], ["", "h"], hidden_size=4,
              direction="reverse", domain=MICROSOFT)], {"x": floats(3, 1, 5)},
        {"w": integers(1, 5, 16), "r": integers(1, 4, 16), "ws": np.full(1, 0.01, "f4"), "wz": np.zeros(1, "i1"),
         "rs": np.full(1, 0.01, "f4"), "rz": np.zeros(1, "i1")}),
    "Gather from the end": ([node("Gather", ["w", "i"])], {"i": np.array([[0, -1]])}, {"w": floats(5, 3)}),
    "Gather of a constant": ([node("Gather", ["x", "i"], axis=1)], {"x": floats(2, 5, 3)}, {"i": np.array([-1])}),
    "Gather of one": ([node("Gather", ["x", "i"], axis=1)], {"x": floats(2, 5, 3), "i": np.array(-2)}, {}),
    "Dropout, mask": ([node("Dropout", ["x"], ["y", "m"])], IMAGE, {}),
    "PRelu, last axis": ([node("PRelu", ["x", "w"])], {"x": floats(3, 4, 5)}, {"w": floats(5)}),
    "Pad, edge": (
        [node("Pad", ["x", "p"], mode="edge")], {"x": floats(5, 6)}, {"p": np.array([1, 0, 2, 1])}),
    "Pad, longer than the axis": (
        [node("Pad", ["x", "p"], mode="wrap")], {"x": floats(3, 2)}, {"p": np.array([1, 3, 2, 1])}),
    "AveragePool, ceil": (
        [node("AveragePool", ["x"], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1], ceil_mode=1)], IMAGE, {}),
    "AveragePool, dilations": (
        [node("AveragePool", ["x"], kernel_shape=[3, 3], dilations=[2, 1], pads=[1, 1, 0, 1])], IMAGE, {}),
    "MaxPool, ceil": (
        [node("MaxPool", ["x"], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1], ceil_mode=1)], IMAGE, {}),
    "Pow of integers": (
        [node("Pow", ["x", "p"])], {"x": np.array([1, 2, 3], "i4")}, {"p": np.array([2.0, 2.0, 3.0], "f4")}),
    "ReduceSum, no axes": ([node("ReduceSum", ["x"], noop_with_empty_axes=1)], IMAGE, {}),
    "Resize, cubic": ([node("Resize", ["x", "", "s"], mode="cubic")], IMAGE, {"s": np.array([1, 1, 2, 2], "f4")}),
    "Resize, nearest": ([node("Resize", ["x", "", "s"])], IMAGE, {"s": np.array([1, 1, 1.6, 1.6], "f4")}),
    "ConvTranspose, same": (
        [node("ConvTranspose", ["x", "w"], strides=[2, 2], auto_pad="SAME_UPPER")], IMAGE, {"w": floats(4, 3, 3, 3)}),
    "ConvTranspose, output_shape": (
        [node("ConvTranspose", ["x", "w"], strides=[2, 2], output_shape=[16, 16])], IMAGE, {"w": floats(4, 3, 3, 3)}),
    "Slice backwards": (
        [node("Slice", ["x", "s", "e", "a", "t"])], {"x": floats(4, 6)},
        {"s": np.array([-1]), "e": np.array([-(2**31) - 1]), "a": np.array([1]), "t": np.array([-2])}),
    "LayerNormalization": ([node("LayerNormalization", ["x", "g"], ["y", "m", "d"], axis=1)], {"x": floats(2, 3, 4)},
                           {"g": floats(3, 4)}),
}  # fmt: skip


def own(op: str, inputs: list[str], outputs: list[str] | None = None, **attributes: Any) -> Any:
    """A node of ONNX Runtime's operators."""
    return node(op, inputs, outputs, domain=MICROSOFT, **attributes)


def scale_of(name: str, scale: float, shift: int, dtype: Any = np.uint8) -> dict[str, Any]:
    return {f"{name}s": np.float32(scale), f"{name}z": np.asarray(shift, dtype)}


BYTES = {"x": _RANDOM.integers(0, 255, (2, 4, 6, 6)).astype(np.uint8)}
ROWS = {"x": _RANDOM.integers(0, 255, (5, 8)).astype(np.uint8)}
STATES = {"x": floats(2, 5, 8)}
X, Y = scale_of("x", 0.02, 128), scale_of("y", 0.05, 120)
OTHER = {"b": _RANDOM.integers(0, 255, (2, 4, 6, 6)).astype(np.uint8), **scale_of("b", 0.03, 100)}
MATRIX = {"w": integers(8, 6), "ws": np.float32(0.01), "wz": np.int8(3)}
BOTH = ["x", "xs", "xz", "b", "bs", "bz", "ys", "yz"]
ONE = ["x", "xs", "xz", "ys", "yz"]
KERNEL = {"w": integers(3, 4, 3, 3), "ws": np.full(3, 0.01, "f4"), "wz": np.zeros(3, "i1")}
OWN: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any]]] = {
    "QLinearConv": (
        [node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "c"], pads=[1, 1, 1, 1], strides=[2, 2])],
        BYTES, {**X, **KERNEL, **Y, "c": np.array([100, -200, 300], np.int32)}),
    "QLinearMatMul": ([node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"])], ROWS,
                      {**X, **MATRIX, **Y}),
    "QGemm": ([own("QGemm", ["x", "xs", "xz", "w", "ws", "wz", "c", "ys", "yz"])], ROWS,
              {**X, **MATRIX, **Y, "c": np.arange(6, dtype=np.int32) * 50}),
    "QGemm to float": ([own("QGemm", ["x", "xs", "xz", "w", "ws", "wz"])], ROWS, {**X, **MATRIX}),
    "MatMulInteger": ([node("MatMulInteger", ["x", "w", "xz", "wz"])], ROWS, {**X, **MATRIX}),
    "ConvInteger": ([node("ConvInteger", ["x", "w", "xz"])], BYTES,
                    {**X, "w": _RANDOM.integers(0, 255, (3, 4, 3, 3)).astype(np.uint8)}),
    "MatMulIntegerToFloat": ([own("MatMulIntegerToFloat", ["x", "w", "xs", "ws", "xz", "wz", "c"])], ROWS,
                             {**X, **MATRIX, "c": floats(6)}),
    "DynamicQuantizeMatMul": ([own("DynamicQuantizeMatMul", ["x", "w", "ws", "wz", "c"])], {"x": floats(5, 8)},
                              {**MATRIX, "c": floats(6)}),
    "QLinearAdd": ([own("QLinearAdd", BOTH)], BYTES, {**X, **OTHER, **Y}),
    "QLinearMul": ([own("QLinearMul", BOTH)], BYTES, {**X, **OTHER, **Y}),
    "QLinearConcat": ([own("QLinearConcat", ["ys", "yz", "x", "xs", "xz", "b", "bs", "bz"], axis=1)], BYTES,
                      {**X, **OTHER, **Y}),
    "QLinearSigmoid": ([own("QLinearSigmoid", ONE)], BYTES, {**X, **scale_of("y", 1 / 256, 0)}),
    "QLinearLeakyRelu": ([own("QLinearLeakyRelu", ONE, alpha=0.1)], BYTES, {**X, **Y}),
    "QLinearAveragePool": ([own("QLinearAveragePool", ONE, kernel_shape=[2, 2])], BYTES, {**X, **Y}),
    "QLinearGlobalAveragePool": ([own("QLinearGlobalAveragePool", ONE)], BYTES, {**X, **Y}),
    "QLinearSoftmax": ([own("QLinearSoftmax", ONE, axis=-1, opset=13)], BYTES, {**X, **scale_of("y", 1 / 256, 0)}),
    "QLinearWhere": ([own("QLinearWhere", ["t", *BOTH])], BYTES, {**X, **OTHER, **Y, "t": np.array([True, False] * 3)}),
    "integers that are moved": (
        [node("QuantizeLinear", ["x", "xs", "xz"], ["q"]), node("MaxPool", ["q"], ["m"], kernel_shape=[2, 2]),
         node("Transpose", ["m"], ["t"], perm=[0, 2, 3, 1]), node("DequantizeLinear", ["t", "xs", "xz"])], IMAGE, X),
    "FusedMatMul": ([own("FusedMatMul", ["x", "x2"], transB=1, alpha=0.5)], STATES, {"x2": floats(2, 5, 8)}),
    "FusedConv": ([own("FusedConv", ["x", "w", "c"], activation="Relu")], IMAGE,
                  {"w": floats(3, 4, 3, 3), "c": floats(3)}),
    "FusedGemm": ([own("FusedGemm", ["x", "w", "c"], activation="Relu")], {"x": floats(5, 8)},
                  {"w": floats(8, 6), "c": floats(6)}),
    "SkipLayerNormalization": ([own("SkipLayerNormalization", ["x", "s", "g", "b", "c"])], STATES,
                               {"s": floats(2, 5, 8), "g": floats(8), "b": floats(8), "c": floats(8)}),
    "FastGelu": ([own("FastGelu", ["x", "b"])], STATES, {"b": floats(8)}),
    "BiasGelu": ([own("BiasGelu", ["x", "b"])], STATES, {"b": floats(8)}),
    "QuickGelu": ([own("QuickGelu", ["x"])], STATES, {}),
    "Attention": ([own("Attention", ["x", "w", "b", "m"], num_heads=2)], STATES,
                  {"w": floats(8, 24), "b": floats(24), "m": np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.int32)}),
    "QAttention": ([own("QAttention", ["x", "w", "b", "xs", "ws", "", "xz", "wz"], num_heads=2)],
                   {"x": _RANDOM.integers(0, 255, (2, 5, 8)).astype(np.uint8)},
                   {**X, "w": integers(8, 24), "b": floats(24), "ws": np.float32(0.01), "wz": np.int8(0)}),
    "MultiHeadAttention": ([own("MultiHeadAttention", ["x", "k", "v", "b"], num_heads=2)], STATES,
                           {"k": floats(2, 7, 8), "v": floats(2, 7, 8), "b": floats(24)}),
    "RotaryEmbedding": (
        [own("RotaryEmbedding", ["x", "p", "c", "s"], num_heads=2)], {"x": floats(2, 5, 16)},
        {"p": np.array([2]), "c": floats(9, 4), "s": floats(9, 4)}),
    "GroupQueryAttention": (
        [own("GroupQueryAttention", ["x", "k", "v", "", "", "n", "t", "c", "s"], ["y", "pk", "pv"], num_heads=4,
             kv_num_heads=2, do_rotary=1)], {"x": floats(1, 5, 64)},
        {"k": floats(1, 5, 32), "v": floats(1, 5, 32), "n": np.array([4], "i4"), "t": np.array([5], "i4"),
         "c": floats(16, 8), "s": floats(16, 8)}),
    "GroupQueryAttention, later": (
        [own("GroupQueryAttention", ["x", "k", "v", "a", "b", "n", "t"], ["y", "pk", "pv"], num_heads=4,
             kv_num_heads=2)], {"x": floats(1, 1, 64)},
        {"k": floats(1, 1, 32), "v": floats(1, 1, 32), "a": floats(1, 2, 6, 16), "b": floats(1, 2, 6, 16),
         "n": np.array([6], "i4"), "t": np.array([7], "i4")}),
    "QEmbedLayerNormalization": (
        [own("QEmbedLayerNormalization",
             ["x", "", "t", "p", "", "g", "b", "", "ts", "ps", "", "gs", "bs", "tz", "pz", "", "gz", "bz"],
             ["y", "m"])],
        {"x": np.array([[1, 2, 3]], np.int32)},
        {"t": integers(9, 8), "p": integers(5, 8), "g": integers(8), "b": integers(8),
         **{f"{name}s": np.float32(0.02) for name in "tpgb"}, **{f"{name}z": np.int8(3) for name in "tpgb"}}),
    "EmbedLayerNormalization": (
        [own("EmbedLayerNormalization", ["x", "", "t", "p", "", "g", "b"], ["y", "m"])],
        {"x": np.array([[1, 2, 3]], np.int32)}, {"t": floats(9, 8), "p": floats(5, 8), "g": floats(8), "b": floats(8)}),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_operators_of_onnx_runtime_give_what_it_gives_within_a_step(name: str, tmp_path: Path) -> None:
    nodes, inputs, stored = OWN[name]
    path = file_of(tmp_path / "model.onnx", nodes, inputs, stored)
    step = 1.0 if path_dtype(path) in (TensorProto.UINT8, TensorProto.INT8) else 2e-5
    model = assert_as_onnx_runtime(path, inputs, step)
    tensors = tuple(tensor_of(array) for array in inputs.values())
    with torch.no_grad():
        results = (first_of(run(*tensors)).to(torch.float32) for run in (zeropoint.compile(model, tensors), model))
    assert torch.sub(*results).abs().max() <= step


def path_dtype(path: Path) -> int:
    return onnx.load(path).graph.output[0].type.tensor_type.elem_type


def first_of(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", CASES)
def test_operators_give_what_onnx_runtime_gives(name: str, tmp_path: Path) -> None:
    nodes, inputs, stored = CASES[name]
    assert_as_onnx_runtime(file_of(tmp_path / "model.onnx", nodes, inputs, stored), inputs)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "an attribute": (node("Relu", ["x"], alpha=0.5), {}, "the attribute alpha=0.5"),
    "an input": (node("Relu", ["x", "s"]), {"s": np.float32(1)}, "its input 1"),
    "an output": (node("Conv", ["x", "w"], ["y", "z"]), {"w": floats(3, 4, 1, 1)}, "its output 1"),
    "training": (
        node("Dropout", ["x", "s", "t"]), {"s": np.float32(0.5), "t": np.bool_(True)}, "training_mode"),
    "a kernel of another size": (
        node("Conv", ["x", "w"], kernel_shape=[3, 3]), {"w": floats(3, 4, 1, 1)}, r"kernel_shape is \[3, 3\]"),
    "a clip that integers have not": (
        node("DynamicQuantizeLSTM", ["x", "w", "r", *[""] * 5, "ws", "wz", "rs", "rz"], clip=0.3, hidden_size=4,
             domain=MICROSOFT),
        {"w": integers(1, 5, 16), "r": integers(1, 4, 16), "ws": np.full(1, 0.01, "f4"), "wz": np.zeros(1, "i1"),
         "rs": np.full(1, 0.01, "f4"), "rz": np.zeros(1, "i1")}, "clip"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_reader_reads_is_refused(name: str, tmp_path: Path) -> None:
    made, stored, why = REFUSED[name]
    x = floats(3, 1, 5) if "LSTM" in made.op_type else IMAGE["x"]
    path = file_of(tmp_path / "model.onnx", [made], {"x": x}, stored)
    with pytest.raises((NotImplementedError, ValueError), match=why):
        zeropoint.from_onnx(path, (torch.from_numpy(x),))(torch.from_numpy(x))
