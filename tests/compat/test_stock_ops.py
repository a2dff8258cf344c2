"""Converted models with PyTorch's operators: the same results, and names that other programs read."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from processes import WITHOUT_THE_OLD_STACK, run
from torch import nn

import zeropoint
from zeropoint.compat import to_stock_ops
from zeropoint.compat.fx import convert_fx, prepare_fx

pytestmark = pytest.mark.oracle  # PyTorch's operators run


class Net(nn.Module):
    """Convolutions, a sum and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = zeropoint.QuantStub(), zeropoint.DeQuantStub()
        self.sum = zeropoint.nn.quantized.FloatFunctional()
        self.first, self.relu, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.first(self.quant(x)))
        return self.dequant(self.fc(self.sum.add_relu(self.second(x), x).mean([2, 3])))


class Graph(Net):
    """The same for FX graph mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.first(x))
        return self.fc((self.second(x) + x).mean([2, 3]))


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def eager() -> nn.Module:
    torch.manual_seed(0)
    model = Net().eval()
    model.qconfig = zeropoint.get_default_qconfig("x86")
    prepared = zeropoint.prepare(zeropoint.fuse_modules(model, [["first", "relu"]]))
    prepared(X)
    return zeropoint.convert(prepared)


def graph() -> nn.Module:
    torch.manual_seed(0)
    prepared = prepare_fx(Graph().eval(), zeropoint.get_default_qconfig_mapping("x86"), (X,))
    prepared(X)
    return convert_fx(prepared)


def kinds(traced: Any) -> set[str]:
    return {node.kind() for node in traced.inlined_graph.nodes()}


@pytest.mark.parametrize("make", [eager, graph])
@pytest.mark.parametrize("with_compat", [False, True])
def test_results_are_the_same_and_operators_have_the_old_names(make: Any, with_compat: bool) -> None:
    if with_compat:
        zeropoint.compat.install()
    try:
        model = make()
        theirs = to_stock_ops(model)
        traced = torch.jit.trace(theirs, X)
        assert torch.equal(theirs(X), model(X))
        assert torch.equal(traced(X), model(X))
    finally:
        zeropoint.compat.uninstall()
    found = kinds(traced)
    assert {"quantized::conv2d_relu", "quantized::conv2d", "quantized::linear", "aten::quantize_per_tensor"} <= found
    assert not any(kind.startswith("zeropoint") for kind in found)


def test_a_scripted_model_is_saved_and_runs_without_zeropoint() -> None:
    model = eager()
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(to_stock_ops(model)), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    assert torch.equal(loaded(X), model(X))
    assert not any(kind.startswith("zeropoint") for kind in kinds(loaded))


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_convolutions_of_every_dimension(kind: int) -> None:
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[kind - 1](2, 3, 3, stride=2, padding=1, bias=False)
    model = zeropoint.QuantWrapper(conv).eval()
    model.qconfig = zeropoint.get_default_qconfig("x86")
    x = torch.randn(1, 2, *[6] * kind)
    prepared = zeropoint.prepare(model)
    prepared(x)
    converted = zeropoint.convert(prepared)
    assert torch.equal(to_stock_ops(converted)(x), converted(x))


def test_openvino_reads_it() -> None:
    openvino = pytest.importorskip("openvino")
    model = graph()
    read = openvino.convert_model(torch.jit.trace(to_stock_ops(model), X), example_input=X)
    (found,) = openvino.Core().compile_model(read, "CPU")(X.numpy()).values()
    expected = model(X)
    assert (torch.from_numpy(found) - expected).abs().max() < 0.05 * expected.abs().max()


def test_a_module_without_an_operator_is_named() -> None:
    model = zeropoint.quantize_dynamic(nn.Sequential(nn.Identity(), nn.LSTM(2, 2)))
    with pytest.raises(NotImplementedError, match=r"to_stock_ops: 1 is a LSTM, for which it has no operator"):
        to_stock_ops(model)


def test_a_pytorch_without_the_operators_is_told() -> None:
    program = """
        import torch, zeropoint.compat.stock_ops as stock
        class Gone:
            def __getattr__(self, name): raise AttributeError(name)
        stock.QUANTIZED = Gone()
        try:
            stock.to_stock_ops(torch.nn.ReLU())
        except NotImplementedError as error:
            print(error)
    """
    assert "has no quantized operators" in run(WITHOUT_THE_OLD_STACK, program)
