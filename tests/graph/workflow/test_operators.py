"""Every row of the tables of operators: the spellings that there are, each as a tiny model that is quantized."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from operator_cases import (
    CASES,
    MOVING_CASES,
    POOLING_CASES,
    X1,
    assert_close,
    assert_same_bytes,
    grouped,
    model_of,
    on_integers,
    spelled,
)
from torch import nn

import zeropoint
from zeropoint.operators import BY_NAME, operators
from zeropoint.operators.node import aten_name


def quantized(tried: list[Any], shape: tuple[int, ...]) -> tuple[Any, list[str]]:
    """The model on integers, close to the float one and equal to its program, and the operators of its graph."""
    model, data = model_of(tried, shape)
    mapping = zeropoint.get_default_qconfig_mapping("native")
    for kind in (nn.Embedding, nn.EmbeddingBag, F.embedding, F.embedding_bag):
        mapping.set_object_type(kind, zeropoint.float_qparams_weight_only_qconfig)
    batches = [data, torch.randn(shape)]
    policy = {"widen_ranges": False}  # the bounds are steps of what was seen
    made = zeropoint.to_int8(model, (torch.randn(shape),), batches, qconfig=mapping, policy=policy, progress=False)
    assert_close(model, made, data)
    assert_same_bytes(zeropoint.compile(made, (data,)), made, data)
    return made, [str(n.target) for n in made.graph_module.graph.nodes if n.op == "call_function"]


def test_every_operator_of_the_tables_has_a_case() -> None:
    assert set(CASES) == {operator.name for operator in operators() if operator.annotate is not None}
    kept = [operator for operator in operators() if operator.keeps_scale]
    assert set(MOVING_CASES) == {name for operator in kept if operator.integers is None for name in operator.aten}
    assert set(POOLING_CASES) == {name for operator in kept if operator.integers is not None for name in operator.aten}


@pytest.mark.parametrize(("name", "shape", "tried"), spelled(CASES))
def test_operator_is_computed_on_integers(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    operator = BY_NAME[name]
    made, calls = quantized(tried, shape)
    assert any(call.startswith(f"zeropoint.{on_integers(name)}") for call in calls), made.graph_module.code
    assert not any(call in [f"aten.{a}" for a in operator.aten] for call in calls), made.graph_module.code
    rows = made.summary().of(name)
    assert rows
    assert all(row.precision.startswith("int8") for row in rows), made.summary()


SPELLED = {"sort.default": "sort.stable"}  # what graphs call instead


@pytest.mark.parametrize(("names", "shape", "tried"), [*grouped(MOVING_CASES), *grouped(MOVING_CASES, at_once=1)])
def test_moving_operators_take_integers(names: tuple[str, ...], shape: tuple[int, ...], tried: list[Any]) -> None:
    made, _ = quantized(tried, shape)
    taken = {n.name for n in made.graph_module.graph.nodes if str(n.target).startswith("zeropoint.dequantize")}
    for name in names:
        nodes = [n for n in made.graph_module.graph.nodes if aten_name(n) == SPELLED.get(name, name)]
        assert nodes, (name, made.graph_module.code)
        assert not any(getattr(a, "name", "") in taken for n in nodes for a in n.args), (name, made.graph_module.code)


@pytest.mark.parametrize(("name", "shape", "tried"), spelled(POOLING_CASES))
def test_pooling_operator_is_computed_on_integers(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    made, calls = quantized(tried, shape)
    if "pad" not in name:  # which pads integers, with their zero point or with what there is
        assert f"aten.{name}" not in calls, made.graph_module.code
    assert calls.count("zeropoint.quantize_per_tensor.default") == 1


def test_numbers_are_added_and_multiplied_without_a_scale_of_their_own() -> None:
    several = [lambda m, y: y + 1.5, lambda m, y: y - 2, lambda m, y: y * 3, lambda m, y: y / 4, lambda m, y: y.mul_(2)]
    several += [lambda m, y: -y, lambda m, y: 2 - y, lambda m, y: y.sub(3, alpha=2), lambda m, y: y.add(1, alpha=0.5)]
    _, calls = quantized(several, X1)
    assert calls.count("zeropoint.add_scalar.default") == 5
    assert calls.count("zeropoint.mul_scalar.default") == 5


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bags_of_four_bits(mode: str) -> None:
    torch.manual_seed(0)
    model, indices = nn.EmbeddingBag(40, 16, mode=mode).eval(), torch.randint(0, 40, (6, 5))
    qconfig = zeropoint.float_qparams_weight_only_qconfig_4bit
    made = zeropoint.to_int8(model, (indices,), qconfig=qconfig, mode="weight_only", progress=False)
    assert made.summary().of("embedding_bag")[0].precision.startswith("int8")
    assert any("embedding_bag_4bit" in str(n.target) for n in made.graph_module.graph.nodes)
    stored = [t.nbytes for name, t in made.state_dict().items() if not name.endswith("_extra_state")]
    assert sum(stored) < 0.25 * model.weight.nbytes
    with torch.no_grad():
        expected, found = model(indices), made(indices)
    assert (expected - found).square().mean().sqrt() < 0.15 * expected.square().mean().sqrt()
