"""Weights that a model computes from its parameters: layers with them are quantized and compiled like others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import zeropoint


class Standardized(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.weight.mean((1, 2, 3), keepdim=True), self.weight.var((1, 2, 3), keepdim=True)
        return F.conv2d(x, (self.weight - mean) / (var + 1e-5).sqrt(), self.bias, padding=1)


class Sliced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(24, 8)), nn.Parameter(torch.randn(24))

    def forward(self, x: Tensor) -> Any:
        return [F.linear(x, w, b) for w, b in zip(self.weight.chunk(3), self.bias.chunk(3))]


MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "weight norm": (nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 4)), (4, 8)),
    "spectral norm": (nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 8)), nn.ReLU()), (4, 8)),
    "standardized": (nn.Sequential(Standardized(3, 8, 3), nn.ReLU()), (2, 3, 6, 6)),
    "slices": (Sliced(), (4, 8)),
    "scaled": (nn.Sequential(parametrizations.orthogonal(nn.Linear(8, 8)), nn.Tanh()), (4, 8)),
}


@pytest.mark.parametrize(("model", "shape"), MODELS.values(), ids=MODELS)
def test_layers_with_computed_weights_are_quantized_and_compiled(model: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    quantized = zeropoint.to_int8(model.eval(), (x,), [(x,)], progress=False)
    layers = [row for row in quantized.summary().rows if row.operator in ("linear", "conv2d")]
    assert layers
    assert all(row.precision.startswith("int8") for row in layers)
    program = zeropoint.compile(quantized, (x,))
    with torch.no_grad():
        for found, expected in zip(_list(program(x)), _list(quantized(x)), strict=True):
            assert torch.equal(found, expected)


def _list(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
