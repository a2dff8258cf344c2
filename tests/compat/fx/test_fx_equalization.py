"""Input-weight equalization in FX graph mode: the same function, with channels of similar ranges."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._equalize as theirs
import torch.nn.functional as F
from few_layers import Layers
from torch import Tensor, nn
from torch.ao.quantization import default_qconfig as their_qconfig
from torch.ao.quantization.quantize_fx import prepare_fx as their_prepare_fx

import zeropoint
from zeropoint.compat.fx import convert_fx, prepare_fx
from zeropoint.compat.fx.equalization import (
    EqualizationQConfig,
    InputEqualizationObserver,
    WeightEqualizationObserver,
    calculate_equalization_scale,
    default_equalization_qconfig,
)
from zeropoint.compat.fx.equalization.convert import equalize

# Equalization multiplies and divides each product once more: two roundings of float32, of sums of up to 64 values.
ROUNDING = {"rtol": 1e-5, "atol": 1e-5}
EVERYWHERE = zeropoint.QConfigMapping().set_global(default_equalization_qconfig)
QUANTIZED = zeropoint.QConfigMapping().set_global(zeropoint.default_qconfig)


class Functions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(6, 4))
        self.second = nn.Parameter(torch.randn(3, 6))
        self.bias = nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.relu(F.linear(x, self.first, self.bias)), self.second)


def linear_pair() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()


def conv_pair() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (linear_pair, (8, 4)),
    "linear on sequences": (linear_pair, (2, 5, 4)),
    "conv": (conv_pair, (2, 3, 6, 6)),
    "functions": (lambda: Functions().eval(), (8, 4)),
}


def one_large_channel(shape: tuple[int, ...], axis: int) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    x.select(axis, 0).mul_(50)
    return x


@pytest.fixture(params=CASES, ids=CASES)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, shape = CASES[request.param]
    return make(), one_large_channel(shape, 1 if request.param == "conv" else -1)


def test_the_equalized_graph_computes_the_same(case: tuple[nn.Module, Tensor]) -> None:
    model, x = case
    expected = model(x)
    prepared = prepare_fx(copy.deepcopy(model), QUANTIZED, (x,), _equalization_config=EVERYWHERE)
    prepared(x)
    torch.testing.assert_close(equalize(prepared)(x), expected, **ROUNDING)


def test_the_quantized_model_loses_less_with_a_large_channel(case: tuple[nn.Module, Tensor]) -> None:
    model, x = case
    expected = model(x)
    errors = []
    for mapping in (None, EVERYWHERE):
        prepared = prepare_fx(copy.deepcopy(model), QUANTIZED, (x,), _equalization_config=mapping)
        prepared(x)
        errors.append((convert_fx(prepared)(x) - expected).square().mean())
    assert errors[1] < errors[0]


def test_the_scales_are_those_of_torch_ao() -> None:
    torch.manual_seed(0)
    model, x = linear_pair(), one_large_channel((8, 4), 1)
    old = their_prepare_fx(
        copy.deepcopy(model), {"": their_qconfig}, (x,), _equalization_config={"": theirs.default_equalization_qconfig}
    )
    new = prepare_fx(copy.deepcopy(model), QUANTIZED, (x,), _equalization_config=EVERYWHERE)
    old(x)
    new(x)
    made, ours = theirs._convert_equalization_ref(old), equalize(new)
    assert torch.equal(made.get_buffer("input_1_equalization_scale0"), ours.get_buffer("input_1_equalization_scale0"))
    for key in ("0.0.weight", "0.0.bias", "2.weight"):
        torch.testing.assert_close(ours.state_dict()[key], made.state_dict()[key])


def test_a_layer_behind_one_that_is_not_equalized_gets_its_factor_from_the_graph() -> None:
    torch.manual_seed(0)
    model, x = linear_pair(), torch.randn(8, 4)
    expected = model(x)
    last = zeropoint.QConfigMapping().set_module_name("2", default_equalization_qconfig)
    prepared = prepare_fx(model, QUANTIZED, (x,), _equalization_config=last)
    prepared(x)
    made = equalize(prepared)
    assert [n.target for n in made.graph.nodes if n.op == "call_function"] == [torch.mul]
    torch.testing.assert_close(made(x), expected, **ROUNDING)


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.second(y) + torch.cumsum(y, 0)


class Twice(Layers):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x))


@pytest.mark.parametrize(
    ("model", "reason"),
    [(Branch(), "its input is used in float, too"), (Twice(layer=nn.Linear(4, 4)), "its weight is used several times")],
    ids=["branch", "twice"],
)
def test_what_cannot_be_equalized_is_named_and_left(model: nn.Module, reason: str) -> None:
    x = torch.randn(8, 4)
    expected = model.eval()(x)
    layers = zeropoint.QConfigMapping().set_object_type(nn.Linear, zeropoint.default_qconfig)
    with pytest.warns(UserWarning, match=reason):
        prepared = prepare_fx(copy.deepcopy(model), layers, (x,), _equalization_config=EVERYWHERE)
    prepared(x)
    torch.testing.assert_close(equalize(prepared)(x), expected, **ROUNDING)


def test_convolutions_with_groups_are_left_alone() -> None:
    x = torch.randn(2, 4, 5, 5)
    model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4)).eval()
    prepared = prepare_fx(model, QUANTIZED, (x,), _equalization_config=EVERYWHERE)
    assert not any(isinstance(m, InputEqualizationObserver) for m in prepared.modules())


# On sequences the shape of the factor follows from the input, which an uncalibrated model has not seen.
@pytest.mark.parametrize("name", ["linear", "conv", "functions"])
def test_an_uncalibrated_model_takes_the_state_of_a_calibrated_one(name: str) -> None:
    make, shape = CASES[name]
    model, x = make(), torch.randn(shape)
    made = []
    for calibrated in (True, False):
        prepared = prepare_fx(copy.deepcopy(model), QUANTIZED, (x,), _equalization_config=EVERYWHERE)
        if calibrated:
            prepared(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an uncalibrated model warns that it saw nothing
            made.append(convert_fx(prepared))
    made[1].load_state_dict(made[0].state_dict())
    assert torch.equal(made[1](x), made[0](x))


class TestObservers:
    def test_zero_ranges_have_scale_one(self) -> None:
        x, w = InputEqualizationObserver(), WeightEqualizationObserver()
        x(torch.tensor([[1.0, 5.0], [1.0, 7.0]]))
        w(torch.tensor([[1.0, 0.0], [2.0, 8.0]]))
        assert calculate_equalization_scale(x, w).tolist() == [1.0, 2.0]

    def test_other_channels_are_refused(self) -> None:
        x, w = InputEqualizationObserver(), WeightEqualizationObserver()
        x(torch.randn(2, 3))
        w(torch.randn(2, 4))
        with pytest.raises(ValueError, match=r"3 channels .* weight for 4"):
            calculate_equalization_scale(x, w)

    def test_vectors_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"2 to 5 dimensions, got shape \(3,\)"):
            InputEqualizationObserver()(torch.randn(3))

    def test_an_input_has_one_scale(self) -> None:
        with pytest.raises(TypeError, match="per-tensor"):
            InputEqualizationObserver(qscheme="per_channel_affine")

    def test_a_config_takes_constructors(self) -> None:
        with pytest.raises(ValueError, match="input_activation is an instance"):
            EqualizationQConfig(input_activation=InputEqualizationObserver())

    def test_without_data_the_range_stays(self) -> None:
        with pytest.warns(UserWarning, match="no equalization scale yet"):
            assert InputEqualizationObserver().calculate_scaled_minmax() == (None, None)
