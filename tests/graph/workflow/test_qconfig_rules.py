"""Rules of a QConfigMapping act on graphs, whatever the user wrote for an operator."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from few_layers import Layers
from torch import Tensor, nn

import zeropoint


class Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        x, y = self.first(x), self.second(x)
        return self.pool((x + y) * (x - y).relu())


X = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
PREPARE = [zeropoint.prepare_graph, zeropoint.prepare_qat_graph]


def ways(prepare: Any, model: nn.Module, mapping: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in prepare(model, mapping, (X,)).summary().rows:
        found.setdefault(row.operator, []).append(row.precision)
    return found


def mapping(prepare: Any) -> Any:
    training = prepare is zeropoint.prepare_qat_graph
    return (zeropoint.get_default_qat_qconfig_mapping if training else zeropoint.get_default_qconfig_mapping)("native")


@pytest.mark.parametrize("prepare", PREPARE)
@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (torch.add, 0), (operator.add, 0), ("add", 0), (operator.iadd, 0), (torch.Tensor.add, 0),
        (torch.sub, 1), (operator.sub, 1), ("sub", 1), (torch.subtract, 1),
    ],
    ids=[
        "torch.add", "operator.add", "add", "operator.iadd", "Tensor.add",
        "torch.sub", "operator.sub", "sub", "torch.subtract",
    ],
)  # fmt: skip
def test_every_spelling_of_an_operator_is_obeyed(prepare, rule, left):
    model = Sums().eval()
    assert ways(prepare, model, mapping(prepare))["add"] == ["int8", "int8"]
    found = ways(prepare, model, mapping(prepare).set_object_type(rule, None))
    assert found["add"] == ["float32" if place == left else "int8" for place in range(2)]
    assert found["mul"] == ["int8"]


@pytest.mark.parametrize("rule", [operator.mul, torch.mul, "mul", torch.multiply])
def test_rewritten_operators_keep_the_rule_of_what_was_written(rule):
    class Halved(Sums):
        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x) * self.second(x)) / 2 - 1

    made = mapping(zeropoint.prepare_graph).set_object_type(rule, None)
    assert ways(zeropoint.prepare_graph, Halved().eval(), made)["mul"] == ["float32"]


@pytest.mark.parametrize("rule", [torch.sigmoid, "sigmoid", torch.Tensor.sigmoid])
def test_a_rule_for_one_spelling_wins_over_the_default_rules_for_others(rule):
    class Model(Layers):
        def forward(self, x):
            return self.b(torch.sigmoid(self.a(x)))

    for make, prepare in (
        (zeropoint.get_default_qconfig_mapping, zeropoint.prepare_graph),
        (zeropoint.get_default_qat_qconfig_mapping, zeropoint.prepare_qat_graph),
    ):
        mapping = make("native").set_object_type(rule, None)
        prepared = prepare(Model(a=nn.Linear(4, 4), b=nn.Linear(4, 4)).eval(), mapping, (torch.randn(2, 4),))
        assert prepared.summary().of("sigmoid")[0].precision == "float32"


@pytest.mark.parametrize("kind", [nn.MaxPool2d, F.max_pool2d])
def test_a_pool_can_be_left_in_float(kind):
    class Pooled(Sums):
        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.second(self.pool(x) if kind is nn.MaxPool2d else F.max_pool2d(x, 2))

    made = mapping(zeropoint.prepare_graph).set_object_type(kind, None)
    assert ways(zeropoint.prepare_graph, Pooled().eval(), made)["max_pool2d"] == ["float32"]


@pytest.mark.parametrize("prepare", PREPARE)
def test_order_rules_choose_one_module_or_call(prepare):
    model = Sums().eval()
    by_module = mapping(prepare).set_module_name_object_type_order("", nn.Conv2d, 1, None)
    assert ways(prepare, model, by_module)["conv2d"] == ["int8", "float32"]
    by_call = mapping(prepare).set_module_name_object_type_order("", torch.sub, 0, None)
    assert ways(prepare, model, by_call)["add"] == ["int8", "float32"]


@pytest.mark.parametrize("prepare", PREPARE)
def test_stronger_rules_win(prepare):
    default = mapping(prepare).global_qconfig
    made = mapping(prepare).set_object_type(nn.Conv2d, None).set_module_name_regex("sec.*", default)
    assert ways(prepare, Sums().eval(), made)["conv2d"] == ["float32", "int8"]
    made.set_module_name("second", None).set_module_name("first", default)
    assert ways(prepare, Sums().eval(), made)["conv2d"] == ["int8", "float32"]
    made.set_module_name_object_type_order("", nn.Conv2d, 1, default)
    assert ways(prepare, Sums().eval(), made)["conv2d"] == ["int8", "int8"]


@pytest.mark.parametrize("prepare", PREPARE)
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda m: m.set_object_type(torch.bmm, None), r"set_object_type(torch.bmm)"),
        (lambda m: m.set_object_type("matmul", None), r"set_object_type('matmul')"),
        (lambda m: m.set_module_name_object_type_order("", nn.Conv2d, 2, None), "torch.nn.modules.conv.Conv2d, 2)"),
    ],
)  # fmt: skip
def test_a_rule_for_nothing_is_named(prepare, change, rule):
    with pytest.warns(UserWarning, match="qconfig_mapping: these rules match nothing in the model: ") as caught:
        prepared = prepare(Sums().eval(), change(mapping(prepare)), (X,))
    assert any(rule in str(w.message) for w in caught)
    assert rule in str(prepared.summary())


@pytest.mark.parametrize("prepare", PREPARE)
def test_default_mappings_warn_of_nothing(prepare):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        prepare(Sums().eval(), mapping(prepare), (X,))
