"""Layers in TorchScript: fused with their ReLU, equal to eager mode, integers between them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from eight_bit_steps import steps_between
from script_graphs import BOTH_WAYS, STATIC, calls, kinds, quantized, reloaded, scripted
from torch import Tensor, nn

import zeropoint
from zeropoint import QConfig

SIZES = {1: (2, 3, 9), 2: (2, 3, 7, 6), 3: (2, 3, 5, 4, 5)}
QCONFIGS = {
    "per-tensor": QConfig(activation=zeropoint.default_observer, weight=zeropoint.default_weight_observer),
    "per-channel": QConfig(activation=zeropoint.default_observer, weight=zeropoint.default_per_channel_weight_observer),
    "histogram": QConfig(
        activation=zeropoint.default_histogram_observer, weight=zeropoint.default_per_channel_weight_observer
    ),
    "native": STATIC[""],
}


def in_eager_mode(model: nn.Module, qconfig: Any, x: Tensor) -> Tensor:
    """The result of the same layers in eager mode, whose values are quantized and dequantized at the ends."""
    wrapped = zeropoint.QuantWrapper(copy.deepcopy(model)).eval()
    wrapped.qconfig = qconfig
    prepared = zeropoint.prepare(wrapped)
    prepared(x)
    return zeropoint.convert(prepared)(x)


class Functional(nn.Module):
    """A linear layer as a function of tensors that are no parameters."""

    def __init__(self, bias: bool, relu: bool) -> None:
        super().__init__()
        self.weight, self.bias = torch.randn(4, 6), torch.randn(4) if bias else None
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        return F.relu(y) if self.relu else y


class Followed(nn.Module):
    """A layer and a ReLU, as people write it."""

    def __init__(self, layer: nn.Module, spelling: str) -> None:
        super().__init__()
        self.layer, self.spelling = layer, spelling
        self.relu = nn.ReLU(inplace=spelling == "module in place")

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if self.spelling == "function":
            return F.relu(y)
        if self.spelling == "function in place":
            return F.relu(y, True)
        if self.spelling == "method":
            return y.relu_()
        return self.relu(y)


def conv(dims: int, **options: Any) -> nn.Module:
    torch.manual_seed(dims)
    return getattr(nn, f"Conv{dims}d")(3, 4, 3, **options)


@BOTH_WAYS
@pytest.mark.parametrize("name", QCONFIGS)
def test_linear_is_that_of_eager_mode(name: str, traced: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)).eval(), torch.randn(7, 6)
    made = quantized(scripted(model, traced, x), x, qconfigs={"": QCONFIGS[name]})
    assert calls(made) == ["quantize_per_tensor", "linear", "linear", "dequantize"]
    assert torch.equal(made(x), in_eager_mode(model, QCONFIGS[name], x))


@BOTH_WAYS
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolution_is_that_of_eager_mode(dims: int, traced: bool) -> None:
    model, x = conv(dims, stride=2, padding=1, bias=dims != 2).eval(), torch.randn(SIZES[dims])
    made = quantized(scripted(model, traced, x), x)
    assert calls(made) == ["quantize_per_tensor", f"conv{dims}d", "dequantize"]
    assert not any("conv" in kind for kind in kinds(made) if kind.startswith("aten::"))
    assert torch.equal(made(x), in_eager_mode(model, STATIC[""], x))


@BOTH_WAYS
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_convolution_is_that_of_eager_mode(dims: int, traced: bool) -> None:
    torch.manual_seed(0)
    model = getattr(nn, f"ConvTranspose{dims}d")(3, 4, 3, stride=2, output_padding=1).eval()
    x, qconfig = torch.randn(SIZES[dims]), QCONFIGS["per-tensor"]
    made = quantized(scripted(model, traced, x), x, qconfigs={"": qconfig})
    assert calls(made) == ["quantize_per_tensor", f"conv_transpose{dims}d", "dequantize"]
    assert torch.equal(made(x), in_eager_mode(model, qconfig, x))


@BOTH_WAYS
@pytest.mark.parametrize("spelling", ["module", "module in place", "function", "function in place", "method"])
@pytest.mark.parametrize("kind", ["linear", "conv2d"])
def test_relu_becomes_part_of_the_layer(kind: str, spelling: str, traced: bool) -> None:
    dims = 0 if kind == "linear" else int(kind[4])
    x = torch.randn(SIZES[dims] if dims else (5, 3))
    model = Followed(conv(dims) if dims else nn.Linear(3, 4), spelling).eval()
    made = quantized(scripted(model, traced, x), x)
    assert calls(made) == ["quantize_per_tensor", f"{kind}_relu", "dequantize"]
    assert not {"aten::relu", "aten::relu_", "aten::clamp_min"} & set(kinds(made))
    assert (made(x) >= 0).all()
    assert steps_between(made(x), model(x)) <= 4


@BOTH_WAYS
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
def test_functional_linear_with_tensors_of_the_module(bias: bool, relu: bool, traced: bool) -> None:
    torch.manual_seed(0)
    model, x = Functional(bias, relu).eval(), torch.randn(5, 6)
    made = quantized(scripted(model, traced, x), x)
    assert calls(made) == ["quantize_per_tensor", "linear_relu" if relu else "linear", "dequantize"]
    # Behind ReLU, steps cover the positive results alone: what products are off by is more of them.
    assert steps_between(made(x), model(x)) <= (4 if relu else 3)


class Spelled(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.weight, self.bias = torch.randn(5, 3), torch.randn(5) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = torch.matmul(x, self.weight.t())
        if self.bias is not None:
            y.add_(self.bias)
        return y


@BOTH_WAYS
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3)], ids=len)
def test_matmul_with_a_transposed_weight_is_a_linear_layer(shape: tuple[int, ...], bias: bool, traced: bool) -> None:
    torch.manual_seed(0)
    model, x = Spelled(bias).eval(), torch.randn(shape)
    made = quantized(scripted(model, traced, x), x)
    assert calls(made) == ["quantize_per_tensor", "linear", "dequantize"]
    assert not {"aten::matmul", "aten::addmm", "aten::add_", "aten::t"} & set(kinds(made))
    assert steps_between(made(x), model(x)) <= 3


@BOTH_WAYS
def test_matmul_with_a_batch_of_weights_is_no_linear_layer(traced: bool) -> None:
    class Batched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.randn(2, 3, 7)

        def forward(self, x: Tensor) -> Tensor:
            return torch.matmul(x, self.weight)

    model, x = Batched().eval(), torch.randn(2, 4, 3)
    made = zeropoint.quantize_jit(scripted(model, traced, x), STATIC, lambda m: m(x), ())
    assert "linear" not in calls(made)
    assert steps_between(made(x), model(x)) <= 3


@BOTH_WAYS
def test_two_results_are_both_made_floats(traced: bool) -> None:
    class TwoResults(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = conv(2), nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.first(x), self.second(x)

    model, x = TwoResults().eval(), torch.randn(SIZES[2])
    made = quantized(scripted(model, traced, x), x)
    found = calls(made)
    assert found.count("quantize_per_tensor") == 1
    assert found.count("dequantize") == found.count("conv2d") == 2
    for result, expected in zip(made(x), model(x), strict=True):
        assert steps_between(result, expected) <= 4


@BOTH_WAYS
def test_a_value_that_is_read_twice_is_quantized_once(traced: bool) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = conv(2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return torch.cat([torch.exp(y), torch.sin(y)])

    model, x = Shared().eval(), torch.randn(SIZES[2])
    found = calls(quantized(scripted(model, traced, x), x))
    assert found == ["quantize_per_tensor", "conv2d", "dequantize"]


def test_a_weight_that_two_layers_share_is_stored_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 64))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = F.linear(torch.cat([x, x]), self.weight)
            return y, F.linear(y, self.weight)

    model, x = Tied().eval(), torch.randn(3, 64)
    made = quantized(torch.jit.script(model), x)
    assert calls(made).count("linear") == 2
    stored = [tensor for tensor in _tensors(made) if tensor.dtype == torch.int8]
    assert [tuple(tensor.shape) for tensor in stored] == [(64, 64)]


def _tensors(model: Any) -> list[Tensor]:
    found = [node.output().toIValue() for node in model.graph.nodes() if node.kind() == "prim::Constant"]
    found += [getattr(model, node.s("name")) for node in model.graph.nodes() if node.kind() == "prim::GetAttr"]
    return list({value.data_ptr(): value for value in found if isinstance(value, Tensor)}.values())


@BOTH_WAYS
def test_debug_gives_the_same_numbers_with_float_operators(traced: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(conv(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 2 * 2, 5)).eval()
    x = torch.randn(2, 3, 6, 7)
    script = scripted(model, traced, x)
    debug, made = quantized(script, x, debug=True), quantized(script, x)
    assert {"aten::conv2d", "aten::linear"} <= set(kinds(debug))
    assert {"conv2d_relu", "linear"} <= set(calls(made))
    difference = (debug(x) - made(x)).abs().max()
    assert difference <= made(x).unique().diff().min() * 1.01  # at most one step
    assert torch.equal(reloaded(debug)(x), debug(x))
