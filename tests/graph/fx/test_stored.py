"""Graphs that are copied and saved."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import Tensor, nn

import zeropoint


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, inputs: dict[str, Tensor], more: list[Tensor]) -> dict[str, tuple[Tensor, ...]]:
        return {"sums": (self.layer(inputs["x"]) + more[0], more[1])}


def _saved(quantized: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(quantized, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [copy.deepcopy, _saved, lambda q: pickle.loads(pickle.dumps(q))])
def test_nested_inputs_survive_without_a_warning(again):
    torch.manual_seed(0)
    inputs = {"x": torch.randn(3, 4)}, [torch.randn(3, 4), torch.randn(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        quantized = zeropoint.to_int8(Nested().eval(), inputs, [inputs], progress=False)
        same = again(quantized)
    with torch.no_grad():
        expected, found = quantized(*inputs), same(*inputs)
    assert found.keys() == {"sums"}
    assert all(torch.equal(a, b) for a, b in zip(expected["sums"], found["sums"], strict=True))
