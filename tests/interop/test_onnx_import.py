"""ONNX files as models: float ones, those that others quantized, ours again, and broken ones."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from interchange_models import MODELS, case, step_of
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from ways import as_the_file_says, float_file, quantized_by_nncf, quantized_by_onnx_runtime

import zeropoint

STATIC = [name for name, (_, _, mode) in MODELS.items() if mode == "static"]
# Files whose operators a torch.onnx export spells in ways that are read; bags are a loop there, which is refused.
EXPORTED = [
    # A file takes seconds; convolutions and attention are quantized in two of them.
    pytest.param(name, marks=[pytest.mark.thorough] * (name in ("MobileNetV2", "U-Net")))
    for name in STATIC
    if name != "EmbeddingBag"
]
SUM_ORDER = 1e-5  # floats are summed in another order
MOST_STEPS = 4.0  # a rounding that falls otherwise, spread by the layers behind it; see test_onnx_export.py


def assert_same_program(model: Any, inputs: tuple[Tensor, ...]) -> None:
    with torch.no_grad():
        assert torch.equal(zeropoint.compile(model, inputs)(*inputs), model(*inputs))


@pytest.mark.parametrize("name", [*EXPORTED, "LSTM"])
def test_a_float_file_computes_what_the_model_does_and_is_quantized(name: str, tmp_path: Path) -> None:
    given = case(name)
    model = zeropoint.from_onnx(float_file(name, tmp_path / "float.onnx"))
    with torch.no_grad():
        assert (model(*given.example) - given.model(*given.example)).abs().max() < SUM_ORDER
    count = given.example[0].shape[0]  # the size that torch.onnx wrote into the file
    batches = [tuple(t[:count] for t in b) for b in given.calibration] if given.mode == "static" else None
    quantized = zeropoint.to_int8(model, given.example, batches, mode=given.mode, progress=False)
    assert quantized.summary().counts()["int8" if given.mode == "static" else "int8, dynamic"] > 0
    assert_same_program(quantized, given.example)


@pytest.mark.parametrize("name", MODELS)
def test_our_files_come_back_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    given = case(name)
    model = given.quantized()
    zeropoint.export_onnx(model, given.example, tmp_path / "model.onnx")
    again = zeropoint.from_onnx(tmp_path / "model.onnx", given.example)
    with torch.no_grad():
        assert torch.equal(again(*given.example), model(*given.example))
    assert_same_program(again, given.example)


@pytest.mark.parametrize("name", EXPORTED)
@pytest.mark.parametrize("activations", [QuantType.QUInt8, QuantType.QInt8], ids=str)
def test_files_of_onnx_runtimes_quantizer_become_programs_with_their_scales(
    name: str, activations: Any, tmp_path: Path
) -> None:
    given, path = case(name), quantized_by_onnx_runtime(name, tmp_path, activations)
    model = zeropoint.from_onnx(path, given.example)
    expected = as_the_file_says(path, given.example)
    assert np.abs(model(*given.example).detach().numpy() - expected).max() <= MOST_STEPS * step_of(expected)
    scales = {float(numpy_helper.to_array(t).reshape(-1)[0]) for t in onnx.load(path).graph.initializer if _is_scale(t)}
    used = {float(np.float32(v)) for n in model.graph_module.graph.nodes for v in n.args if isinstance(v, float)}
    assert used & scales
    assert_same_program(model, given.example)


def _is_scale(tensor: Any) -> bool:
    return tensor.name.endswith("_scale") and numpy_helper.to_array(tensor).size == 1


def test_dynamic_files_of_onnx_runtimes_quantizer_keep_their_weights(tmp_path: Path) -> None:
    given, path = case("MiniLM, dynamic"), quantized_by_onnx_runtime("MiniLM, dynamic", tmp_path)
    model = zeropoint.from_onnx(path, given.example)
    assert sum("linear_dynamic" in str(node.target) for node in model.graph_module.graph.nodes) == 13
    expected = as_the_file_says(path, given.example)
    assert np.abs(model(*given.example).detach().numpy() - expected).max() <= MOST_STEPS * step_of(expected)
    assert_same_program(model, given.example)


@pytest.mark.parametrize("name", EXPORTED)
def test_files_of_nncf_become_programs_with_their_scales(name: str, tmp_path: Path) -> None:
    given, path = case(name), quantized_by_nncf(name, tmp_path)
    model = zeropoint.from_onnx(path, given.example)
    assert model.summary().counts()["int8"] > 5
    expected = as_the_file_says(path, given.example)
    assert np.abs(model(*given.example).detach().numpy() - expected).max() <= MOST_STEPS * step_of(expected)
    assert_same_program(model, given.example)


# --------------------------------------------------------------------------------------------------- files of strangers


def written(path: Path, nodes: list[Any], initializers: list[Any] = [], opset: int = 21) -> Path:  # noqa: B006
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "graph", [x], [y], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    return path


def test_operators_that_are_not_read_are_all_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DeformConv", ["x"], ["a"]),
        helper.make_node("Thing", ["a"], ["y"], domain="com.example"),
    ]
    path = written(tmp_path / "model.onnx", nodes)
    with pytest.raises(NotImplementedError, match=r"2 operators .* DeformConv \(1 x\), com.example.Thing \(1 x\)"):
        zeropoint.from_onnx(path)


def inner(op: str) -> Any:
    result = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(op, ["x"], ["z"])], op, [], [result])


def named(*names: str, kind: int = TensorProto.FLOAT) -> list[Any]:
    return [helper.make_tensor_value_info(name, kind, None) for name in names]


def test_loops_are_written_out(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["s", "v"], ["t"]), helper.make_node("Mul", ["t", "x"], ["o"])]
    nodes.append(helper.make_node("Identity", ["c"], ["d"]))
    inputs = [*named("i", kind=TensorProto.INT64), *named("c", kind=TensorProto.BOOL), *named("s")]
    results = [*named("d", kind=TensorProto.BOOL), *named("t", "o")]
    body = helper.make_graph(nodes, "body", inputs, results)
    loop = helper.make_node("Loop", ["n", "", "x"], ["last", "y"], body=body)
    numbers = [numpy_helper.from_array(np.array(3), "n"), numpy_helper.from_array(np.float32(0.5), "v")]
    x = torch.randn(2, 4)
    model = zeropoint.from_onnx(written(tmp_path / "model.onnx", [loop], numbers))
    expected = torch.stack([(x + 0.5 * (turn + 1)) * x for turn in range(3)])
    assert torch.allclose(model(x), expected)
    assert torch.allclose(zeropoint.compile(model, (x,))(x), expected)


def test_broken_weights_and_graphs_are_refused(tmp_path: Path) -> None:
    arrays = {"w": np.zeros((2, 1, 16), np.uint8), "s": np.ones(2, np.float32)}
    stored = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    for options in ({"K": 4, "N": 2, "bits": 4, "block_size": 0}, {"K": 999, "N": 7, "bits": 4, "block_size": 32}):
        node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **options)
        with pytest.raises(ValueError, match="a layer with weights of integers cannot be read"):
            zeropoint.from_onnx(written(tmp_path / "model.onnx", [node], stored))
    for node, why in (
        (helper.make_node("If", [], ["y"], then_branch=inner("Neg"), else_branch=inner("Exp")), "has 0 inputs"),
        (helper.make_node("If", ["x"], ["y"], then_branch=inner("Neg")), "has no else_branch"),
        (helper.make_node("Loop", ["x"], ["y"], body=inner("Neg")), "has 1 inputs"),
    ):
        with pytest.raises(ValueError, match=why):
            zeropoint.from_onnx(written(tmp_path / "model.onnx", [node]))


def test_a_loop_without_end_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Neg", ["s"], ["t"])]
    inputs = [*named("i", kind=TensorProto.INT64), *named("c", kind=TensorProto.BOOL), *named("s")]
    body = helper.make_graph(nodes, "body", inputs, [*named("d", kind=TensorProto.BOOL), *named("t")])
    loop = helper.make_node("Loop", ["", "", "x"], ["y"], body=body)
    number = numpy_helper.from_array(np.array(2**40), "n")
    for given in ("", "n"):
        loop.input[0] = given
        model = zeropoint.from_onnx(written(tmp_path / "model.onnx", [loop], [number]))
        with pytest.raises(NotImplementedError, match="more than 10000 turns"):
            model(torch.randn(2, 4))


def test_loops_in_loops_share_their_turns(tmp_path: Path) -> None:
    inputs = [*named("i", kind=TensorProto.INT64), *named("c", kind=TensorProto.BOOL), *named("s")]
    results = [*named("d", kind=TensorProto.BOOL), *named("t")]
    nodes = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Neg", ["s"], ["t"])]
    for level in range(3):  # 10 ** 12 turns
        body = helper.make_graph(nodes, f"body{level}", inputs, results)
        nodes = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Loop", ["n", "", "s"], ["t"], body=body)]
    nodes[1].input[2], nodes[1].output[0] = "x", "y"
    number = numpy_helper.from_array(np.array(10_000), "n")
    model = zeropoint.from_onnx(written(tmp_path / "model.onnx", nodes[1:], [number]))
    with pytest.raises(NotImplementedError, match="more than 10000 turns"):
        model(torch.randn(2, 4))


@pytest.mark.parametrize("size", [2, 3])
def test_a_condition_on_sizes_chooses_when_the_model_is_read(size: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1), helper.make_node("Equal", ["s", "n"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=inner("Neg"), else_branch=inner("Exp")),
    ]  # fmt: skip
    number = numpy_helper.from_array(np.array([size]), "n")
    model, x = zeropoint.from_onnx(written(tmp_path / "model.onnx", nodes, [number])), torch.randn(2, 4)
    expected = -x if size == 2 else torch.exp(x)
    assert torch.equal(model(x), expected)
    assert torch.allclose(zeropoint.compile(model, (x,))(x), expected)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "link/secret.bin", "", "none.bin"])
def test_data_outside_the_folder_is_not_read(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path)
    path = written(
        folder / "model.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], [external("w", location, 0, 16)]
    )
    with pytest.raises(ValueError, match=r"outside the folder of the file|is missing"):
        zeropoint.from_onnx(path)


def test_data_outside_the_folder_is_not_read_for_functions_and_branches(tmp_path: Path) -> None:
    """`read_model` looks at them itself, whatever the package onnx allows."""
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "model.onnx"
    secret = helper.make_node("Constant", [], ["w"], value=external("w", "../secret.bin", 0, 16))
    add = helper.make_node("Add", ["x", "w"], ["y"])
    opset = helper.make_opsetid("", 21)
    model = onnx.load(written(path, [helper.make_node("Secret", ["x"], ["y"], domain="own")]), load_external_data=False)
    model.functions.append(helper.make_function("own", "Secret", ["x"], ["y"], [secret, add], [opset]))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="outside the folder of the file"):
        zeropoint.from_onnx(path)
    z = helper.make_tensor_value_info("w", TensorProto.FLOAT, None)
    branch = helper.make_graph([secret], "then", [], [z])
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    written(path, [node], [condition])
    with pytest.raises(ValueError, match="outside the folder of the file"):
        zeropoint.from_onnx(path)


def external(name: str, location: str, offset: int, length: int) -> Any:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def test_data_beside_the_file_is_read_and_must_be_whole(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    model = zeropoint.from_onnx(written(tmp_path / "model.onnx", nodes, [external("w", "w.bin", 0, 16)]))
    assert model(torch.zeros(2, 4))[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="extends past the end"):
        zeropoint.from_onnx(written(tmp_path / "model.onnx", nodes, [external("w", "w.bin", 8, 16)]))


def test_nodes_may_stand_before_those_that_they_read(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    model = zeropoint.from_onnx(written(tmp_path / "model.onnx", nodes))
    assert model(torch.full((2, 4), 3.0)).tolist() == [[-3.0] * 4] * 2
    nodes = [helper.make_node("Add", ["x", "b"], ["y"]), helper.make_node("Relu", ["y"], ["b"])]
    with pytest.raises(ValueError, match="reads 'b', which nothing defines before it"):
        zeropoint.from_onnx(written(tmp_path / "model.onnx", nodes))


def test_broken_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for data in (b"", b"not a model", bytes(100)):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="is not an ONNX model"):
            zeropoint.from_onnx(path)
    broken = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**40], raw_data=bytes(16))
    with pytest.raises(ValueError, match="'w' is damaged"):
        zeropoint.from_onnx(written(path, [helper.make_node("Add", ["x", "w"], ["y"])], [broken]))
    with pytest.raises(FileNotFoundError, match="no such file"):
        zeropoint.from_onnx(tmp_path / "none.onnx")
    with pytest.raises(ValueError, match="opset 6"):
        zeropoint.from_onnx(written(path, [helper.make_node("Relu", ["x"], ["y"])], opset=6))
    with pytest.raises(ValueError, match="reads 'nowhere', which nothing defines"):
        zeropoint.from_onnx(written(path, [helper.make_node("Relu", ["nowhere"], ["y"])]))
    with pytest.raises(ValueError, match="nothing defines its output 'y'"):
        zeropoint.from_onnx(written(path, [helper.make_node("Relu", ["x"], ["z"])]))
    with pytest.raises(ValueError, match="a Constant has no value"):
        zeropoint.from_onnx(written(path, [helper.make_node("Constant", [], ["y"])]))
    with pytest.raises(ValueError, match="Relu 'act' has 0 inputs"):
        zeropoint.from_onnx(written(path, [helper.make_node("Relu", [], ["y"], name="act")]))
    shapes = [numpy_helper.from_array(np.zeros(size, np.float32), f"w{size}") for size in (2, 3)]
    with pytest.raises(ValueError, match="Add 'sum' cannot be computed"):
        zeropoint.from_onnx(written(path, [helper.make_node("Add", ["w2", "w3"], ["y"], name="sum")], shapes))
    proto = onnx.load(written(path, [helper.make_node("Relu", ["x"], ["y"])]))
    proto.graph.input[0].type.tensor_type.elem_type = 99
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ValueError, match="unknown dtype number 99"):
        zeropoint.from_onnx(path)


def growing() -> dict[str, tuple[list[Any], list[Any]]]:
    """Nodes that make a constant 'big' out of few numbers, and these."""
    node, stored = helper.make_node, numpy_helper.from_array
    shape = stored(np.array([2**20, 2**20], np.int64), "shape")
    column = stored(np.ones((2**14, 1), np.float32), "column")
    row = stored(np.ones((1, 2**14), np.float32), "row")
    half = stored(np.array([2**13, 2**12], np.int64), "half")
    return {
        "ConstantOfShape": ([node("ConstantOfShape", ["shape"], ["big"])], [shape]),
        "Expand": ([node("Expand", ["row", "shape"], ["big"])], [row, stored(np.array([2**20, 2**14]), "shape")]),
        "Tile": ([node("Tile", ["row", "shape"], ["big"])], [row, shape]),
        "Range": (
            [node("Range", ["a", "b", "c"], ["big"])],
            [stored(np.array(n, np.int64), name) for name, n in (("a", 0), ("b", 2**40), ("c", 1))],
        ),
        "Pad": ([node("Pad", ["row", "pads"], ["big"])], [row, stored(np.full(4, 2**20, np.int64), "pads")]),
        "MatMul": ([node("MatMul", ["column", "row"], ["big"])], [column, row]),
        "Mul": ([node("Mul", ["column", "row"], ["big"])], [column, row]),
        "many": (
            [node("ConstantOfShape", ["half"], [f"part{i}"]) for i in range(8)]
            + [node("Max", [f"part{i}" for i in range(8)], ["big"])],
            [half],
        ),
    }


@pytest.mark.parametrize("name", list(growing()))
def test_constants_that_grow_without_bound_are_refused(name: str, tmp_path: Path) -> None:
    nodes, stored = growing()[name]
    path = written(tmp_path / "model.onnx", [*nodes, helper.make_node("Add", ["x", "big"], ["y"])], stored)
    with pytest.raises(NotImplementedError, match=r"computes a constant of .* elements"):
        zeropoint.from_onnx(path)


def calling(path: Path, levels: int, calls: int, payload: int = 1) -> Path:
    """A function that calls the next one so many times, and so on: the last one has a constant of so many numbers."""
    domain, opsets = "own", [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    model = onnx.load(written(path, [helper.make_node("F0", ["x"], ["y"], domain=domain)]))
    model.opset_import.append(opsets[1])
    for level in range(levels):
        names = ["x", *(f"v{i}" for i in range(calls - 1)), "y"]
        nodes = [helper.make_node(f"F{level + 1}", [a], [b], domain=domain) for a, b in itertools.pairwise(names)]
        model.functions.append(helper.make_function(domain, f"F{level}", ["x"], ["y"], nodes, opsets))
    value = numpy_helper.from_array(np.ones(payload, np.float32))
    last = [helper.make_node("Constant", [], ["c"], value=value), helper.make_node("Mul", ["x", "c"], ["y"])]
    model.functions.append(helper.make_function(domain, f"F{levels}", ["x"], ["y"], last, opsets))
    path.write_bytes(model.SerializeToString())
    return path


def test_functions_that_call_functions_are_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    assert zeropoint.from_onnx(calling(path, 4, 3))(torch.full((2, 4), 3.0)).tolist() == [[3.0] * 4] * 2
    with pytest.raises(ValueError, match="2199023255552 nodes once its functions are put where they are called"):
        zeropoint.from_onnx(calling(path, 40, 2))
    with pytest.raises(ValueError, match="levels deep"):
        zeropoint.from_onnx(calling(path, 5000, 1))
    with pytest.raises(ValueError, match="out of proportion to the file"):
        zeropoint.from_onnx(calling(path, 10, 2, payload=50_000))
    circle = onnx.load(calling(path, 2, 1))
    circle.functions[-1].node[-1].CopyFrom(helper.make_node("F0", ["x"], ["y"], domain="own"))
    path.write_bytes(circle.SerializeToString())
    with pytest.raises(ValueError, match="or forever"):
        zeropoint.from_onnx(path)


def test_many_weights_of_the_same_data_are_refused_when_they_would_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(4_000_000))
    nodes = [helper.make_node("Sum", ["x", *(f"w{i}" for i in range(100))], ["y"])]
    weights = [external(f"w{i}", "w.bin", 0, 4_000_000) for i in range(100)]
    with pytest.raises(ValueError, match="out of proportion to the file"):
        zeropoint.from_onnx(written(tmp_path / "model.onnx", nodes, weights))


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"num_layers": 2}], ids=str)
@pytest.mark.parametrize("runtime", ["onnx", "onnxruntime"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_come_back_with_the_same_bytes(
    kind: type[nn.Module], runtime: str, options: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 6)
    ours = zeropoint.to_int8(kind(6, 4, batch_first=True, **options).eval(), (x,), mode="dynamic", progress=False)
    zeropoint.export_onnx(ours, (x,), tmp_path / "model.onnx", runtime=runtime)
    again = zeropoint.from_onnx(tmp_path / "model.onnx", (x,))
    with torch.no_grad():
        wanted, found = (pytree.tree_leaves(model(x)) for model in (ours, again))
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted):
            assert torch.equal(a, b)
        program = pytree.tree_leaves(zeropoint.compile(again, (x,))(x))
        assert all(torch.equal(a, b) for a, b in zip(program, found))


def test_recurrent_layers_of_onnx_runtime_stay_on_integers(tmp_path: Path) -> None:
    given, path = case("LSTM"), tmp_path / "model.onnx"
    ours = given.quantized()
    zeropoint.export_onnx(ours, given.example, path, runtime="onnxruntime")
    model = zeropoint.from_onnx(path, given.example)
    assert sum("quantized_lstm" in str(node.target) for node in model.graph_module.graph.nodes) == 2
    expected = as_the_file_says(path, given.example)
    assert np.abs(model(*given.example).detach().numpy() - expected).max() <= MOST_STEPS * step_of(expected)
    assert_same_program(model, given.example)
