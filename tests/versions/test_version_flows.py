"""The main flows, one test each: what `make test-torch` runs with another release of PyTorch.

Nothing here asks PyTorch's own quantization, whose numbers differ between releases; expected values are integers that
follow from the formula, or come from another of our own ways to compute them.
"""

from __future__ import annotations

import copy
import io
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import zeropoint
from zeropoint import runtime
from zeropoint.tensor import QTensor

COSINE = 0.98


class Net(nn.Module):
    """Convolutions with batch norm, a sum, a pool, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = zeropoint.QuantStub(), zeropoint.DeQuantStub()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.skip = zeropoint.nn.quantized.FloatFunctional()
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn(self.conv(self.quant(x))))
        x = self.skip.add(x, self.second(x))
        return self.dequant(self.fc(torch.flatten(self.pool(x), 1)))


class Reader(nn.Module):
    """An LSTM over sequences, and a linear layer on its last state."""

    def __init__(self, kind: Any = nn.LSTM) -> None:
        super().__init__()
        self.rnn, self.fc = kind(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.rnn(x)[0][:, -1])


def float_net() -> nn.Module:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    return nn.Sequential(*layers).eval()


def images(count: int = 4) -> torch.Tensor:
    return torch.randn(count, 3, 8, 8)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


def calibrated() -> Any:
    return zeropoint.to_int8(float_net(), (images(1),), [images()], progress=False)


def assert_close(quantized: Any, model: Any, x: torch.Tensor) -> None:
    """All of the output points where the float model's does; COSINE is what 8 bits of weights and values leave."""
    with torch.no_grad():
        found, expected = quantized(x), model(x)
    assert found.shape == expected.shape
    assert torch.nn.functional.cosine_similarity(found.flatten(), expected.flatten(), dim=0) > COSINE


def eager_static() -> nn.Module:
    model = zeropoint.fuse_modules(Net().eval(), [["conv", "bn", "relu"]])
    model.qconfig = zeropoint.get_default_qconfig("native")
    prepared = zeropoint.prepare(model)
    prepared(images())
    return zeropoint.convert(prepared)


# ------------------------------------------------------------------------------------------------- numbers and tensors


def test_operators_round_by_the_formula() -> None:
    x = torch.tensor([-1.0, 0.0, 0.26, 0.76, 200.0])
    q = torch.ops.zeropoint.quantize_per_tensor(x, 0.5, 3, 0, 255, torch.uint8)
    assert q.tolist() == [1, 3, 4, 5, 255]
    assert torch.ops.zeropoint.dequantize_per_tensor(q, 0.5, 3, 0, 255, torch.uint8).tolist() == [-1, 0, 0.5, 1, 126]


def test_quantized_tensors() -> None:
    q = zeropoint.quantize_per_tensor(torch.arange(12.0).view(3, 4), 0.5, 3, zeropoint.quint8)
    assert isinstance(q, QTensor)
    assert q[1, 1:].int_repr().tolist() == [13, 15, 17]
    assert torch.cat([q, q]).view(-1).shape == (24,)
    assert torch.equal(q.t().contiguous().dequantize(), q.dequantize().t())
    rows = zeropoint.quantize_per_channel(
        torch.ones(2, 3), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, zeropoint.qint8
    )
    assert rows.int_repr().tolist() == [[2] * 3, [5] * 3]


@pytest.mark.parametrize("weights_only", [False, True])
def test_quantized_tensors_are_saved_and_loaded(weights_only: bool) -> None:
    q = zeropoint.quantize_per_tensor(torch.randn(3, 4), 0.1, 3, zeropoint.qint8)
    file = io.BytesIO()
    torch.save({"q": q}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=weights_only)["q"]
    assert torch.equal(loaded.int_repr(), q.int_repr())
    assert loaded.q_scale() == q.q_scale()
    assert torch.equal(copy.deepcopy(q).int_repr(), q.int_repr())


def test_functions_of_quantized_tensors() -> None:
    q = zeropoint.quantize_per_tensor(torch.randn(2, 8, 4, 4), 0.05, 128, zeropoint.quint8)
    y = zeropoint.qfunctions.add(q, q, 0.1, 128)
    assert torch.equal(y.int_repr(), q.int_repr())
    assert torch.nn.functional.max_pool2d(q, 2).shape == (2, 8, 2, 2)
    assert torch.relu(q).int_repr().min() >= 128


def test_compiled_functions_take_and_make_quantized_tensors() -> None:
    def function(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        floats = q[:, 1:].dequantize() + 1
        return floats, zeropoint.quantize_per_tensor(floats, 0.2, 4, zeropoint.quint8)

    q = zeropoint.quantize_per_tensor(torch.randn(3, 4), 0.1, 3, zeropoint.quint8)
    floats, made = torch.compile(function, backend="aot_eager", fullgraph=True)(q)
    assert torch.equal(floats, function(q)[0])
    assert torch.equal(made.int_repr(), function(q)[1].int_repr())


# ----------------------------------------------------------------------------------------- observers, fake quantization


@pytest.mark.parametrize(
    "name", ["MinMaxObserver", "MovingAverageMinMaxObserver", "HistogramObserver", "PerChannelMinMaxObserver"]
)
def test_observers_give_the_same_scripted(name: str) -> None:
    observer = getattr(zeropoint, name)()
    scripted = torch.jit.script(getattr(zeropoint, name)())
    for x in (torch.randn(5, 7), 3 * torch.randn(5, 7)):
        observer(x), scripted(x)
    for ours, theirs in zip(observer.calculate_qparams(), scripted.calculate_qparams()):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "name", ["default_fake_quant", "default_fused_act_fake_quant", "default_per_channel_weight_fake_quant"]
)
def test_fake_quantization_has_a_gradient(name: str) -> None:
    x = torch.randn(4, 6, requires_grad=True)
    getattr(zeropoint, name)()(x).sum().backward()
    assert x.grad is not None
    assert set(x.grad.unique().tolist()) <= {0.0, 1.0}
    assert x.grad.mean() > 0.5


# ----------------------------------------------------------------------------------------------------------- eager mode


def test_eager_static_and_its_other_forms() -> None:
    model, x = eager_static(), images()
    expected = model(x)
    assert isinstance(model.conv, zeropoint.nn.intrinsic.quantized.ConvReLU2d)
    assert torch.equal(torch.jit.script(model)(x), expected)
    assert torch.equal(torch.jit.trace(model, (x,))(x), expected)
    assert torch.equal(torch.export.export(model, (x,), strict=False).module()(x), expected)


def test_eager_models_compile() -> None:
    model, x = eager_static(), images()
    assert torch.equal(torch.compile(model, backend="aot_eager")(x), model(x))


def test_a_scripted_model_is_saved_and_loaded() -> None:
    model, x, file = eager_static(), images(), io.BytesIO()
    torch.jit.save(torch.jit.script(model), file)
    file.seek(0)
    assert torch.equal(torch.jit.load(file)(x), model(x))


def test_state_dicts_are_loaded_into_a_converted_model() -> None:
    model, other, file = eager_static(), eager_static(), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    x = images()
    assert torch.equal(other(x), model(x))


def test_eager_training_is_what_is_deployed() -> None:
    model = zeropoint.fuse_modules_qat(Net().train(), [["conv", "bn", "relu"]])
    model.qconfig = zeropoint.get_default_qat_qconfig("native")
    trained = zeropoint.prepare_qat(model)
    optimizer = torch.optim.SGD(trained.parameters(), 0.01)
    for _ in range(2):
        optimizer.zero_grad()
        trained(images()).square().sum().backward()
        optimizer.step()
    trained.eval().apply(zeropoint.disable_observer)
    deployed, x = zeropoint.convert(trained), images()
    assert (trained(x) - deployed(x)).abs().max() <= deployed.fc.scale


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_dynamic_quantization(kind: type) -> None:
    model = Reader(kind).eval()
    quantized, x = zeropoint.quantize_dynamic(model, {nn.Linear, kind}), torch.randn(2, 5, 6)
    assert isinstance(quantized.fc, zeropoint.nn.quantized.dynamic.Linear)
    assert_close(quantized, model, x)
    assert torch.equal(torch.jit.script(quantized)(x), quantized(x))


# ----------------------------------------------------------------------------------------------------------- graph mode


def test_graphs_keep_the_batch_free_with_an_example_of_one() -> None:
    quantized, batch = calibrated(), images(5)
    assert quantized.summary().counts()["int8"] == 2
    assert torch.equal(quantized(batch), torch.cat([quantized(x[None]) for x in batch]))


def test_graphs_with_ranges_taken_as_they_run() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    quantized = zeropoint.to_int8(model, (torch.randn(1, 6),), mode="dynamic", progress=False)
    assert quantized.summary().counts()["int8, dynamic"] == 2
    assert_close(quantized, model, torch.randn(5, 6))


def test_a_size_of_one_that_is_broadcast_stays_fixed_and_is_named() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
            return self.fc(x) * factor

    inputs = torch.randn(5, 4), torch.rand(1, 4)
    with pytest.warns(UserWarning, match=r"size 1 of factor along axis 0 is fixed"):
        quantized = zeropoint.to_int8(Scaled().eval(), inputs, [inputs], progress=False)
    assert quantized(torch.randn(3, 4), torch.rand(1, 4)).shape == (3, 4)


def test_recurrences_are_captured_whole_with_a_free_length() -> None:
    model = Reader().eval()
    quantized = zeropoint.to_int8(model, (torch.randn(1, 5, 6),), [torch.randn(4, 5, 6)], progress=False)
    assert_close(quantized, model, torch.randn(3, 9, 6))


def test_an_encoder_layer() -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    quantized = zeropoint.to_int8(model, (torch.randn(1, 5, 16),), [torch.randn(4, 5, 16)], progress=False)
    assert_close(quantized, model, torch.randn(3, 7, 16))


def test_sizes_that_the_model_asked_about_are_checked() -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x) if x.shape[0] > 2 else self.fc(x) + 1

    quantized = zeropoint.to_int8(Asks().eval(), (torch.randn(5, 4),), [torch.randn(5, 4)], progress=False)
    assert quantized(torch.randn(3, 4)).shape == (3, 4)
    with pytest.raises(ValueError, match="do not match"):
        quantized(torch.randn(2, 4))


def test_graph_training_is_what_is_deployed() -> None:
    mapping = zeropoint.get_default_qat_qconfig_mapping("native")
    trained = zeropoint.prepare_qat_graph(float_net().train(), mapping, (images(2),))
    trained(images()).sum().backward()
    trained.eval().apply(zeropoint.disable_observer)
    assert_close(zeropoint.convert_graph(trained), trained, images())


def test_graphs_compile_and_export() -> None:
    quantized, x = calibrated(), images()
    expected = quantized(x)
    assert torch.equal(torch.compile(quantized, backend="aot_eager")(x), expected)
    assert torch.equal(torch.export.export(quantized, (x,), strict=False).module()(x), expected)


@pytest.mark.parametrize("wrap", [torch.jit.script, lambda model: torch.jit.trace(model, (images(),))])
def test_torchscript_mode(wrap: Any) -> None:
    model, x = wrap(float_net()), images()
    qconfig = {"": zeropoint.get_default_qconfig("native")}
    quantized = zeropoint.quantize_jit(model, qconfig, lambda m, data: m(data), [x])
    assert_close(quantized, model, x)


def test_torchscript_mode_with_ranges_taken_as_it_runs() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval())
    quantized = zeropoint.quantize_dynamic_jit(model, {"": zeropoint.default_dynamic_qconfig})
    assert_close(quantized, model, torch.randn(5, 6))


# ------------------------------------------------------------------------------------------------------------- programs


def test_programs_take_tensors_and_give_tensors(tmp_path: Path) -> None:
    quantized = calibrated()
    program = zeropoint.compile(quantized, (images(1),))
    x = images(5)
    found = program(x)
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, quantized(x))
    assert torch.equal(program(nn.Parameter(x)), found)
    assert torch.equal(program(torch._neg_view(-x)), found)
    assert isinstance(program(x.numpy()), np.ndarray)
    program.save(tmp_path / "model.zpt")
    assert np.array_equal(runtime.load(tmp_path / "model.zpt")(x.numpy()), found.numpy())


def test_programs_from_torchscript() -> None:
    x = images()
    model = torch.jit.script(float_net())
    quantized = zeropoint.quantize_jit(
        model, {"": zeropoint.get_default_qconfig("native")}, lambda m, data: m(data), [x]
    )
    program = zeropoint.compile(quantized, (x,))
    assert torch.equal(program(x), quantized(x))


def test_errors_of_compiled_torchscript_name_the_line() -> None:
    class Wrapped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.logcumsumexp(x, 1)

    with pytest.raises(NotImplementedError, match="logcumsumexp"):
        zeropoint.compile(torch.jit.script(Wrapped()), (torch.randn(3, 4),))


def test_programs_with_what_only_pytorch_computes() -> None:
    class Cumulative(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.logcumsumexp(self.fc(x), 1)

    quantized = zeropoint.to_int8(Cumulative().eval(), (torch.randn(3, 4),), [torch.randn(3, 4)], progress=False)
    program, x = zeropoint.compile(quantized, (torch.randn(3, 4),), fallback=True), torch.randn(3, 4)
    assert torch.equal(program(x), quantized(x))


# --------------------------------------------------------------------------------------------------------------- compat

OLD = """
import torch, zeropoint.compat
import torch.ao.quantization.fx._decomposed  # so that PyTorch has kernels of its own to be replaced
zeropoint.compat.install()
import torch.ao.quantization as tq
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
from torch import nn

x = torch.randn(4, 6)
q = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
assert type(q).__name__ == "QTensor" and q.dtype == torch.quint8
assert torch.equal(torch.ops.quantized.add(q, q, 0.2, 10).int_repr(), q.int_repr())
model = nn.Sequential(tq.QuantStub(), nn.Linear(6, 5), nn.ReLU(), tq.DeQuantStub()).eval()
model.qconfig = tq.get_default_qconfig("x86")
prepared = tq.prepare(tq.fuse_modules(model, [["1", "2"]]))
prepared(x)
assert type(tq.convert(prepared)[1]).__module__.startswith("zeropoint.")
plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
graph = prepare_fx(plain, tq.get_default_qconfig_mapping("x86"), (x,))
graph(x)
assert torch.nn.functional.cosine_similarity(convert_fx(graph)(x), plain(x)).min() > 0.9
assert type(tq.quantize_dynamic(plain, {nn.Linear})[0]).__module__.startswith("zeropoint.")
decomposed = torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 10, 0, 255, torch.uint8)
assert torch.equal(decomposed, q.int_repr())
zeropoint.compat.uninstall()
assert not type(torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)).__module__.startswith("zeropoint")
again = torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 10, 0, 255, torch.uint8)
assert torch.equal(again, decomposed)
print("old code ran")
"""


def test_old_code_runs_on_the_drop_in() -> None:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(OLD)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.stdout == "old code ran\n", ran.stderr
