"""Cross-layer equalization: the function stays, the ranges of the weights become equal."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import zeropoint.nn.intrinsic as nni
from zeropoint.accuracy import cross_layer_equalization, equalize
from zeropoint.accuracy.equalize import channel_range, converged


def uneven(seed: int = 0) -> nn.Sequential:
    """Two convolutions and a linear layer whose channels have ranges that are far apart."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 5),
    )  # fmt: skip
    with torch.no_grad():
        model[0].weight.mul_(torch.logspace(-2, 2, 6).reshape(-1, 1, 1, 1))
        model[2].weight.mul_(torch.logspace(2, -2, 6).reshape(1, -1, 1, 1))
    return model.eval()


GROUP = [["0", "2", "6"]]


def test_the_model_computes_what_it_did() -> None:
    model, x = uneven(), torch.randn(4, 3, 8, 8)
    expected = model(x).detach()
    equalized = equalize(model, GROUP, inplace=False)
    torch.testing.assert_close(equalized(x), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    assert not torch.equal(equalized[0].weight, model[0].weight)


def test_both_sides_of_every_channel_have_the_same_range() -> None:
    model = equalize(uneven(), GROUP)
    for first, second in ((model[0], model[2]), (model[2], model[6])):
        torch.testing.assert_close(channel_range(first.weight, 0), channel_range(second.weight, 1), rtol=1e-3, atol=0)


def test_one_scale_for_a_weight_loses_less_than_before() -> None:
    model, x = uneven(), torch.randn(16, 3, 8, 8)
    expected = model(x)

    def error(model: nn.Sequential) -> float:
        rounded = copy.deepcopy(model)
        with torch.no_grad():
            for layer in (rounded[0], rounded[2], rounded[6]):
                step = layer.weight.abs().max() / 127
                layer.weight.copy_((layer.weight / step).round() * step)
            return float((rounded(x) - expected).abs().mean())

    assert error(equalize(model, GROUP, inplace=False)) < error(model) / 2


@pytest.mark.parametrize("way", ["paths", "modules"])
def test_layers_are_given_by_path_or_themselves(way: str) -> None:
    model = uneven()
    group = GROUP if way == "paths" else [[model[0], model[2], model[6]]]
    expected = equalize(uneven(), GROUP)
    assert equalize(model, group) is model
    assert torch.equal(model[6].weight, expected[6].weight)


def test_fused_layers_are_looked_into() -> None:
    plain = uneven()
    fused = nn.Sequential(nni.ConvReLU2d(plain[0], plain[1]), nni.ConvReLU2d(plain[2], plain[3]))
    fused = copy.deepcopy(fused)
    cross_layer_equalization(fused[0], fused[1])
    cross_layer_equalization(plain[0], plain[2])
    assert torch.equal(fused[0][0].weight, plain[0].weight)
    assert torch.equal(fused[0][0].bias, plain[0].bias)


# --------------------------------------------------------------------------------------------------- channels of zeros


@pytest.mark.parametrize("where", ["first", "second", "both"])
def test_a_channel_of_zeros_stays_as_it_is(where: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        if where != "second":
            model[0].weight[1] = 0
        if where != "first":
            model[2].weight[:, 1] = 0
    before, x = copy.deepcopy(model), torch.randn(5, 4)
    equalize(model, [["0", "2"]])
    torch.testing.assert_close(model(x), before(x))
    assert torch.equal(model[0].weight[1], before[0].weight[1])
    assert torch.equal(model[0].bias[1], before[0].bias[1])
    assert torch.equal(model[2].weight[:, 1], before[2].weight[:, 1])
    others = [0, 2]
    torch.testing.assert_close(
        channel_range(model[0].weight, 0)[others], channel_range(model[2].weight, 1)[others], rtol=1e-3, atol=0
    )


def test_a_channel_of_equal_weights_has_no_range_and_stays_as_it_is() -> None:
    first, second = nn.Linear(4, 2), nn.Linear(2, 3)
    with torch.no_grad():
        first.weight[0] = 0.5
    x = torch.randn(5, 4)
    expected = second(first(x).relu())
    cross_layer_equalization(first, second)
    assert first.weight[0].tolist() == [0.5] * 4
    torch.testing.assert_close(second(first(x).relu()), expected)


# ------------------------------------------------------------------------------------------------------------- refused


def test_other_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"equalize: layers must be Conv1d, .*, got BatchNorm2d"):
        cross_layer_equalization(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))


def test_layers_that_do_not_follow_each_other_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"must take the 3 channels of the first, got a weight of shape \(2, 4\) with 4"
    ):
        cross_layer_equalization(nn.Linear(2, 3), nn.Linear(4, 2))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value: float) -> None:
    model = uneven()
    with torch.no_grad():
        model[2].weight[0, 0, 0, 0] = value
    with pytest.raises(ValueError, match=r"a weight of Conv2d of shape \(4, 6, 3, 3\) contains inf or NaN"):
        equalize(model, GROUP)


def test_groups_are_checked() -> None:
    model = uneven()
    with pytest.raises(ValueError, match="a group needs at least two layers, got 1"):
        equalize(model, [["0"]])
    with pytest.raises(TypeError, match="got Linear, which is not in the model"):
        equalize(model, [["0", nn.Linear(1, 1)]])
    with pytest.raises(TypeError, match="pass layers as module paths or as modules, got"):
        equalize(model, [["0", 3]])


def test_converged_compares_the_weights_of_the_same_modules() -> None:
    layer, moved = nn.Linear(2, 2), nn.Linear(2, 2)
    with torch.no_grad():
        moved.weight.copy_(layer.weight + 0.5)  # a norm of 1
    assert converged({"a": layer}, {"a": moved}, threshold=1.01)
    assert not converged({"a": layer}, {"a": moved}, threshold=0.99)
    assert not converged({"a": layer}, {"a": None})
    with pytest.raises(ValueError, match=r"both dictionaries must have the same modules, got \['a'\] and \['b'\]"):
        converged({"a": layer}, {"b": layer})
