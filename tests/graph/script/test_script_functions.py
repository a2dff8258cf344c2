"""Sums, products, norms and functions in TorchScript: on integers behind a layer, else in float."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from script_graphs import BOTH_WAYS, STATIC, calls, kinds, quantized, scripted
from torch import Tensor, nn

import zeropoint


class Behind(nn.Module):
    """Two convolutions and what reads them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.conv2 = nn.Conv2d(2, 2, 2), nn.Conv2d(2, 2, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.join(self.conv1(x), self.conv2(y))


class Sum(Behind):
    def join(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class SumInPlace(Behind):
    def join(self, x: Tensor, y: Tensor) -> Tensor:
        x += y
        return x


class SumRelu(Behind):
    def join(self, x: Tensor, y: Tensor) -> Tensor:
        x += y
        return F.relu(x, True)


class Sums(Behind):
    """Three sums, which share the constant for alpha."""

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        z = x + y
        w = y + z
        return z + w


class Product(Behind):
    def join(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y


class ProductInPlace(Behind):
    def join(self, x: Tensor, y: Tensor) -> Tensor:
        x *= y
        return x


class ProductRelu(Behind):
    def join(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x * y)


class Square(Behind):
    """One value that is read twice by one operator."""

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        return x * x + y * y


class Joined(Behind):
    def join(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y], 1)


class SumOfNumber(Behind):
    def join(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + 3) + (y - 1.5)


class ProductOfNumber(Behind):
    def join(self, x: Tensor, y: Tensor) -> Tensor:
        x *= 3
        return x + y * 0.5


CASES: dict[type[Behind], list[str]] = {
    Sum: ["add"],
    SumInPlace: ["add"],
    SumRelu: ["add_relu"],
    Sums: ["add", "add", "add"],
    Product: ["mul"],
    ProductInPlace: ["mul"],
    ProductRelu: ["mul_relu"],
    Square: ["mul", "mul", "add"],
    Joined: ["cat"],
    SumOfNumber: ["add_scalar", "add_scalar", "add"],
    ProductOfNumber: ["mul_scalar", "mul_scalar", "add"],
}
FLOAT = {"aten::add", "aten::add_", "aten::mul", "aten::mul_", "aten::cat", "aten::relu", "aten::relu_"}


@BOTH_WAYS
@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_results_of_layers_are_joined_as_integers(kind: type[Behind], traced: bool) -> None:
    model = kind().eval()
    x, y = torch.randn(1, 2, 5, 5), torch.randn(1, 2, 5, 5)
    script = scripted(model, traced, x, y)
    made, debug = quantized(script, x, y), quantized(script, x, y, debug=True)
    found = calls(made)
    assert found.count("quantize_per_tensor") == 2
    assert found.count("dequantize") == 1
    joins = [call for call in found if not call.startswith(("quantize", "dequantize", "conv2d"))]
    assert sorted(joins) == sorted(CASES[kind])
    assert not FLOAT & set(kinds(made))
    largest = model(x, y).abs().max()
    assert (made(x, y) - model(x, y)).abs().max() < 0.05 * largest
    assert (made(x, y) - debug(x, y)).abs().max() < 0.03 * largest


class FloatSum(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class FloatSumInPlace(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x += y
        return x


class FloatProduct(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y * 3 + 2


class FloatCat(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y], 1)


@BOTH_WAYS
@pytest.mark.parametrize("kind", [FloatSum, FloatSumInPlace, FloatProduct, FloatCat], ids=lambda kind: kind.__name__)
def test_floats_that_nothing_quantizes_stay_floats(kind: type[nn.Module], traced: bool) -> None:
    model, x, y = kind().eval(), torch.randn(2, 3), torch.randn(2, 3)
    made = zeropoint.quantize_jit(scripted(model, traced, x.clone(), y), STATIC, lambda m: m(x.clone(), y), ())
    assert calls(made) == []
    assert torch.equal(made(x.clone(), y), model(x.clone(), y))


def test_an_input_that_the_model_writes_to_is_still_written_to() -> None:
    x, y = torch.ones(3), torch.ones(3)
    made = zeropoint.quantize_jit(torch.jit.script(FloatSumInPlace()), STATIC, lambda m: m(x.clone(), y), ())
    made(x, y)
    assert torch.equal(x, torch.full((3,), 2.0))


class FunctionalNorm(nn.Module):
    def __init__(self, dims: int, inplace: bool) -> None:
        super().__init__()
        self.bn, self.inplace = getattr(nn, f"BatchNorm{dims}d")(3), inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(x), self.inplace)


def images(dims: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 3, *[6] * dims)


@BOTH_WAYS
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_batch_norm_alone_is_quantized(dims: int, traced: bool) -> None:
    model, x = getattr(nn, f"BatchNorm{dims}d")(3).eval(), images(dims)
    made = quantized(scripted(model, traced, x), x)
    assert calls(made) == ["quantize_per_tensor", "batch_norm", "dequantize"]
    assert "aten::batch_norm" not in kinds(made)
    assert (made(x) - model(x)).abs().max() < 0.05


@BOTH_WAYS
@pytest.mark.parametrize("spelling", ["module", "module in place", "function", "function in place"])
@pytest.mark.parametrize("dims", [2, 3])
def test_relu_becomes_part_of_a_batch_norm(dims: int, spelling: str, traced: bool) -> None:
    inplace, x = spelling.endswith("in place"), images(dims)
    norm = getattr(nn, f"BatchNorm{dims}d")(3)
    model = nn.Sequential(norm, nn.ReLU(inplace)) if spelling.startswith("module") else FunctionalNorm(dims, inplace)
    made = quantized(scripted(model.eval(), traced, x), x)
    assert calls(made) == ["quantize_per_tensor", "batch_norm_relu", "dequantize"]
    assert not {"aten::batch_norm", "aten::relu", "aten::relu_"} & set(kinds(made))
    assert (made(x) - model(x)).abs().max() < 0.05


ALONE: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "hardswish": (nn.Hardswish(), (2, 3, 6, 6)),
    "hardswish in place": (nn.Hardswish(inplace=True), (2, 3, 6, 6)),
    "elu": (nn.ELU(), (2, 3, 6, 6)),
    "elu in place": (nn.ELU(0.5, inplace=True), (2, 3, 6, 6)),
    "celu": (nn.CELU(), (2, 3, 6, 6)),
    "layer_norm": (nn.LayerNorm([2, 5, 5]), (3, 2, 5, 5)),
    "group_norm": (nn.GroupNorm(2, 4), (1, 4, 5, 5)),
    "instance_norm 1d": (nn.InstanceNorm1d(4), (2, 4, 5)),
    "instance_norm 2d": (nn.InstanceNorm2d(4, affine=True), (2, 4, 5, 2)),
    "instance_norm 3d": (nn.InstanceNorm3d(4), (2, 4, 5, 2, 2)),
}


@BOTH_WAYS
@pytest.mark.parametrize("name", ALONE)
def test_function_of_the_input_is_quantized_alone(name: str, traced: bool) -> None:
    module, shape = ALONE[name]
    operator, x = name.split(" ")[0], torch.randn(shape)
    script = scripted(module.eval(), traced, x.clone())
    made, debug = quantized(script, x.clone()), quantized(script, x.clone(), debug=True)
    assert operator in calls(made)
    # instance norms have a branch for inputs without a batch
    assert calls(made).count("quantize_per_tensor") == (2 if operator == "instance_norm" and not traced else 1)
    assert not {f"aten::{operator}", f"aten::{operator}_"} & set(kinds(made))
    expected = module(x.clone())
    assert (made(x.clone()) - expected).abs().max() < 0.05
    assert (made(x.clone()) - debug(x.clone())).abs().max() < 0.05


class Clamps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 2, 2)
        self.relu6, self.relu6_ = nn.ReLU6(), nn.ReLU6(True)
        self.hardtanh, self.hardtanh_ = nn.Hardtanh(), nn.Hardtanh(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu6(self.conv(x))
        self.relu6_(x)
        x = torch.clamp(F.relu6(x), -3, 3).clamp(-2.5, 2.5)
        x = self.hardtanh(x)
        self.hardtanh_(x)
        x = F.hardtanh(x, -0.5, 0.25)
        F.hardtanh_(x)
        return x


@BOTH_WAYS
def test_clamps_stay_on_integers(traced: bool) -> None:
    model, x = Clamps().eval(), torch.rand(1, 2, 5, 5)
    made = quantized(scripted(model, traced, x), x)
    found = calls(made)
    assert found.count("quantize_per_tensor") == found.count("dequantize") == 1
    step = made(x).unique().diff().min()
    assert (made(x) - model(x)).abs().max() <= 1.5 * step
    assert float(made(x).max()) <= 0.25 + 0.5 * float(step)


class General(nn.Module):
    """Convolutions with what only passes values on between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)
        self.max_pool, self.average_pool = nn.MaxPool2d(2), nn.AdaptiveAvgPool2d((3, 2))
        self.dropout = nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        x = self.dropout(self.max_pool(x))
        x = shuffled(x, 2)
        parts = torch.chunk(x.transpose(2, 3).contiguous(), 2, 1)
        x = torch.cat([parts[1], parts[0]], 1)
        x = F.interpolate(x, size=(8, 7))
        return torch.flatten(self.conv2(self.average_pool(x)), 1)


def shuffled(x: Tensor, groups: int) -> Tensor:
    """A function of its own, which asks for sizes."""
    batch, channels, height, width = x.size()
    x = x.view(batch, groups, channels // groups, height, width)
    return torch.transpose(x, 1, 2).contiguous().view(batch, -1, height, width)


@BOTH_WAYS
def test_what_passes_values_on_needs_no_scale_of_its_own(traced: bool) -> None:
    model, x = General().eval(), torch.randn(2, 3, 10, 12)
    script = scripted(model, traced, x)
    prepared = zeropoint.prepare_jit(script, STATIC)
    # the input, the results of two convolutions and of cat, and two weights
    assert len([name for name, _ in prepared.named_modules() if "_observer_" in name.rsplit(".", 1)[-1]]) == 6
    made = quantized(script, x)
    found = calls(made)
    assert found.count("quantize_per_tensor") == found.count("dequantize") == 1
    assert (made(x) - model(x)).abs().max() < 0.05 * model(x).abs().max() + 0.02
    if not traced:  # other sizes
        other: Any = torch.randn(1, 3, 14, 9)
        assert (made(other) - model(other)).abs().max() < 0.1
