"""Operators of users that are made of others, of several tensors and with weights, in all five ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from converted_models import assert_close, converted_eagerly
from torch import Tensor, nn

import zeropoint
from zeropoint.operators import registry

LIBRARY = torch.library.Library("zeropoint_parts", "DEF")
LIBRARY.define("gate(Tensor x, Tensor y, float factor) -> Tensor")
LIBRARY.define("mix(Tensor x, Tensor weight, Tensor bias) -> Tensor")


def gate(x: Tensor, y: Tensor, factor: float) -> Tensor:
    return x * torch.sigmoid(y) * factor


def mix(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.linear(x, weight, bias)) + x


for _name, _function in (("gate", gate), ("mix", mix)):
    LIBRARY.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"zeropoint_parts::{_name}", lambda x, *rest: torch.empty_like(x), lib=LIBRARY)


class Gate(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.ops.zeropoint_parts.gate(x, y, 2.0)


class Mix(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(size, size) / size), nn.Parameter(torch.randn(size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.zeropoint_parts.mix(x, self.weight, self.bias)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 16), nn.Linear(8, 16)
        self.gate, self.mix, self.last = Gate(), Mix(16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.mix(self.gate(self.left(x), self.right(x))))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    ops = torch.ops.zeropoint_parts
    zeropoint.register_operator("gate", gate, ops=[ops.gate.default], modules=[Gate], form="parts")
    zeropoint.register_operator("mix", mix, ops=[ops.mix.default], modules=[Mix], form="parts")
    yield
    registry.unregister("gate")
    registry.unregister("mix")


def model_and_data() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Model().eval(), torch.randn(64, 8)


def assert_program(made: Any, x: Tensor) -> None:
    program = zeropoint.compile(made, (x,))
    with torch.no_grad():
        assert torch.equal(program(x), made(x))
        assert torch.equal(program(x[:5]), made(x[:5]))


def test_eager_mode_and_program() -> None:
    model, x = model_and_data()
    made = converted_eagerly(model, x)
    assert type(made.module.gate) is type(made.module.mix) is zeropoint.nn.quantized.Dequantized
    assert_close(made, model, x)
    assert_program(made, x)


def test_a_quantized_module_of_the_user_takes_the_place_of_the_float_one() -> None:
    class QuantizedGate(zeropoint.nn.quantized.Dequantized):
        pass

    registry.unregister("gate")
    zeropoint.register_operator("gate", gate, modules=[Gate], form="parts", quantized_module=QuantizedGate)
    model, x = model_and_data()
    wrapped = zeropoint.QuantWrapper(model).eval()
    wrapped.qconfig = zeropoint.get_default_qconfig("native")
    prepared = zeropoint.prepare(wrapped)
    prepared(x)
    assert type(zeropoint.convert(prepared).module.gate) is QuantizedGate


def test_export_and_program() -> None:
    model, x = model_and_data()
    made = zeropoint.to_int8(model, (x,), [x], progress=False)
    ways = {(row.path, row.operator): row.precision for row in made.summary().rows}
    assert ways["mix", "linear"] == ways["gate", "mul"] == ways["gate", "sigmoid"] == "int8"
    assert_close(made, model, x)
    assert_program(made, x)


@pytest.mark.parametrize("traced", [False, True])
def test_torchscript_and_program(traced: bool) -> None:
    model, x = model_and_data()
    script = torch.jit.trace(model, x) if traced else torch.jit.script(model)
    made = zeropoint.quantize_jit(script, {"": zeropoint.get_default_qconfig("native")}, lambda m, d: m(d), [x])
    assert "zeropoint_parts::" not in str(made.inlined_graph)
    assert zeropoint.summary(made).counts()["int8"] >= 4
    assert_close(made, model, x)
    assert_program(made, x)


def test_training_and_program() -> None:
    model, x = model_and_data()
    mapping = zeropoint.get_default_qat_qconfig_mapping("native")
    prepared = zeropoint.prepare_qat_graph(model.train(), mapping, (x,))
    prepared(x).square().mean().backward()
    assert dict(prepared.named_parameters())
    assert all(p.grad is not None for p in prepared.parameters() if p.requires_grad)
    prepared.eval().apply(zeropoint.disable_observer)
    made = zeropoint.convert_graph(prepared)
    with torch.no_grad():
        assert torch.equal(prepared(x), made(x))
    assert_close(made, model.eval(), x)
    assert_program(made, x)


def test_stays_float_where_its_qconfig_is_none() -> None:
    model, x = model_and_data()
    mapping = zeropoint.get_default_qconfig_mapping("native").set_module_name("gate", None)
    made = zeropoint.to_int8(model, (x,), [x], qconfig=mapping, progress=False)
    assert {row.precision for row in made.summary().rows if row.path == "gate"} == {"float32"}
    assert_program(made, x)


@pytest.mark.parametrize(
    ("rule", "in_float"), [(gate, {"mul", "sigmoid"}), ("gate", {"mul", "sigmoid"}), (torch.sigmoid, {"sigmoid"})]
)
def test_rules_for_it_or_for_one_of_its_parts_act(rule: Any, in_float: set[str]) -> None:
    model, x = model_and_data()
    mapping = zeropoint.get_default_qconfig_mapping("native").set_object_type(rule, None)
    made = zeropoint.to_int8(model, (x,), [x], qconfig=mapping, progress=False)
    gated = [row for row in made.summary().rows if row.path == "gate"]
    assert {row.operator for row in gated if row.precision == "float32"} == in_float


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="register_operator: form must be one of table, parts, got 'whole'"):
        zeropoint.register_operator("another", gate, form="whole")
