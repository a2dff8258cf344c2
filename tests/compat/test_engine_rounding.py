"""Layers, sums and means round as the engine of PyTorch that old code has set, and dynamic ones take its bits.

Every output channel has a bias that puts one of its results on the border between two integers, where the order of the
operations decides.
"""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zeropoint
from zeropoint import qfunctions
from zeropoint.compat import functions, torch_backends
from zeropoint.compat.script_files import on_our_operators
from zeropoint.compiler.restore import restore
from zeropoint.context import CONTEXT
from zeropoint.numerics import binary
from zeropoint.ops import rounding

OUTPUTS, X_ZERO_POINT, ZERO_POINT = 2048, 31, 61
X_SCALE, SCALE = torch.tensor([0.0413, 0.0371]).tolist()  # float32, as observers give them


@pytest.fixture
def engine(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch's engine of this name, and our choice of a rounding for it."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = request.param
    monkeypatch.setattr(CONTEXT, "rounding_of_layer", torch_backends._rounding_of_engine)
    monkeypatch.setattr(CONTEXT, "rounding_of_values", torch_backends._rounding_of_values)
    monkeypatch.setattr(CONTEXT, "reduces_range", True)
    yield request.param
    torch.backends.quantized.engine = before


def operands(per_channel: bool, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Integers of an input (128, 1), a weight (OUTPUTS, 1), its scales, and a bias that makes borders."""
    random = torch.Generator().manual_seed(seed)
    x = torch.arange(128, dtype=torch.uint8).reshape(-1, 1)
    weight = torch.randint(-127, 128, (OUTPUTS, 1), generator=random).to(torch.int8)
    scales = torch.rand(OUTPUTS if per_channel else 1, generator=random) * 0.002 + 0.001
    acc = (torch.randint(0, 128, (OUTPUTS,), generator=random) - X_ZERO_POINT) * weight[:, 0].long()
    border = torch.randint(-20, 20, (OUTPUTS,), generator=random) + 0.5
    bias = (border * SCALE - acc * X_SCALE * scales.double()).float()
    return x, weight, scales, bias


def old_weight(weight: Tensor, scales: Tensor) -> Tensor:
    if scales.numel() == 1:
        return torch._make_per_tensor_quantized_tensor(weight, float(scales), 0)
    return torch._make_per_channel_quantized_tensor(weight, scales.double(), torch.zeros(OUTPUTS).long(), 0)


def our_weight(weight: Tensor, scales: Tensor) -> zeropoint.QTensor:
    if scales.numel() == 1:
        return zeropoint.make_per_tensor_quantized_tensor(weight, float(scales), 0)
    return zeropoint.make_per_channel_quantized_tensor(weight, scales.double(), torch.zeros(OUTPUTS).long(), 0)


def old_and_new(layer: str, per_channel: bool) -> tuple[Tensor, Tensor]:
    """The integers that PyTorch and ours give."""
    x, weight, scales, bias = operands(per_channel)
    old_x = torch._make_per_tensor_quantized_tensor(x, X_SCALE, X_ZERO_POINT)
    new_x = zeropoint.make_per_tensor_quantized_tensor(x, X_SCALE, X_ZERO_POINT)
    if layer == "linear":
        old = torch.ops.quantized.linear_prepack(old_weight(weight, scales), bias)
        packed = qfunctions.linear_prepack(our_weight(weight, scales), bias)
        was = torch.ops.quantized.linear(old_x, old, SCALE, ZERO_POINT)
        return was.int_repr(), qfunctions.linear(new_x, packed, SCALE, ZERO_POINT).int_repr()
    weight, shape = weight.reshape(-1, 1, 1, 1), ([1, 1], [0, 0], [1, 1], 1)
    old = torch.ops.quantized.conv2d_prepack(old_weight(weight, scales), bias, *shape)
    conv = qfunctions.conv_prepack(our_weight(weight, scales), bias, *shape)
    image = (1, 1, 8, 16)
    was = torch.ops.quantized.conv2d(old_x.reshape(image), old, SCALE, ZERO_POINT)
    return was.int_repr(), qfunctions.packed.conv(new_x.reshape(image), conv, SCALE, ZERO_POINT).int_repr()


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("layer", ["linear", "conv2d"])
@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack", "onednn"], indirect=True)
def test_integers_are_those_of_the_engine(isa: str, engine: str, layer: str, per_channel: bool) -> None:
    was, now = old_and_new(layer, per_channel)
    assert torch.equal(was, now)


def test_without_an_engine_another_order_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The borders are borders: our own rounding gives other integers on some of them, one step away."""
    x, weight, scales, bias = operands(True)
    q = zeropoint.make_per_tensor_quantized_tensor(x, X_SCALE, X_ZERO_POINT)
    made = {}
    for name in rounding.CODES:
        monkeypatch.setattr(CONTEXT, "rounding_of_layer", lambda *_, name=name: name)
        packed = qfunctions.linear_prepack(our_weight(weight, scales), bias)
        made[name] = qfunctions.linear(q, packed, SCALE, ZERO_POINT).int_repr().int()
    for name in ("fbgemm", "qnnpack", "onednn"):
        apart = (made[name] - made["zeropoint"]).abs()
        assert apart.max() == 1
        assert apart.float().mean() < 0.02


@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack", "onednn"], indirect=True)
def test_scripted_and_compiled_layers_round_alike(engine: str) -> None:
    x, weight, scales, bias = operands(True)
    layer = zeropoint.nn.quantized.Conv2d(1, OUTPUTS, 1)
    layer.set_weight_bias(our_weight(weight.reshape(-1, 1, 1, 1), scales), bias)
    layer.scale, layer.zero_point = SCALE, ZERO_POINT
    assert layer._rounding == engine
    q = zeropoint.make_per_tensor_quantized_tensor(x.reshape(1, 1, 8, 16), X_SCALE, X_ZERO_POINT)
    want = layer(q).int_repr()
    assert torch.equal(torch.jit.script(layer)(q).int_repr(), want)
    model = nn.Sequential(
        zeropoint.nn.quantized.Quantize(X_SCALE, X_ZERO_POINT, zeropoint.quint8),
        layer,
        zeropoint.nn.quantized.DeQuantize(),
    ).eval()
    floats = q.dequantize()
    assert torch.equal(zeropoint.compile(model, (floats,))(floats), model(floats))


@pytest.mark.parametrize("engine", ["x86"], indirect=True)
def test_x86_is_fbgemm_and_onednn(engine: str) -> None:
    symmetric, shifted = torch.zeros(2), torch.tensor([0, 1])
    assert rounding.chosen(symmetric) == "fbgemm"  # a linear layer
    assert rounding.chosen(symmetric, 1) == rounding.chosen(symmetric, 100, [0, 0]) == "onednn"
    assert rounding.chosen(symmetric, 101) == rounding.chosen(shifted, 1) == "fbgemm"
    assert rounding.chosen(symmetric, 1, [0, 1]) == "fbgemm"


def test_refuses_a_rounding_that_is_not_there() -> None:
    x, weight, scales, bias = operands(False)
    zero = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="rounding must be one of zeropoint, fbgemm, qnnpack, onednn, got 'gemmlowp'"):
        torch.ops.zeropoint.linear(x, 1.0, 0, weight, scales, zero, bias, 1.0, 0, "gemmlowp")


# ------------------------------------------------------------------------------------ what dynamic layers get, in bits

# Float layers and the shapes that they get.
DYNAMIC = {
    "Linear": (lambda: nn.Linear(32, 8), (5, 32)),
    "LSTM": (lambda: nn.LSTM(16, 24), (7, 3, 16)),
    "GRU": (lambda: nn.GRU(16, 24), (7, 3, 16)),
    "LSTMCell": (lambda: nn.LSTMCell(16, 24), (3, 16)),
    "GRUCell": (lambda: nn.GRUCell(16, 24), (3, 16)),
    "RNNCell": (lambda: nn.RNNCell(16, 24), (3, 16)),
}


def first(results: Any) -> Tensor:
    return results if isinstance(results, Tensor) else first(results[0])


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize("engine", ["x86", "fbgemm", "qnnpack", "onednn"], indirect=True)
def test_dynamic_layers_take_as_many_bits_as_those_of_the_engine(engine: str, name: str) -> None:
    """7, and with QNNPACK 8. The bound is one of floats: with the other bits results are 100 times as far apart."""
    make, shape = DYNAMIC[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer, x = make().eval(), torch.randn(shape)
    layer.qconfig = torch.ao.quantization.default_dynamic_qconfig
    was = first(getattr(torch.ao.nn.quantized.dynamic, name).from_float(layer)(x))
    layer.qconfig = zeropoint.default_dynamic_qconfig
    made = getattr(zeropoint.nn.quantized.dynamic, name).from_float(layer)
    torch.testing.assert_close(first(made(x)), was, rtol=1e-5, atol=1e-5)
    assert torch.equal(first(torch.jit.script(made)(x)), first(made(x)))


@pytest.mark.parametrize("reduce_range", [True, False])
@pytest.mark.parametrize("engine", ["x86", "fbgemm", "qnnpack", "onednn"], indirect=True)
def test_dynamic_operators_take_as_many_bits_as_those_of_the_engine(engine: str, reduce_range: bool) -> None:
    random = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(shape, generator=random) for shape in ((5, 32), (8, 32), (8,)))
    old = torch.ops.quantized.linear_prepack(torch.quantize_per_tensor(weight, 0.02, 0, torch.qint8), bias)
    packed = qfunctions.linear_prepack(zeropoint.quantize_per_tensor(weight, 0.02, 0, zeropoint.qint8), bias)
    was = torch.ops.quantized.linear_dynamic(x, old, reduce_range)
    torch.testing.assert_close(qfunctions.linear_dynamic(x, packed, reduce_range), was, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ["x86", "fbgemm", "qnnpack", "onednn"], indirect=True)
def test_layers_of_torchscript_take_as_many_bits_as_those_of_the_engine(engine: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(32, 8)).eval(), torch.randn(5, 32)
    old = torch.ao.quantization
    was = old.quantize_dynamic_jit(torch.jit.script(model), {"": old.default_dynamic_qconfig})(x)
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), {"": zeropoint.default_dynamic_qconfig})
    torch.testing.assert_close(made(x), was, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["quint8", "qint8"])
@pytest.mark.parametrize("reduce_range", [True, False])
@pytest.mark.parametrize("engine", ["x86", "qnnpack"], indirect=True)
def test_tensors_quantized_by_their_range_have_the_bits_of_the_engine(
    engine: str, reduce_range: bool, dtype: str
) -> None:
    x = torch.randn(9, 9, generator=torch.Generator().manual_seed(0))
    was = torch.quantize_per_tensor_dynamic(x, getattr(torch, dtype), reduce_range)
    now = zeropoint.quantize_per_tensor_dynamic(x, dtype, reduce_range)
    assert (now.q_scale(), now.q_zero_point()) == (was.q_scale(), was.q_zero_point())
    assert torch.equal(now.int_repr(), was.int_repr())
    assert functions._choose_qparams_per_tensor(x, reduce_range) == torch._choose_qparams_per_tensor(x, reduce_range)


@pytest.mark.parametrize("engine", ["fbgemm"], indirect=True)
def test_a_state_of_a_time_without_7_bits_takes_8(engine: str) -> None:
    layer = zeropoint.nn.quantized.dynamic.Linear(4, 2)
    assert layer.reduce_range
    state = layer.state_dict()
    layer.load_state_dict(state)
    assert layer.reduce_range
    state._metadata[""]["version"] = 3
    layer.load_state_dict(state)
    assert not layer.reduce_range


# ------------------------------------------------------------------------------------------ sums, means and functions


def both(integers: Tensor, scale: float, zero_point: int) -> tuple[Tensor, zeropoint.QTensor]:
    """One quantized tensor, as PyTorch's and as ours."""
    old = torch._make_per_tensor_quantized_tensor(integers, scale, zero_point)
    return old, zeropoint.make_per_tensor_quantized_tensor(integers, scale, zero_point)


def every_pair() -> tuple[Tensor, Tensor]:
    """All pairs of bytes, as two tensors."""
    every = torch.arange(256, dtype=torch.uint8)
    return every.repeat_interleave(256).reshape(4, 16, 32, 32), every.repeat(256).reshape(4, 16, 32, 32)


def image(height: int, width: int, channels_last: bool, channels: int = 19) -> Tensor:
    random = torch.Generator().manual_seed(height * width)
    values = torch.randint(0, 256, (2, channels, height, width), generator=random).to(torch.uint8)
    return values.contiguous(memory_format=torch.channels_last) if channels_last else values


# Halves everywhere; ordinary ratios; one operand that hardly counts; a wide result.
SUMS = [(0.5, 0.25, 0.5), (0.0413, 0.0371, 0.05), (0.0413, 0.0413, 0.0413), (0.001, 4.0, 4.0), (0.3, 0.2, 9.0)]


@pytest.mark.parametrize("relu", ["", "_relu"])
@pytest.mark.parametrize("scales", SUMS)
@pytest.mark.parametrize("engine", ["qnnpack"], indirect=True)
def test_sums_are_those_of_qnnpack(isa: str, engine: str, scales: tuple[float, ...], relu: str) -> None:
    a_scale, b_scale, scale = scales
    a, b = every_pair()
    (old_a, new_a), (old_b, new_b) = both(a, a_scale, 31), both(b, b_scale, 140)
    was = getattr(torch.ops.quantized, f"add{relu}")(old_a, old_b, scale, 50)
    now = getattr(qfunctions, f"add{relu}")(new_a, new_b, scale, 50)
    assert torch.equal(was.int_repr(), now.int_repr())


@pytest.mark.parametrize("scales", SUMS)
def test_a_sum_in_fixed_point_is_the_same_in_torch_operations(scales: tuple[float, ...]) -> None:
    a_scale, b_scale, scale = scales
    a, b = every_pair()
    operands = binary.Operation.fixed_add, binary.Operand(a, a_scale, 31), binary.Operand(b, b_scale, 140), scale, 50
    for relu in (False, True):
        assert torch.equal(binary._formula(*operands, relu), binary.combine(*operands, relu=relu))


@pytest.mark.parametrize("engine", ["qnnpack"], indirect=True)
def test_sums_that_qnnpack_has_not_are_as_without_it(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = every_pair()
    _, x = both(a, 0.5, 31)
    _, row = both(b[:1, :1], 0.25, 140)
    _, signed = both(a.to(torch.int8), 0.5, 3)
    sums = [
        lambda: qfunctions.add(x, row, 0.5, 50),  # shapes that differ
        lambda: qfunctions.add(signed, signed, 0.7, 5),
        lambda: qfunctions.add(x, x, 1e-4, 50),  # a ratio beyond its factors, which PyTorch refuses
    ]
    chosen = [add().int_repr() for add in sums]
    monkeypatch.setattr(CONTEXT, "rounding_of_values", None)
    for add, integers in zip(sums, chosen):
        assert torch.equal(add().int_repr(), integers)


POOLS = {
    "2x2": lambda x: F.avg_pool2d(x, 2),
    "2x3, padding": lambda x: F.avg_pool2d(x, (2, 3), 1, 1),
    "6x6": lambda x: F.avg_pool2d(x, 6, 3),
    "adaptive, windows of one size": lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
    "adaptive, others": lambda x: F.adaptive_avg_pool2d(x, 5),
    "adaptive, one place": lambda x: F.adaptive_avg_pool2d(x, 1),
    "mean": lambda x: x.mean([2, 3]),
    "mean, keepdim": lambda x: x.mean([2, 3], keepdim=True),
}


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("engine", ["qnnpack"], indirect=True)
def test_means_are_those_of_qnnpack(isa: str, engine: str, pool: str, channels_last: bool) -> None:
    # Of 16 channels: PyTorch's own kernels, for windows of several sizes, round the last C % 8 in another way.
    old, new = both(image(12, 12, channels_last, 16), 0.0413, 31)
    was, now = POOLS[pool](old), POOLS[pool](new)
    assert was.shape == now.shape
    assert torch.equal(was.int_repr(), now.int_repr())


@pytest.mark.parametrize("engine", ["qnnpack"], indirect=True)
def test_a_mean_may_depend_on_the_scale(engine: str) -> None:
    """QNNPACK multiplies with scale / (scale * n), which is not always 1 / n."""
    made = {}
    for scale in torch.linspace(0.01, 0.09, 64).tolist():
        old, new = both(image(14, 14, True, 64), scale, 0)
        made[scale] = new.mean([2, 3]).int_repr()
        assert torch.equal(old.mean([2, 3]).int_repr(), made[scale])
    assert len({tuple(integers.flatten().tolist()) for integers in made.values()}) > 1


@pytest.mark.parametrize("scale", [0.01, 0.047, 0.1])
@pytest.mark.parametrize("engine", ["qnnpack"], indirect=True)
def test_hardswish_is_that_of_qnnpack(engine: str, scale: float) -> None:
    old, new = both(torch.arange(256, dtype=torch.uint8), scale, 100)
    for out_scale in (scale, scale * 0.7, 0.5):
        was = torch.ops.quantized.hardswish(old, out_scale, 20)
        assert torch.equal(was.int_repr(), qfunctions.hardswish(new, out_scale, 20).int_repr())


class Block(nn.Module):
    """A residual block, and what else the engine rounds. Of 7 channels: of 8, means are alike if channels are last."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 7, 3, padding=1), nn.Conv2d(7, 7, 3, padding=1)
        self.swish, self.pool = nn.Hardswish(), nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.swish(self.first(x))
        small = self.pool(self.second(x) + x)
        smaller = F.adaptive_avg_pool2d(torch.relu(small + small), (2, 3))
        return torch.cat([small.flatten(1), smaller.flatten(1)], 1)


@pytest.mark.parametrize("engine", ["qnnpack"], indirect=True)
def test_scripted_and_compiled_models_sum_and_average_alike(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    batches = [torch.rand(4, 3, 12, 12, generator=random) for _ in range(3)]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Block().eval()
    prepared = zeropoint.compat.fx.prepare_fx(model, zeropoint.get_default_qconfig_mapping("qnnpack"), (batches[0],))
    for batch in batches:
        prepared(batch)
    quantized = zeropoint.compat.fx.convert_fx(prepared)
    want = quantized(batches[0])
    program = zeropoint.compile(quantized, (batches[0],))
    assert torch.equal(program(batches[0]), want)
    assert torch.equal(torch.jit.script(quantized)(batches[0]), want)
    monkeypatch.setattr(CONTEXT, "rounding_of_values", None)
    assert torch.equal(program(batches[0]), want)  # a program keeps what was chosen when it was made
    assert not torch.equal(quantized(batches[0]), want)  # halves are among these sums


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("engine", ["fbgemm", "x86", "qnnpack"], indirect=True)
def test_dynamic_linear_layers_add_their_bias_as_the_engine_does(engine: str, per_channel: bool, relu: bool) -> None:
    random = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*shape, generator=random) for shape in ((33, 40), (OUTPUTS, 40)))
    scales = weight.abs().amax(1) / 127 if per_channel else (weight.abs().max() / 127).reshape(1)
    integers = torch.clamp(torch.round(weight / scales.reshape(-1, 1)), -127, 127).to(torch.int8)
    bias = torch.randn(OUTPUTS, generator=random)
    name = "linear_relu_dynamic" if relu else "linear_dynamic"
    old = torch.ops.quantized.linear_prepack(old_weight(integers, scales), bias)
    expected = getattr(torch.ops.quantized, name)(x, old, engine != "qnnpack")
    packed = qfunctions.linear_prepack(our_weight(integers, scales), bias)
    assert torch.equal(getattr(qfunctions, name)(x, packed, engine != "qnnpack"), expected)
    given = x, *packed.operands(), engine != "qnnpack", False, packed._rounding
    assert torch.equal(getattr(torch.ops.zeropoint, name)(*given), expected)


@pytest.mark.parametrize("engine", ["fbgemm"], indirect=True)
def test_programs_of_dynamic_layers_have_the_bits_of_their_engine(engine: str) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 300), nn.Linear(300, 8)).eval()
    model, x = zeropoint.quantize_dynamic(layers), torch.randn(20, 8)
    program = zeropoint.compile(model, (x,))
    assert torch.equal(program(x), model(x))
    assert torch.equal(restore(program)[0](x), model(x))


@pytest.mark.parametrize("engine", ["x86"], indirect=True)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_scripted_module_rounds_as_the_engine_under_which_it_is_loaded(engine: str, dynamic: bool) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Flatten(), nn.Linear(16 * 36, 512)).eval()
    x = torch.randn(8, 3, 8, 8)

    def quantized() -> nn.Module:
        if dynamic:
            return zeropoint.quantize_dynamic(layers)
        model = nn.Sequential(zeropoint.QuantStub(), layers, zeropoint.DeQuantStub()).eval()
        model.qconfig = zeropoint.QConfig(zeropoint.default_observer, zeropoint.default_weight_observer)
        prepared = zeropoint.prepare(model)
        prepared(x)
        return zeropoint.convert(prepared)

    file = io.BytesIO()
    torch.jit.save(torch.jit.script(quantized()), file)
    load = on_our_operators(torch.jit.load)
    torch.backends.quantized.engine = "qnnpack"
    expected = quantized()(x)
    assert torch.equal(load(io.BytesIO(file.getvalue()))(x), expected)
    torch.backends.quantized.engine = "x86"
    assert not torch.equal(load(io.BytesIO(file.getvalue()))(x), expected)
