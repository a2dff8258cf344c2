"""Every row of the tables of operators, traced and quantized."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from operator_cases import (
    CASES,
    MOVING_CASES,
    POOLING_CASES,
    X1,
    assert_close,
    functions_thinned,
    model_of,
    on_integers,
    spelled,
)
from script_graphs import nodes
from torch import Tensor, nn

import zeropoint
from zeropoint.operators import BY_NAME, operators

STATIC = zeropoint.get_default_qconfig("native")
# Tracing takes cells apart, so these are scripted.
CELLS = {
    "quantized_lstm_cell": nn.LSTMCell(12, 8),
    "quantized_gru_cell": nn.GRUCell(12, 8, bias=False),
    "quantized_rnn_tanh_cell": nn.RNNCell(12, 8),
    "quantized_rnn_relu_cell": nn.RNNCell(12, 8, nonlinearity="relu"),
}
# TorchScript does not know the dtypes of tensors, so a conversion to the one that a tensor has is not seen through.
MOVED = {name: cases for name, cases in MOVING_CASES.items() if name != "alias.default"}
TRACED = {name: cases for name, cases in CASES.items() if name not in CELLS}


class Flat(nn.Module):
    """A model whose results are one tuple of tensors, as tracing wants it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        flat = []
        for result in self.inner(x):
            flat += [result] if isinstance(result, Tensor) else list(result)
        return tuple(flat)


def spelling(node: Any) -> str:
    """The operator that a node calls, with its overload, as the tables have it."""
    name = node.schema().split("(")[0].removeprefix("aten::")
    return name if "." in name else f"{name}.default"


def quantized(name: str, tried: list[Any], shape: tuple[int, ...]) -> tuple[Any, list[Any]]:
    """The traced model on integers, which was found to be close to the float one, and the nodes of its graph."""
    model, data = model_of(tried, shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(Flat(model).eval(), torch.randn(shape), check_trace=False)
    qconfig = zeropoint.float_qparams_weight_only_qconfig if name.startswith("embedding") else STATIC
    prepared = zeropoint.prepare_jit(traced, {"": qconfig})
    for batch in (data, torch.randn(shape)):
        prepared(batch)
    made = zeropoint.convert_jit(prepared)
    assert_close(model, made, data)
    return made, list(nodes(made.graph))


class LstmSteps(nn.Module):
    """Two steps of a cell with two states."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.cell(x[:, 1], self.cell(x[:, 0]))


class Steps(nn.Module):
    """Two steps of a cell."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x[:, 1], self.cell(x[:, 0]))


def test_every_operator_of_the_tables_has_a_case() -> None:
    assert set(TRACED) | set(CELLS) == {operator.name for operator in operators() if operator.annotate is not None}


@pytest.mark.parametrize(("name", "shape", "tried"), functions_thinned(spelled(TRACED)))
def test_operator_is_computed_on_integers(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    operator = BY_NAME[name]
    made, found = quantized(name, tried, shape)
    assert any(node.kind().startswith(f"zeropoint::{on_integers(name)}") for node in found), made.graph
    assert not any(spelling(node) in operator.aten for node in found), made.graph
    rows = zeropoint.summary(made).of(name)
    assert rows
    assert all(row.precision.startswith("int8") for row in rows), zeropoint.summary(made)


@pytest.mark.parametrize("name", CELLS)
def test_cell_is_computed_on_integers(name: str) -> None:
    cell, x = CELLS[name], torch.randn(4, 2, 12)
    cell.reset_parameters()  # the same whatever was imported before
    model = (LstmSteps if name == "quantized_lstm_cell" else Steps)(cell).eval()
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), {"": zeropoint.default_dynamic_qconfig})
    kinds = [node.kind() for node in nodes(made.graph)]
    assert kinds.count(f"zeropoint::{name}_dynamic") == 2, made.graph
    with torch.no_grad():
        expected, found = model(x), made(x)
    # Inputs and weights are off by half a step each, in both of the two steps of the sequence.
    off = 2 * float((x.max() - x.min()) / 255 * cell.weight_ih.abs().sum(1).max())
    for e, f in zip(expected, found, strict=True):
        assert float((e - f).abs().max()) <= off


@pytest.mark.parametrize(("name", "shape", "tried"), spelled(MOVED))
def test_moving_operator_takes_integers(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    assert_on_integers(*quantized(name, tried, shape))


@pytest.mark.parametrize(("name", "shape", "tried"), spelled(POOLING_CASES))
def test_pooling_operator_is_computed_on_integers(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    assert_on_integers(*quantized(name, tried, shape))


def assert_on_integers(made: Any, found: list[Any]) -> None:
    """Whether floats are quantized once, at the start, and only the results are made floats again."""
    assert [node.kind() for node in found].count("zeropoint::quantize_per_tensor") == 1, made.graph
    for node in found:
        if node.kind() == "zeropoint::dequantize":
            assert {use.user.kind() for use in node.output().uses()} == {"prim::TupleConstruct"}, made.graph


def test_numbers_are_added_and_multiplied_without_a_scale_of_their_own() -> None:
    several = [lambda m, y: y + 1.5, lambda m, y: y - 2, lambda m, y: y * 3, lambda m, y: y / 4, lambda m, y: y.mul_(2)]
    several += [lambda m, y: -y, lambda m, y: 2 - y]
    _, found = quantized("add", several, X1)
    kinds = [node.kind() for node in found]
    assert kinds.count("zeropoint::add_scalar") == 3
    assert kinds.count("zeropoint::mul_scalar") == 4  # both negatives are one
