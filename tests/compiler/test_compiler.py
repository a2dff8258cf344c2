"""What compile makes of a graph, and what it refuses."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
import torch
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


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.first(x)
        return {"sum": self.second(torch.tanh(y) + y), "parts": (y, [x])}


def test_results_are_nested_as_the_model_nests_them() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    quantized, program = compiled(Twice(), x)
    found, expected = program(x), quantized(x)
    assert torch.equal(found["sum"], expected["sum"])
    assert torch.equal(found["parts"][0], expected["parts"][0])
    assert isinstance(found["parts"], tuple)
    assert torch.equal(found["parts"][1][0], x)


class Sorted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.erfinv(self.layer(x))


def test_operator_without_a_step_is_named() -> None:
    with pytest.raises(Unsupported, match="erfinv"):
        compiled(Sorted(), torch.randn(2, 6))


def test_other_models_are_refused() -> None:
    with pytest.raises(TypeError, match="to_int8"):
        zeropoint.compile(nn.Linear(2, 2), (torch.ones(1, 2),))
