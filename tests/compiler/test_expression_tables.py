"""Expressions of one tensor: rounded at their end, one table in a program, with the bytes of the graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zeropoint
from zeropoint.compiler.compiler import compile_with
from zeropoint.graph.expressions import expressions_in
from zeropoint.graph.to_int8 import prepare_int8
from zeropoint.graph.workflow import float_graph

EXPRESSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "hard-swish in parts": lambda x: x * torch.clamp(x + 3, 0, 6) / 6,
    "swish in parts": lambda x: x * torch.sigmoid(x),
    "mish in parts": lambda x: x * torch.tanh(F.softplus(x)),
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "learned scale": lambda x: 0.7 * torch.where(x > 0, x, 0.1 * x) + 0.3,
}


class Residual(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.first, self.second, self.last = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.function(self.first(x))
        return self.last(y + self.function(self.second(y)))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_is_a_table_of_its_layer_with_the_bytes_of_the_graph(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 12, 12)
    graph = zeropoint.to_int8(Residual(EXPRESSIONS[name]).eval(), (x,), [torch.randn_like(x)], progress=False)
    program = zeropoint.compile(graph, (x,))
    assert [row.op for row in program.profile(x)] == ["quantize", "conv", "conv", "conv", "dequantize"]
    for given in (x, 3 * torch.randn_like(x)):
        with torch.no_grad():
            wanted = graph(given).numpy()
        assert np.array_equal(np.asarray(program(given)), wanted)
        assert np.array_equal(np.asarray(compile_with((), graph, (x,))(given)), wanted)


def test_rounding_at_the_end_alone_loses_less() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Mish(), nn.Conv2d(16, 8, 3)).eval(), torch.randn(16, 3, 12, 12)
    model[1].forward = EXPRESSIONS["hard-swish in parts"]  # type: ignore[method-assign]

    def error(whole: bool) -> float:
        graph = zeropoint.to_int8(model, (x,), [x], policy={"whole_expressions": whole}, progress=False)
        with torch.no_grad():
            return float((graph(x) - model(x)).square().mean())

    assert error(True) < error(False)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 2.0 * x + 1.0,  # changes scale and zero point
        lambda x: torch.clamp(torch.sigmoid(x), 0.1, 0.9),  # rounds once
        lambda x: F.relu(x) * 0.5,  # the ReLU is part of the layer
        lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)),  # of two tensors
    ],
    ids=["numbers", "one function", "ReLU", "two tensors"],
)
def test_what_is_no_expression(function: Callable[[Tensor], Tensor]) -> None:
    model, x = Residual(function), torch.randn(1, 3, 12, 12)
    assert expressions_in(float_graph(model.eval(), (x,))) == set()


def test_a_rule_of_its_own_goes_before_the_expression() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 12, 12)
    native = zeropoint.get_default_qconfig("native")
    rules = zeropoint.get_default_qconfig_mapping("native").set_object_type(torch.mul, native)
    model = Residual(lambda x: torch.mul(x, torch.sigmoid(x))).eval()
    ways = []
    for given in (None, rules):
        graph = zeropoint.to_int8(model, (x,), [x], given, progress=False)
        ways.append([row.precision for row in graph.summary().rows if row.operator == "mul"])
    assert ways == [["float32"] * 2, ["int8"] * 2]


def test_a_number_with_more_dimensions_than_the_bytes_is_no_table() -> None:
    class Wider(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
            self.register_buffer("number", torch.full((1, 1, 1), 0.5))

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            return self.last(torch.sigmoid(y) * (y + self.number))

    torch.manual_seed(0)
    x = torch.randn(6, 4)
    graph = zeropoint.to_int8(Wider().eval(), (x,), [x], progress=False)
    with torch.no_grad():
        assert np.array_equal(np.asarray(zeropoint.compile(graph, (x,))(x)), graph(x).numpy())


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_behind_a_linear_layer_is_its_table(name: str) -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 32), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(EXPRESSIONS[name](self.first(x)))

    torch.manual_seed(0)
    x = torch.randn(16, 8)
    graph = zeropoint.to_int8(Layers().eval(), (x,), [x], progress=False)
    program = zeropoint.compile(graph, (x,))
    assert [row.op for row in program.profile(x)] == ["quantize", "linear", "linear"]
    with torch.no_grad():
        assert np.array_equal(np.asarray(program(x)), graph(x).numpy())


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_come_back_from_onnx_files_as_they_were(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 12)
    graph = zeropoint.to_int8(Residual(EXPRESSIONS[name]).eval(), (x,), [x], progress=False)
    zeropoint.export_onnx(graph, (x,), tmp_path / "model.onnx")
    with torch.no_grad():
        assert torch.equal(zeropoint.from_onnx(tmp_path / "model.onnx")(x), graph(x))


def test_the_reference_rounds_an_expression_where_integers_are_read_only() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Identity()).eval(), torch.randn(2, 3, 8, 8)
    model[1].forward = EXPRESSIONS["swish in parts"]  # type: ignore[method-assign]
    prepared, _ = prepare_int8(model, (x,), None, "static", None)
    prepared(x)
    with torch.no_grad():
        wanted = zeropoint.convert_graph(prepared)(x)
        found = zeropoint.convert_graph(prepared, debug=True)(x)
    assert torch.equal(found, wanted)
