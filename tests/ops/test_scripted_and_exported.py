"""Operators in compiled, exported and scripted functions."""

from __future__ import annotations

import pytest
import torch
from layer_samples import BYTES_IN, LINEAR, bytes_layer
from sample_tensors import FLOAT32, INT8, SCALE, UINT8, ZERO, codes, leaf, ours, values
from strategies import assert_same

import zeropoint


def per_tensor(x):
    q = ours.quantize_per_tensor(x, 0.05, 3, *UINT8)
    return ours.dequantize_per_tensor(q, 0.05, 3, *UINT8) + 1


def dynamic(x):
    scale, zero_point = ours.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
    q = ours.quantize_per_tensor.tensor(x, scale, zero_point, *UINT8)
    return ours.dequantize_per_tensor.tensor(q, scale, zero_point, *UINT8)


def symmetric(x):
    scale, zero_point = ours.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8)
    limits = torch.tensor(-127), torch.tensor(127)
    q = ours.quantize_per_tensor.tensor2(x, scale, zero_point, *limits, torch.int8)
    return ours.dequantize_per_tensor.tensor2(q, scale, zero_point, *limits, torch.int8, out_dtype=torch.float16)


def per_channel(x):
    parameters = torch.full((x.shape[1],), 0.05), torch.zeros(x.shape[1], dtype=torch.int64)
    q = ours.quantize_per_channel(x, *parameters, 1, *INT8)
    return ours.dequantize_per_channel(q, *parameters, 1, *INT8)


def per_token(x):
    scale, zero_point = ours.choose_qparams_per_token_asymmetric(x, torch.int8)
    q = ours.quantize_per_token(x, scale, zero_point, *INT8)
    y = ours.dequantize_per_token(q, scale, zero_point, *INT8, FLOAT32)
    scale, zero_point = ours.choose_qparams_per_token(y, torch.int8)
    return y, ours.quantize_per_token(y, scale, zero_point, *INT8)


def per_group(x):
    parameters = torch.full((x.shape[0], 2), 0.05), torch.zeros(x.shape[0], 2, dtype=torch.int32)
    q = ours.quantize_per_channel_group(x, *parameters, *INT8, 4)
    return ours.dequantize_per_channel_group(q, *parameters, *INT8, 4, FLOAT32)


def per_block(x):
    parameters = torch.full((x.shape[0], 2), 0.05), torch.zeros(x.shape[0], 2, dtype=torch.int32)
    q = ours.quantize_per_block(x, [1, 4], *parameters, *INT8)
    return ours.dequantize_per_block(q, [1, 4], *parameters, *INT8)


def fake_quantized(x):
    parameters = torch.full((x.shape[1],), 0.1), torch.zeros(x.shape[1], dtype=torch.int32)
    y = zeropoint.fake_quantize_per_tensor_affine(x * 2, 0.1, 0, -8, 7)
    y = zeropoint.fake_quantize_per_channel_affine(y * 2, *parameters, 1, -8, 7)
    return ours.fake_quant_per_channel(y * 2, *parameters, 1, -8, 7)


WEIGHT, OTHER_WEIGHT = bytes_layer(7, 8, outputs=7), bytes_layer(6, 1, 2, 2, outputs=6)


def linear(x):
    q = ours.quantize_per_tensor(x, 0.05, 3, *UINT8)
    return ours.linear(q, 0.05, 3, *WEIGHT, 2.0, 100) + 1


def linear_dynamic(x):
    return ours.linear_dynamic(x * 2, *WEIGHT), ours.linear_dynamic(x * 2, *WEIGHT, False, True)


def conv2d_add_relu(x):
    q = ours.quantize_per_tensor(x.reshape(x.shape[0], 1, 2, 4), 0.05, 3, *UINT8)
    shape = [1, 1], [1, 1], [2, 2], 1
    y = ours.conv2d(q, 0.05, 3, *OTHER_WEIGHT, *shape, 2.0, 100)
    return ours.conv2d_add_relu(q, 0.05, 3, *OTHER_WEIGHT, *shape, y, 2.0, 100, 4.0, 50)


def elementwise(x):
    a = ours.quantize_per_tensor(x, 0.05, 3, *UINT8)
    b = ours.hardswish(a, 0.05, 3, 0.1, 5)
    y = ours.mul(ours.add_relu(a, 0.05, 3, b[:1], 0.1, 5, 0.2, 9), 0.2, 9, b, 0.1, 5, 0.3, 7)
    return ours.cat([y, ours.add_scalar(y, 0.3, 7, 1.5)], [0.3, 0.3], [7, 2], 1, 0.3, 7)


RECURRENT = [codes(12, 8), codes(12, 3)], [SCALE, SCALE], [ZERO, ZERO], [values(12), values(12)]


def recurrent(x):
    h = x.new_zeros(1, x.shape[0], 3)
    y, _, c = ours.quantized_lstm.input(x.unsqueeze(0), [h, h], *RECURRENT, 1, 0.0, False, False, False)
    return y + 1, c


FAMILIES = [
    elementwise,
    linear,
    recurrent,
    linear_dynamic,
    conv2d_add_relu,
    per_tensor,
    dynamic,
    symmetric,
    per_channel,
    per_token,
    per_group,
    per_block,
    fake_quantized,
]
families = pytest.mark.parametrize("function", FAMILIES, ids=lambda f: f.__name__)


def assert_all_same(found, expected) -> None:
    if isinstance(expected, torch.Tensor):
        found, expected = (found,), (expected,)
    for a, b in zip(found, expected):
        assert_same(a, b)


@pytest.fixture
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_compiler")
@families
@pytest.mark.parametrize("dynamic_shapes", [False, True], ids=["static", "dynamic"])
def test_compiled_in_one_graph_gives_what_eager_gives(function, dynamic_shapes):
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic_shapes)
    for rows in (3, 5, 17):
        x = values(rows, 8)
        assert_all_same(compiled(x), function(x))


@pytest.mark.usefixtures("_fresh_compiler")
def test_inductor_gives_what_eager_gives():
    def together(x):  # one call of the C++ compiler for all of them
        return *per_token(x), fake_quantized(x), linear(x), conv2d_add_relu(x)

    x = values(5, 8)
    assert_all_same(torch.compile(together, fullgraph=True, backend="inductor")(x), together(x))


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.thorough)])
def test_compiled_gradients_are_eager_gradients(backend):
    gradients = []
    for function in (fake_quantized, torch.compile(fake_quantized, fullgraph=True, backend=backend)):
        x = leaf(5, 8)
        (function(x) ** 2).sum().backward()
        gradients.append(x.grad)
    assert_same(*gradients)


@pytest.mark.usefixtures("_fresh_compiler")
@families
def test_exported_program_gives_what_eager_gives(function):
    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(Module(), (values(3, 8),), dynamic_shapes=({0: batch},))
    targets = [str(node.target) for node in program.graph.nodes]
    assert any(target.startswith("zeropoint.") for target in targets)
    for rows in (3, 7):
        x = values(rows, 8)
        assert_all_same(program.module()(x), function(x))


def test_exported_program_survives_a_file(tmp_path):
    class Module(torch.nn.Module):
        def forward(self, x):
            return dynamic(x)

    path = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(Module(), (values(3, 8),)), path)
    x = values(3, 8)
    assert_same(torch.export.load(path).module()(x), dynamic(x))


def test_scripted_function_gives_what_eager_gives(tmp_path):
    def layer(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, bias: torch.Tensor):
        return torch.ops.zeropoint.linear(x, 0.1, 3, w, scale, zero_point, bias, 2.0, 100)

    scripted = torch.jit.script(layer)
    expected = ours.linear(*BYTES_IN, *LINEAR, 2.0, 100)
    assert_same(scripted(BYTES_IN[0], *LINEAR), expected)
    scripted.save(str(tmp_path / "layer.pt"))
    assert_same(torch.jit.load(tmp_path / "layer.pt")(BYTES_IN[0], *LINEAR), expected)
