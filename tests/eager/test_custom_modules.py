"""Modules of the user that are swapped as a whole, once by prepare and once by convert."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from eight_bit_steps import steps_between
from few_layers import Layers
from torch import Tensor, nn

import zeropoint
from zeropoint.nn import quantizable, quantized


class Custom(Layers):
    def __init__(self) -> None:
        super().__init__(linear=nn.Linear(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class ObservedCustom(nn.Module):
    """Observes nothing inside: prepare puts an observer on its result."""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        assert type(x) is Tensor
        return self.linear(x)

    @classmethod
    def from_float(cls, module: Any) -> ObservedCustom:
        assert hasattr(module, "qconfig")
        observed = cls(module.linear)
        observed.qconfig = module.qconfig
        return observed


class QuantizedCustom(nn.Module):
    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

    @classmethod
    def from_observed(cls, observed: Any) -> QuantizedCustom:
        assert hasattr(observed, "activation_post_process")
        observed.linear.activation_post_process = observed.activation_post_process
        observed.linear.qconfig = observed.qconfig
        return cls(quantized.Linear.from_float(observed.linear))


class PreparedInside(ObservedCustom):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

    @classmethod
    def from_float(cls, module: Any) -> ObservedCustom:
        return zeropoint.prepare(super().from_float(module), inplace=True)


class ConvertedInside(nn.Module):
    @classmethod
    def from_observed(cls, observed: Any) -> nn.Module:
        return zeropoint.convert(observed)


PREPARE = {"float_to_observed_custom_module_class": {Custom: ObservedCustom}}
CONVERT = {"observed_to_quantized_custom_module_class": {ObservedCustom: QuantizedCustom}}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = zeropoint.QuantStub(), zeropoint.DeQuantStub()
        self.first, self.custom, self.last = nn.Linear(3, 3), Custom(), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.dequant(self.last(self.custom(self.first(self.quant(x)))))


def model() -> Model:
    torch.manual_seed(0)
    made = Model().eval()
    made.qconfig = zeropoint.default_qconfig
    return made


@pytest.fixture
def x() -> Tensor:
    return torch.randn(16, 3)


def test_a_custom_module_is_observed_and_quantized_as_a_whole(x: Tensor) -> None:
    original = model()
    prepared = zeropoint.prepare(original, prepare_custom_config_dict=PREPARE, example_inputs=(x,))
    assert type(prepared.custom) is ObservedCustom
    assert hasattr(prepared.custom, "activation_post_process")
    assert not hasattr(prepared.custom.linear, "activation_post_process")
    prepared(x)
    done = zeropoint.convert(prepared, convert_custom_config_dict=CONVERT)
    assert type(done.custom) is QuantizedCustom
    assert steps_between(done(x), original(x)) <= 3

    # the same numbers as without the custom module
    plain = zeropoint.prepare(original)
    plain(x)
    assert torch.equal(done(x), zeropoint.convert(plain)(x))


def test_a_custom_module_may_prepare_and_convert_itself(x: Tensor) -> None:
    original = model()
    prepared = zeropoint.prepare(
        original,
        prepare_custom_config_dict={"float_to_observed_custom_module_class": {Custom: PreparedInside}},
        example_inputs=(x,),
    )
    prepared(x)
    done = zeropoint.convert(
        prepared,
        convert_custom_config_dict={"observed_to_quantized_custom_module_class": {PreparedInside: ConvertedInside}},
    )
    assert type(done.custom.linear) is quantized.Linear
    assert steps_between(done(x), original(x)) <= 3


def test_a_custom_module_without_a_qconfig_is_left_alone() -> None:
    original = model()
    original.custom.qconfig = None
    prepared = zeropoint.prepare(original, prepare_custom_config_dict=PREPARE)
    assert type(prepared.custom) is Custom


@pytest.mark.parametrize(
    "left_alone",
    [{"non_traceable_module_name": ["custom"]}, {"non_traceable_module_class": [Custom]}],
    ids=["name", "class"],
)
def test_modules_that_are_not_traceable_get_no_qconfig(left_alone: Any) -> None:
    prepared = zeropoint.prepare(model(), prepare_custom_config_dict=left_alone)
    assert not hasattr(prepared.custom, "qconfig")
    assert not hasattr(prepared.custom.linear, "activation_post_process")


def test_the_known_custom_modules() -> None:
    known = zeropoint.get_default_custom_config_dict()
    assert known == {
        "float_to_observed_custom_module_class": {
            nn.LSTM: quantizable.LSTM,
            nn.MultiheadAttention: quantizable.MultiheadAttention,
        },
        "observed_to_quantized_custom_module_class": {
            quantizable.LSTM: quantized.LSTM,
            quantizable.MultiheadAttention: quantized.MultiheadAttention,
        },
    }
    assert zeropoint.no_observer_set() == {quantizable.LSTM, quantizable.MultiheadAttention}


def test_an_empty_dictionary_means_no_custom_modules() -> None:
    lstm = nn.Sequential(nn.LSTM(2, 2)).eval()
    lstm.qconfig = zeropoint.default_qconfig
    assert type(zeropoint.prepare(lstm, prepare_custom_config_dict={})[0]) is nn.LSTM
    assert type(zeropoint.prepare(lstm)[0]) is quantizable.LSTM


def test_hooks_of_a_custom_module_move_along_once(x: Tensor) -> None:
    calls = []
    original = nn.Sequential(zeropoint.QuantStub(), nn.LSTM(3, 3)).eval()
    original.qconfig = zeropoint.default_qconfig
    prepared = zeropoint.prepare(original)
    prepared[1].register_forward_hook(lambda *_: calls.append(1))
    sample = x[:, None]
    prepared(sample)
    done = zeropoint.convert(prepared)
    calls.clear()
    done(sample)
    assert calls == [1]
