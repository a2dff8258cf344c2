"""The observers' part of a model's state: taken out and put back, eager and scripted."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from observer_pairs import assert_equal, ids_of_buffers, quietly
from strategies import generator
from torch import nn

from zeropoint.fake_quant import FakeQuantize, FusedMovingAvgObsFakeQuantize
from zeropoint.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    get_observer_state_dict,
    is_observer,
    load_observer_state_dict,
)

KINDS: list[Any] = [
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    HistogramObserver,
    PerChannelMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


class Watched(nn.Module):
    """A layer, the observer of its output under the eager name, and that of its weight under the scripted one."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 4)
        self.activation_post_process = kind()
        self.observer_of_weight = kind()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.observer_of_weight(self.layer.weight)
        return self.activation_post_process(self.layer(x))


def watched(kind: Any, seed: int | None = None) -> Watched:
    model = Watched(kind)
    if seed is not None:
        model(torch.randn(3, 5, generator=generator(seed)))
    return model


def assert_same_dict(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert list(a) == list(b)
    for key in a:
        assert_equal(a[key], b[key], key)


@each_kind
def test_eager_state_holds_the_activation_observers_alone(kind):
    model = watched(kind, 0)
    state = get_observer_state_dict(model)
    assert state
    assert all(key.startswith("activation_post_process.") for key in state)
    assert state._metadata["activation_post_process"]["version"] == 3


@each_kind
def test_eager_state_is_what_the_oracle_takes_out(kind):
    model = watched(kind, 0)
    with quietly():
        assert_same_dict(get_observer_state_dict(model), torch.ao.quantization.get_observer_state_dict(model))


@each_kind
def test_eager_state_goes_into_another_model_in_place(kind):
    model, other = nn.Sequential(watched(kind, 0)), nn.Sequential(watched(kind))
    del model[0].observer_of_weight, other[0].observer_of_weight
    ids, weight = ids_of_buffers(other), other[0].layer.weight.clone()
    state = get_observer_state_dict(model)
    load_observer_state_dict(other, state)
    assert_same_dict(get_observer_state_dict(other), state)
    assert ids_of_buffers(other) == ids
    assert torch.equal(other[0].layer.weight, weight)


@each_kind
def test_scripted_state_goes_into_another_scripted_model(kind):
    float_model = watched(kind)
    model, other = torch.jit.script(float_model), torch.jit.script(copy.deepcopy(float_model))
    model(torch.randn(3, 5, generator=generator(0)))
    state = get_observer_state_dict(model)
    assert {key.split(".")[0] for key in state} == {"activation_post_process", "observer_of_weight"}
    load_observer_state_dict(other, state)
    assert_same_dict(get_observer_state_dict(other), state)


@each_kind
def test_an_observer_alone_is_a_model_too(kind):
    for prepared in (lambda o: o, torch.jit.script):
        observer, other = prepared(kind()), prepared(kind())
        observer(torch.randn(3, 5, generator=generator(0)))
        load_observer_state_dict(other, observer.state_dict())
        assert_same_dict(other.state_dict(), observer.state_dict())


@pytest.mark.parametrize("kind", [FakeQuantize, FusedMovingAvgObsFakeQuantize], ids=lambda k: k.__name__)
def test_state_of_fake_quantize_modules_includes_their_switches_and_parameters(kind):
    model, other = nn.Sequential(), nn.Sequential()
    model.activation_post_process, other.activation_post_process = kind(), kind()
    model.activation_post_process(torch.randn(10, generator=generator(0)))
    model.activation_post_process.disable_observer()
    state = get_observer_state_dict(model)
    assert {key.removeprefix("activation_post_process.") for key in state} >= {
        "scale",
        "zero_point",
        "observer_enabled",
    }
    load_observer_state_dict(other, state)
    assert_same_dict(get_observer_state_dict(other), state)


@each_kind
@pytest.mark.parametrize("lost", ["min_val", "max_val"])
def test_state_that_is_missing_is_named_and_nothing_changes(kind, lost):
    model, other = watched(kind, 0), watched(kind, 1)
    del model.observer_of_weight, other.observer_of_weight
    state = get_observer_state_dict(model)
    del state[f"activation_post_process.{lost}"]
    before = copy.deepcopy(get_observer_state_dict(other))
    with pytest.raises(ValueError, match=f"activation_post_process.{lost}"):
        load_observer_state_dict(other, state)
    assert_same_dict(get_observer_state_dict(other), before)


def test_state_without_the_parameters_of_fake_quantization_loads_its_observer():
    """`weight_fake_quant.scale` is not in an eager model's observer state; what its observer saw is."""
    model, other = nn.Sequential(), nn.Sequential()
    model.weight_fake_quant, other.weight_fake_quant = FakeQuantize(), FakeQuantize()
    model.weight_fake_quant(torch.randn(10, generator=generator(0)))
    state = get_observer_state_dict(model)
    assert not any(key.endswith("scale") for key in state)
    load_observer_state_dict(other, state)
    seen, expected = other.weight_fake_quant.activation_post_process, model.weight_fake_quant.activation_post_process
    assert_equal(seen.max_val, expected.max_val)


def test_state_of_another_shape_is_refused_and_nothing_changes():
    model, other = nn.Sequential(), nn.Sequential()
    model.activation_post_process, other.activation_post_process = PerChannelMinMaxObserver(), MinMaxObserver()
    model.activation_post_process(torch.ones(4, 2))
    with pytest.raises(ValueError, match=r"min_val has shape \(4,\), the model's \(\)"):
        load_observer_state_dict(other, get_observer_state_dict(model))
    assert other.activation_post_process.min_val == float("inf")


def test_histograms_of_another_length_are_refused():
    model, other = nn.Sequential(), nn.Sequential()
    model.activation_post_process = HistogramObserver(bins=16)
    other.activation_post_process = HistogramObserver(bins=8)
    model.activation_post_process(torch.ones(4))
    with pytest.raises(ValueError, match=r"histogram has shape \(16,\), the model's \(8,\)"):
        load_observer_state_dict(other, get_observer_state_dict(model))
    assert len(other.activation_post_process.histogram) == 8


@each_kind
def test_state_without_eps_loads(kind):
    model, other = watched(kind, 0), watched(kind)
    del model.observer_of_weight, other.observer_of_weight
    state = get_observer_state_dict(model)
    del state["activation_post_process.eps"]
    load_observer_state_dict(other, state)
    assert_equal(other.activation_post_process.max_val, model.activation_post_process.max_val)
    assert other.activation_post_process.eps == model.activation_post_process.eps


def test_other_modules_are_no_observers():
    assert not is_observer(nn.Linear(2, 2))
    assert not is_observer(torch.jit.script(nn.ReLU()))
    assert is_observer(torch.jit.script(PerChannelMinMaxObserver()))
