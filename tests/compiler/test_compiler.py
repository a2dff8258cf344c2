"""What compile makes of a graph, and what it refuses."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
import torch
from few_layers import Layers
from torch import nn

import zeropoint
from zeropoint.compiler import Unsupported


def compiled(model: nn.Module, *inputs: torch.Tensor) -> tuple[Any, Any]:
    quantized = zeropoint.to_int8(model.eval(), inputs, progress=False)
    return quantized, zeropoint.compile(quantized, inputs)


def written(program: Any) -> dict[str, Any]:
    """The program as its file has it."""
    data = program._native.data()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["zeropoint.program"])


def ops(program: Any) -> list[str]:
    return [step["op"] for step in written(program)["steps"]]


def test_functions_behind_layers_are_part_of_them() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Conv2d(8, 8, 3), nn.Hardswish(), nn.Conv2d(8, 4, 1), nn.ELU()
    )
    quantized, program = compiled(model, x)
    assert ops(program) == ["quantize", "conv", "conv", "conv", "dequantize"]
    assert torch.equal(program(x), quantized(x))


class Twice(Layers):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.first(x)
        return {"sum": self.second(torch.tanh(y) + y), "parts": (y, [x])}


def test_results_are_nested_as_the_model_nests_them() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    quantized, program = compiled(Twice(first=nn.Linear(6, 6), second=nn.Linear(6, 6)), x)
    found, expected = program(x), quantized(x)
    assert torch.equal(found["sum"], expected["sum"])
    assert torch.equal(found["parts"][0], expected["parts"][0])
    assert isinstance(found["parts"], tuple)
    assert torch.equal(found["parts"][1][0], x)


class Sorted(Layers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matrix_exp(self.layer(x))


def test_operator_without_a_step_is_named() -> None:
    with pytest.raises(Unsupported, match="matrix_exp"):
        compiled(Sorted(layer=nn.Linear(6, 6)), torch.randn(6, 6))


class Lacking(nn.Module):
    """Calls without steps, one of which reads another's result, and random numbers that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.inner = nn.Linear(6, 6), Sorted(layer=nn.Linear(6, 6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch.rand([]).lt(0.5)
        y = self.layer(x)
        return torch.sin(self.inner(y)), torch.matrix_exp(y), torch.linalg.svd(y)[0]


def test_all_operators_without_a_step_are_named_at_once() -> None:
    with pytest.raises(Unsupported) as caught:
        compiled(Lacking(), torch.randn(6, 6))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(
        "compile: 3 calls of 2 operators are not supported; with fallback=True PyTorch runs them"
    )
    assert lines[1].startswith("  aten.matrix_exp.default, 2 x (in module 'inner'): programs do not support it")
    assert lines[2].startswith("  aten.linalg_svd.default, 1 x: programs do not support it")
    assert len(lines) == 3  # sin reads what is missing


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(6, 6), nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return torch.where(y > 0, y.exp() * self.scale + 1, torch.sin(y) / 3).clamp(-2, 2).sqrt()


def test_operators_in_a_row_are_one_step() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    layer = zeropoint.QConfigMapping().set_module_name("layer", zeropoint.get_default_qconfig())
    quantized = zeropoint.to_int8(Chain().eval(), (x,), [(x,)], qconfig=layer, progress=False)
    program = zeropoint.compile(quantized, (x,))
    assert ops(program) == ["quantize", "linear", "dequantize", "map"]
    assert torch.equal(program(x).nan_to_num(9), quantized(x).nan_to_num(9))


class OfSizes(Layers):
    def forward(self, x: torch.Tensor) -> Any:
        n = x.shape[0]
        half, least = n // 2, min(n, 3)
        return self.layer(x)[:half] * n**2 / (n + 0.5), x[:least].sum() * math.sqrt(6), torch.full((n,), n - 1)


def test_numbers_of_sizes_are_computed_for_each_size() -> None:
    torch.manual_seed(0)
    quantized, program = compiled(OfSizes(layer=nn.Linear(6, 6)), torch.randn(8, 6))
    for count in (8, 5, 4):
        x = torch.randn(count, 6)
        for found, expected, of_torch in zip(program(x), quantized(x), OfSizes(layer=nn.Linear(6, 6))(x), strict=True):
            assert torch.equal(found, expected)
            assert found.shape == of_torch.shape


def test_float_models_become_float_programs() -> None:
    model, x = nn.Linear(2, 2).eval(), torch.randn(1, 2)
    program = zeropoint.compile(model, (x,))
    assert ops(program) == ["float_linear"]
    torch.testing.assert_close(program(x), model(x))


def test_other_models_are_refused() -> None:
    with pytest.raises(TypeError, match="to_int8"):
        zeropoint.compile(lambda x: x, (torch.ones(1, 2),))  # type: ignore[arg-type]
