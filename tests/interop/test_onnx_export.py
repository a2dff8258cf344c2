"""Quantized models as ONNX files: what ONNX Runtime and OpenVINO compute with them, next to ours."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from few_layers import Layers
from forked import run_forked
from graph_models import Recurrent
from interchange_models import MODELS, case, step_of
from onnx.reference import ReferenceEvaluator
from torch import Tensor, fx, nn
from ways import by_onnx_runtime, by_openvino, session

import zeropoint
from zeropoint.interop.onnx.export import VALUE

# One rounding that falls otherwise moves a value by a step, and every layer behind it spreads that: with optimizations,
# ONNX Runtime rounds the bias of a convolution to whole steps of its product, which changes 6 values of 10,000 behind
# the first layer of the ResNet and 6 of 10 behind its last, by up to 3 steps; OpenVINO's by up to 6.
MOST_STEPS, MEAN_STEPS = 8.0, 2.0
TIES = (
    1e-2  # floats are summed in another order: a value between two steps may fall otherwise, and its neighbours follow
)
ROUNDED_OTHERWISE = (
    "stored_adaptive_average_pool",
    "stored_average_pool",
    "stored_mean_over",
    "cat",
    "add_scalar",
    "mul",
)


def assert_near(found: Any, expected: Any) -> None:
    steps = np.abs(found - expected) / step_of(expected)
    assert steps.max() <= MOST_STEPS
    assert steps.mean() <= MEAN_STEPS


class Values(fx.Interpreter):
    """Runs a graph and keeps the integers that its calls give, by their names."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.found: dict[str, tuple[str, Any]] = {}

    def run_node(self, node: fx.Node) -> Any:
        result = super().run_node(node)
        if node.op == "call_function" and isinstance(result, Tensor) and result.dtype in (torch.uint8, torch.int8):
            self.found[node.name] = str(node.target), result.numpy()
        return result


def integers_of(path: Path, inputs: tuple[Tensor, ...]) -> dict[str, Any]:
    """What ONNX Runtime computes for each value of our graph, as the file says: without optimizations."""
    model = onnx.load(path)
    names = {
        entry.value: node.output[0] for node in model.graph.node for entry in node.metadata_props if entry.key == VALUE
    }
    kept = {name: value for name, value in names.items() if "Quantize" in value}
    for value in kept.values():
        model.graph.output.append(onnx.helper.make_tensor_value_info(value, onnx.TensorProto.UINT8, None))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    running = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = dict(zip((value.name for value in running.get_inputs()), (x.numpy() for x in inputs)))
    return dict(zip(kept, running.run(list(kept.values()), feed)))


@pytest.mark.parametrize("name", [name for name, (_, _, mode) in MODELS.items() if mode == "static"])
def test_every_tensor_has_our_bytes_where_onnx_runtime_does_as_the_file_says(name: str, tmp_path: Path) -> None:
    given = case(name)
    model, path = given.quantized(), tmp_path / "model.onnx"
    zeropoint.export_onnx(model, given.example, path)
    ours = Values(model.graph_module)
    with torch.no_grad():
        ours.run(*given.example)
    theirs = integers_of(path, given.example)
    compared, is_same_so_far = 0, True
    for value, (target, expected) in ours.found.items():
        if value not in theirs:
            continue
        apart = np.abs(theirs[value].astype(int) - expected.astype(int))
        if is_same_so_far:
            assert apart.max() <= 1, target
            rounds_otherwise = any(f"zeropoint.{kind}." in target for kind in ROUNDED_OTHERWISE)
            assert rounds_otherwise or (apart > 0).mean() <= TIES, target
        assert apart.mean() < 0.5, target  # behind a value that fell otherwise, its neighbours follow, layer by layer
        is_same_so_far = is_same_so_far and not apart.any()
        compared += 1
    assert compared > (0 if name == "EmbeddingBag" else 1)  # what its one layer gives is not rounded


def test_importing_zeropoint_and_exporting_nothing_loads_no_onnx() -> None:
    code = "import sys, zeropoint, torch, zeropoint.operators; sys.exit(any(m.startswith('onnx') for m in sys.modules))"
    assert run_forked(code).returncode == 0


@pytest.mark.parametrize("name", MODELS)
def test_onnx_runtime_and_openvino_compute_what_we_do(name: str, tmp_path: Path) -> None:
    given = case(name)
    model = given.quantized()
    path = tmp_path / "model.onnx"
    zeropoint.export_onnx(model, given.example, path)
    onnx.checker.check_model(str(path), full_check=True)
    expected = model(*given.example).detach().numpy()
    for run in (by_onnx_runtime, by_openvino):
        found = run(path, given.example)
        assert found.shape == expected.shape, run
        assert_near(found, expected)


# Operators that ONNX Runtime computes on integers, and how many it makes of each model; none but these stays float.
FUSED = {
    "ResNet": {"QLinearConv": 15, "QLinearAdd": 6, "QLinearGlobalAveragePool": 1, "QGemm": 1},
    "MobileNetV2": {"QLinearConv": 16, "QLinearAdd": 3, "QLinearGlobalAveragePool": 1, "QGemm": 1},
    "U-Net": {"QLinearConv": 11, "QLinearConcat": 2},
    "MiniLM, static": {"MatMulIntegerToFloat": 13, "QLinearMatMul": 4},
    "MiniLM, dynamic": {"MatMulInteger": 13},
    "EmbeddingBag": {"QGemm": 1},
}


@pytest.mark.parametrize("name", FUSED)
def test_onnx_runtime_fuses_every_layer_into_one_on_integers(name: str, tmp_path: Path) -> None:
    given = case(name)
    path, optimized = tmp_path / "model.onnx", tmp_path / "optimized.onnx"
    zeropoint.export_onnx(given.quantized(), given.example, path)
    session(path, optimized)
    found = Counter(node.op_type for node in onnx.load(optimized).graph.node)
    assert {kind: found[kind] for kind in FUSED[name]} == FUSED[name]
    assert not {"Conv", "FusedConv", "Gemm"} & set(found)


def test_bounds_are_on_integers_in_files_for_onnx_runtime(tmp_path: Path) -> None:
    given = case("MobileNetV2")
    model = given.quantized()
    path, optimized = tmp_path / "model.onnx", tmp_path / "optimized.onnx"
    zeropoint.export_onnx(model, given.example, path, runtime="onnxruntime")
    session(path, optimized)
    found = Counter(node.op_type for node in onnx.load(optimized).graph.node)
    assert (found["QuantizeLinear"], found["DequantizeLinear"], found["Relu"]) == (1, 0, 0)
    expected = model(*given.example).detach().numpy()
    assert_near(by_onnx_runtime(path, given.example), expected)


def test_recurrent_layers_for_onnx_runtime_multiply_in_8_bits(tmp_path: Path) -> None:
    given = case("LSTM")
    model = given.quantized()
    path = tmp_path / "model.onnx"
    zeropoint.export_onnx(model, given.example, path, runtime="onnxruntime")
    assert Counter(node.op_type for node in onnx.load(path).graph.node)["DynamicQuantizeLSTM"] == 2
    expected = model(*given.example).detach().numpy()
    assert_near(by_onnx_runtime(path, given.example), expected)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_openvino_takes_recurrent_layers_of_static_models(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 12, 20)
    model = zeropoint.to_int8(Recurrent(kind).eval(), (x,), [(x,)], progress=False)
    zeropoint.export_onnx(model, (x,), tmp_path / "model.onnx", runtime="openvino")
    expected = model(x).detach().numpy()
    assert_near(by_openvino(tmp_path / "model.onnx", (x,)), expected)


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_alone_are_blocks_of_inputs(bits: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers, x = nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 8)).eval(), torch.randn(4, 256)
    qconfig = zeropoint.float_qparams_weight_only_qconfig_4bit if bits == 4 else None
    model = zeropoint.to_int8(layers, (x,), qconfig=qconfig, mode="weight_only", progress=False)
    path = tmp_path / "model.onnx"
    zeropoint.export_onnx(model, (x,), path)
    first = next(node for node in onnx.load(path).graph.node if node.op_type == "DequantizeLinear")
    options = {a.name: onnx.helper.get_attribute_value(a) for a in first.attribute}
    assert options.get("block_size") == (128 if bits == 4 else None)
    expected = model(x).detach().numpy()
    # Floats are summed in another order.
    assert np.abs(ReferenceEvaluator(str(path)).run(None, {"input": x.numpy()})[0] - expected).max() < 1e-5
    assert np.abs(by_onnx_runtime(path, (x,)) - expected).max() < 1e-5


def test_free_sizes_are_named_dimensions_and_run(tmp_path: Path) -> None:
    given = case("MiniLM, static")
    model = given.quantized()
    path = tmp_path / "model.onnx"
    zeropoint.export_onnx(model, given.example, path)
    shape = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    assert [size.dim_param for size in shape] == ["ids_size_0", "ids_size_1"]
    other = (torch.randint(0, 100, (3, 9)),)
    expected = model(*other).detach().numpy()
    assert_near(by_onnx_runtime(path, other), expected)


def test_what_onnx_has_nothing_for_is_named_at_once(tmp_path: Path) -> None:
    class Model(Layers):
        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            return torch.atan2(y, x) + y.roll(1, 0)

    x = torch.randn(3, 4)
    model = zeropoint.to_int8(Model(layer=nn.Linear(4, 4)).eval(), (x,), [(x,)], progress=False)
    with pytest.raises(zeropoint.Unsupported, match=r"(?s)export_onnx.*atan2.*roll|export_onnx.*roll.*atan2"):
        zeropoint.export_onnx(model, (x,), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_float_models_and_unknown_runtimes_are_refused(tmp_path: Path) -> None:
    x = torch.randn(2, 4)
    with pytest.raises(TypeError, match="export_onnx takes a quantized model"):
        zeropoint.export_onnx(nn.Linear(4, 4), (x,), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="must be one of onnx, onnxruntime, openvino, zeropoint, got 'tensorrt'"):
        zeropoint.export_onnx(nn.Linear(4, 4), (x,), tmp_path / "model.onnx", runtime="tensorrt")


@pytest.mark.parametrize("size", [0.0, 1e-14, 1e-9, 1.0])
@pytest.mark.parametrize("layer", [nn.Linear(6, 8), nn.Conv1d(6, 8, 1), nn.ConvTranspose1d(6, 8, 1)], ids=type)
def test_a_bias_that_is_far_larger_than_the_products_is_kept(layer: nn.Module, size: float, tmp_path: Path) -> None:
    """ONNX Runtime rounds a bias to 32 bits in steps of the products."""
    torch.manual_seed(0)
    model, x = nn.Sequential(layer, nn.ReLU()).eval(), torch.randn(4, 6, 6) * size
    x = x[..., 0] if isinstance(layer, nn.Linear) else x
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    zeropoint.export_onnx(quantized, (x,), tmp_path / "model.onnx")
    assert_near(by_onnx_runtime(tmp_path / "model.onnx", (x,)), quantized(x).detach().numpy())


# ------------------------------------------------------------------------------------------------- what comes back


class Causal(Layers):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.all(x).reshape(1, -1, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_masks_of_bools_load_in_onnx_runtime(tmp_path: Path) -> None:
    x, path = torch.randn(1, 6, 16), tmp_path / "model.onnx"
    model = zeropoint.to_int8(Causal(all=nn.Linear(16, 48)).eval(), (x,), mode="dynamic", progress=False)
    program = zeropoint.compile(model, (x,))
    zeropoint.export_onnx(program, None, path)
    onnx.checker.check_model(path, full_check=True)
    assert np.abs(by_onnx_runtime(path, (x,)) - program(x).numpy()).max() < 1e-5


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.last = nn.EmbeddingBag(100, 16, mode="mean"), nn.Linear(16, 8)

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.bag(words))


def test_bags_of_one_length_come_back(tmp_path: Path) -> None:
    words, path = torch.randint(0, 100, (4, 12)), tmp_path / "model.onnx"
    model = zeropoint.to_int8(Bag().eval(), (words,), [(words,)], progress=False)
    zeropoint.export_onnx(model, (words,), path)
    assert torch.equal(zeropoint.from_onnx(path, (words,))(words), model(words))


def test_small_weights_come_back_and_compile(tmp_path: Path) -> None:
    x, path = torch.randn(2, 64), tmp_path / "model.onnx"
    layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    model = zeropoint.to_int8(layers, (x,), mode="weight_only", progress=False)
    zeropoint.export_onnx(model, (x,), path)
    again = zeropoint.from_onnx(path, (x,))
    assert torch.equal(again(x), model(x))
    assert torch.equal(zeropoint.compile(again, (x,))(x), model(x))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_dynamic_convolutions_are_integer_ones_and_come_back(dims: int, tmp_path: Path) -> None:
    x, path = torch.randn(2, 4, *[7] * dims), tmp_path / "model.onnx"
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    layers = nn.Sequential(conv(4, 8, 3, padding=1), nn.ReLU(), conv(8, 3, 3, stride=2)).eval()
    model = zeropoint.to_int8(layers, (x,), mode="dynamic", progress=False)
    zeropoint.export_onnx(model, (x,), path)
    assert [node.op_type for node in onnx.load(path).graph.node].count("ConvInteger") == 2
    assert torch.equal(zeropoint.from_onnx(path, (x,))(x), model(x))
    assert np.abs(by_onnx_runtime(path, (x,)) - model(x).numpy()).max() < 1e-4


def test_a_program_is_one_node_for_our_provider(tmp_path: Path) -> None:
    model, path = case("ResNet"), tmp_path / "model.onnx"
    zeropoint.export_onnx(model.quantized(), model.example, path, runtime="zeropoint")
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    (node,) = proto.graph.node
    held = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (node.domain, node.op_type, held["source"], held["embed_mode"]) == (
        "com.microsoft",
        "EPContext",
        b"zeropoint",
        1,
    )
    (tmp_path / "model.zpt").write_bytes(held["ep_cache_context"])
    program = zeropoint.runtime.load(tmp_path / "model.zpt")
    assert [value.name for value in proto.graph.input] == [name for name, _, _ in program.inputs]
    assert np.array_equal(program(*(x.numpy() for x in model.example)), model.quantized()(*model.example).numpy())


def test_a_program_with_state_is_refused_for_our_provider(tmp_path: Path) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("seen", torch.zeros(1, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += self.linear(x)
            return self.seen * 1.0

    x = torch.randn(1, 4)
    model = zeropoint.to_int8(Counter().eval(), (x,), [x], progress=False)
    with pytest.raises(zeropoint.Unsupported, match="has state"):
        zeropoint.export_onnx(model, (x,), tmp_path / "model.onnx", runtime="zeropoint")


def test_the_larger_and_the_smaller_of_two_tensors_come_back_with_the_same_bytes(tmp_path: Path) -> None:
    class Bounds(Layers):
        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x).exp()
            return torch.maximum(y, y.mean(-1, keepdim=True)) - torch.minimum(y, y.flip(-1))

    torch.manual_seed(0)
    x = torch.randn(3, 4)
    model = zeropoint.to_int8(Bounds(linear=nn.Linear(4, 8)).eval(), (x,), [x], progress=False)
    zeropoint.export_onnx(model, (x,), tmp_path / "model.onnx")
    assert torch.equal(zeropoint.from_onnx(tmp_path / "model.onnx", (x,))(x), model(x))
    assert np.allclose(by_onnx_runtime(tmp_path / "model.onnx", (x,)), model(x), atol=1e-6)
