"""What `to_int8` says of a model whose outputs are far from those of the float model, before somebody deploys it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.comparison.layers import compare_outputs


class Loud(nn.Module):
    """One channel a thousand times larger than the others, which it does not return."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(7, 4)
        with torch.no_grad():
            self.first.weight[0] *= 300

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x))[:, 1:])


def batches() -> list[Tensor]:
    return list(torch.randn(4, 64, 8, generator=torch.Generator().manual_seed(0)))


def test_outputs_that_are_far_from_float_are_said_with_the_layers_and_the_way_out() -> None:
    torch.manual_seed(0)
    model = Loud().eval()
    said = r"outputs differ from those of the float model by \d+% \(-?[\d.]+ dB\).*in relu .*mode='dynamic'.*tune"
    with pytest.warns(UserWarning, match=said):
        quantized = zeropoint.to_int8(model, (batches()[0],), batches(), progress=False)
    assert compare_outputs(model, quantized, batches()[:1]).sqnr < 12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dynamic = zeropoint.to_int8(model, (batches()[0],), mode="dynamic", progress=False)
    assert compare_outputs(model, dynamic, batches()[:1]).sqnr > 30


def test_outputs_that_are_near_are_not_spoken_of() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zeropoint.to_int8(model, (batches()[0],), batches(), progress=False)


def test_measuring_leaves_random_numbers_state_and_data_as_they_were() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("seen", torch.zeros(1, 8))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += self.linear(x).sum(0, keepdim=True)
            return self.seen * 1.0

    torch.manual_seed(0)
    model, data = Counting().eval(), batches()
    kept, before = [x.clone() for x in data], torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantized = zeropoint.to_int8(model, (data[0],), data, progress=False)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(data, kept))
    assert torch.equal(quantized(data[0]), zeropoint.compile(quantized, (data[0],))(data[0]))
