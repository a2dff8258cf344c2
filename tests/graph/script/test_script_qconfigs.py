"""Which parts of a ScriptModule are quantized, and the state of its observers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from eight_bit_steps import steps_between
from few_layers import Layers
from script_graphs import BOTH_WAYS, STATIC, calls, kinds, quantized, scripted
from torch import Tensor, nn

import zeropoint

QCONFIG = STATIC[""]


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(5, 6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.sub1, self.sub2, self.fc = Inner(), Inner(), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.sub2(self.sub1(x)))


def int8_paths(model: Any) -> set[str]:
    return {row.path for row in zeropoint.summary(model).rows if row.precision.startswith("int8")}


CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "everything": ({"": QCONFIG}, {"sub1.fc1", "sub1.fc2", "sub2.fc1", "sub2.fc2", "fc"}),
    "one layer": ({"sub2.fc1": QCONFIG}, {"sub2.fc1"}),
    "a module": ({"sub1": QCONFIG}, {"sub1.fc1", "sub1.fc2"}),
    "all but one": ({"": QCONFIG, "fc": None}, {"sub1.fc1", "sub1.fc2", "sub2.fc1", "sub2.fc2"}),
    "not a module, but one in it": (
        {"": QCONFIG, "sub1": None, "sub1.fc2": QCONFIG}, {"sub1.fc2", "sub2.fc1", "sub2.fc2", "fc"}
    ),
    "two kinds": (
        {"sub2.fc1": zeropoint.default_per_channel_qconfig, "fc": zeropoint.default_qconfig}, {"sub2.fc1", "fc"}
    ),
}  # fmt: skip


@BOTH_WAYS
@pytest.mark.parametrize("name", CASES)
def test_the_nearest_qconfig_counts(name: str, traced: bool) -> None:
    qconfigs, expected = CASES[name]
    model, x = Nested().eval(), torch.randn(7, 5)
    made = quantized(scripted(model, traced, x), x, qconfigs=qconfigs)
    assert int8_paths(made) == expected
    assert kinds(made).count("aten::linear") == 5 - len(expected)
    assert len([call for call in calls(made) if call.startswith("linear")]) == len(expected)
    assert steps_between(made(x), model(x)) <= 4


@BOTH_WAYS
def test_a_part_in_float_is_that_of_eager_mode(traced: bool) -> None:
    """Eager mode has stubs where TorchScript finds out by itself that a layer is float."""

    class WithStubs(Nested):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = zeropoint.QuantStub(), zeropoint.DeQuantStub()

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.dequant(self.sub2(self.sub1(self.quant(x)))))

    x = torch.randn(7, 5)
    eager = WithStubs().eval()
    eager.qconfig, eager.fc.qconfig = QCONFIG, None
    for part in (eager.sub1, eager.sub2):  # so that a ReLU is part of the layer before it, as it is in a graph
        part.fc1 = zeropoint.nn.intrinsic.LinearReLU(part.fc1, nn.ReLU())
    prepared = zeropoint.prepare(eager)
    prepared(x)
    expected = zeropoint.convert(prepared)(x)
    made = quantized(scripted(Nested().eval(), traced, x), x, qconfigs={"": QCONFIG, "fc": None})
    assert torch.equal(made(x), expected)


def test_a_recurrent_layer_can_be_left_in_float() -> None:
    class Mixed(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.rnn(x)[0])

    model, x = Mixed(rnn=nn.LSTM(5, 6), fc=nn.Linear(6, 3)).eval(), torch.randn(4, 2, 5)
    qconfigs = {"": zeropoint.default_dynamic_qconfig, "rnn": None}
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), qconfigs)
    assert calls(made) == ["linear_dynamic"]
    assert "aten::lstm" in kinds(made)
    assert steps_between(made(x), model(x)) <= 4


@BOTH_WAYS
@pytest.mark.parametrize(
    "qconfig",
    [zeropoint.default_qconfig, zeropoint.default_per_channel_qconfig, QCONFIG],
    ids=["min and max", "channels", "histogram"],
)
def test_state_of_observers_can_be_taken_elsewhere(qconfig: Any, traced: bool) -> None:
    model, x = Nested().eval(), torch.randn(7, 5)
    script = scripted(model, traced, x)
    calibrated = zeropoint.prepare_jit(script, {"": qconfig})
    for batch in x.split(3):
        calibrated(batch)
    state = copy.deepcopy(zeropoint.get_observer_state_dict(calibrated))
    assert state
    assert all("_observer_" in key for key in state)
    fresh = zeropoint.prepare_jit(script, {"": qconfig})
    zeropoint.load_observer_state_dict(fresh, state)
    assert torch.equal(zeropoint.convert_jit(fresh)(x), zeropoint.convert_jit(calibrated)(x))


def test_state_of_other_observers_is_refused() -> None:
    model, x = Nested().eval(), torch.randn(7, 5)
    one = zeropoint.prepare_jit(torch.jit.script(model), {"fc": QCONFIG})
    one(x)
    all_of_them = zeropoint.prepare_jit(torch.jit.script(model), {"": QCONFIG})
    with pytest.raises(ValueError, match="no state for"):
        zeropoint.load_observer_state_dict(all_of_them, zeropoint.get_observer_state_dict(one))


def test_script_qconfig_gives_scripted_observers() -> None:
    made = zeropoint.script_qconfig(zeropoint.default_per_channel_qconfig)
    weight = torch.jit._recursive.wrap_cpp_module(made.weight)
    plain = zeropoint.default_per_channel_qconfig.weight()
    data = torch.randn(3, 4)
    weight(data)
    plain(data)
    for found, expected in zip(weight.calculate_qparams(), plain.calculate_qparams(), strict=True):
        assert torch.equal(found, expected)
