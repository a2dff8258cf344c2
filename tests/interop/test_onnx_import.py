"""ONNX files as models: float ones, those that others quantized, ours again, and broken ones."""

from __future__ import annotations

import functools
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from interchange_models import MODELS, Case, case, step_of
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
from torch import Tensor, nn

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


def as_the_file_says(path: Path, inputs: tuple[Tensor, ...]) -> Any:
    """What ONNX Runtime computes without optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), (x.numpy() for x in inputs))))[0]


@functools.cache
def _float_bytes(name: str) -> bytes:
    given = case(name)
    names = [f"input_{i}" for i in range(len(given.example))]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        is_recurrent = any(isinstance(module, nn.RNNBase) for module in given.model.modules())
        options: Any = {"dynamo": False} if is_recurrent else {"dynamo": True, "external_data": False, "verbose": False}
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "float.onnx")
            torch.onnx.export(given.model, given.example, str(path), input_names=names, **options)
            return path.read_bytes()


def float_file(name: str, path: Path) -> Path:
    """The model as PyTorch's exporter writes it, once."""
    path.write_bytes(_float_bytes(name))
    return path


class Reader(CalibrationDataReader):
    def __init__(self, given: Case) -> None:
        names = [f"input_{i}" for i in range(len(given.example))]
        count = given.example[0].shape[0]
        feeds = [dict(zip(names, (t[:count].numpy() for t in batch))) for batch in given.calibration]
        self.feeds = iter(feeds)

    def get_next(self) -> Any:
        return next(self.feeds, None)


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


@pytest.mark.parametrize("name", [name for name in MODELS if name != "LSTM"])
def test_our_files_come_back_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    given = case(name)
    model = given.quantized()
    zeropoint.export_onnx(model, given.example, tmp_path / "model.onnx")
    again = zeropoint.from_onnx(tmp_path / "model.onnx", given.example)
    with torch.no_grad():
        assert torch.equal(again(*given.example), model(*given.example))
    assert_same_program(again, given.example)


@pytest.mark.parametrize("name", EXPORTED)
@pytest.mark.parametrize("kinds", [(QuantType.QUInt8, QuantType.QInt8), (QuantType.QInt8, QuantType.QInt8)], ids=str)
def test_files_of_onnx_runtimes_quantizer_become_programs_with_their_scales(
    name: str, kinds: tuple[Any, Any], tmp_path: Path
) -> None:
    given, path = case(name), tmp_path / "static.onnx"
    source = float_file(name, tmp_path / "float.onnx")
    quantize_static(source, path, Reader(given), per_channel=True, activation_type=kinds[0], weight_type=kinds[1])
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
    given, path = case("MiniLM, dynamic"), tmp_path / "dynamic.onnx"
    quantize_dynamic(float_file("MiniLM, dynamic", tmp_path / "float.onnx"), path, per_channel=True)
    model = zeropoint.from_onnx(path, given.example)
    assert sum("linear_dynamic" in str(node.target) for node in model.graph_module.graph.nodes) == 13
    expected = as_the_file_says(path, given.example)
    assert np.abs(model(*given.example).detach().numpy() - expected).max() <= MOST_STEPS * step_of(expected)
    assert_same_program(model, given.example)


@pytest.mark.parametrize("name", EXPORTED)
def test_files_of_nncf_become_programs_with_their_scales(name: str, tmp_path: Path) -> None:
    import nncf

    given, path = case(name), tmp_path / "nncf.onnx"
    source = onnx.load(float_file(name, tmp_path / "float.onnx"))
    feeds = Reader(given).feeds
    onnx.save(nncf.quantize(source, nncf.Dataset(list(feeds))), path)
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
    nodes = [helper.make_node("Det", ["x"], ["a"]), helper.make_node("Thing", ["a"], ["y"], domain="com.example")]
    path = written(tmp_path / "model.onnx", nodes)
    with pytest.raises(NotImplementedError, match=r"2 operators .* Det \(1 x\), com.example.Thing \(1 x\)"):
        zeropoint.from_onnx(path)


def test_control_flow_is_refused(tmp_path: Path) -> None:
    inner = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "then", [], [
        helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    with pytest.raises(NotImplementedError, match=r"If \(1 x\)"):
        zeropoint.from_onnx(written(tmp_path / "model.onnx", [node], [condition]))


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "link/secret.bin", "", "none.bin"])
def test_data_outside_the_folder_is_not_read(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path)
    path = written(
        folder / "model.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], [external("w", location, 0, 16)]
    )
    with pytest.raises(ValueError, match=r"outside its folder|is not there"):
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
    with pytest.raises(ValueError, match="ends behind the end"):
        zeropoint.from_onnx(written(tmp_path / "model.onnx", nodes, [external("w", "w.bin", 8, 16)]))


def test_broken_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for data in (b"", b"not a model", bytes(100)):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="is no ONNX model"):
            zeropoint.from_onnx(path)
    broken = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**40], raw_data=bytes(16))
    with pytest.raises(ValueError, match="'w' is broken"):
        zeropoint.from_onnx(written(path, [helper.make_node("Add", ["x", "w"], ["y"])], [broken]))
    with pytest.raises(FileNotFoundError, match="there is no file"):
        zeropoint.from_onnx(tmp_path / "none.onnx")
    with pytest.raises(ValueError, match="opset 6"):
        zeropoint.from_onnx(written(path, [helper.make_node("Relu", ["x"], ["y"])], opset=6))
    with pytest.raises(ValueError, match="reads 'nowhere', which nothing defines"):
        zeropoint.from_onnx(written(path, [helper.make_node("Relu", ["nowhere"], ["y"])]))
    with pytest.raises(ValueError, match="nothing defines its output 'y'"):
        zeropoint.from_onnx(written(path, [helper.make_node("Relu", ["x"], ["z"])]))
    with pytest.raises(ValueError, match="a Constant has no value"):
        zeropoint.from_onnx(written(path, [helper.make_node("Constant", [], ["y"])]))
    with pytest.raises(ValueError, match="Relu 'act' cannot be computed"):
        zeropoint.from_onnx(written(path, [helper.make_node("Relu", [], ["y"], name="act")]))
    shapes = [numpy_helper.from_array(np.zeros(size, np.float32), f"w{size}") for size in (2, 3)]
    with pytest.raises(ValueError, match="Add 'sum' cannot be computed"):
        zeropoint.from_onnx(written(path, [helper.make_node("Add", ["w2", "w3"], ["y"], name="sum")], shapes))
    proto = onnx.load(written(path, [helper.make_node("Relu", ["x"], ["y"])]))
    proto.graph.input[0].type.tensor_type.elem_type = 99
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ValueError, match="no dtype with the number 99"):
        zeropoint.from_onnx(path)


def test_constants_that_grow_without_bound_are_refused(tmp_path: Path) -> None:
    shape = numpy_helper.from_array(np.array([2**20, 2**20], dtype=np.int64), "shape")
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["big"]), helper.make_node("Add", ["x", "big"], ["y"])]
    with pytest.raises(NotImplementedError, match="more than"):
        zeropoint.from_onnx(written(tmp_path / "model.onnx", nodes, [shape]))


def test_recurrent_layers_of_onnx_runtime_stay_on_integers(tmp_path: Path) -> None:
    given, path = case("LSTM"), tmp_path / "model.onnx"
    ours = given.quantized()
    zeropoint.export_onnx(ours, given.example, path, runtime="onnxruntime")
    model = zeropoint.from_onnx(path, given.example)
    assert sum("quantized_lstm" in str(node.target) for node in model.graph_module.graph.nodes) == 2
    expected = as_the_file_says(path, given.example)
    assert np.abs(model(*given.example).detach().numpy() - expected).max() <= MOST_STEPS * step_of(expected)
    assert_same_program(model, given.example)
