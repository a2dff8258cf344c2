"""Sizes of the example inputs stay free, but for those of one that the model broadcasts."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.graph.frontends.export import CaptureError, capture


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.layer(x) * weight


class Several(Weighted):
    def forward(self, *inputs: Tensor) -> Tensor:
        return self.layer(inputs[0]) * inputs[1]


class Nested(Weighted):
    def forward(self, x: Tensor, more: dict[str, Tensor], nothing: Tensor | None = None) -> Tensor:
        return self.layer(x) * more["weight"]


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize(
    ("example", "other", "fixed"),
    [
        (((3, 5, 4), (3, 5, 1)), ((2, 6, 4), (2, 6, 1)), ["axis 2"]),
        (((3, 5, 4), (1, 1, 4)), ((2, 6, 4), (1, 1, 4)), ["axis 0", "axis 1"]),
        (((1, 5, 4), (1, 5, 1)), ((2, 6, 4), (2, 6, 1)), ["axis 2"]),
        (((1, 1, 4), (1, 1, 4)), ((2, 6, 4), (2, 6, 4)), []),
    ],
    ids=["last axis", "for all", "batch of one", "not broadcast"],
)
def test_only_what_is_broadcast_is_fixed(example, other, fixed):
    model = Weighted().eval()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = capture(model, tuple(random(*shape) for shape in example))
    said = [str(w.message) for w in caught if "is fixed" in str(w.message)]
    assert said == [f"the size 1 of weight along {axis} is fixed: the model broadcasts it" for axis in fixed]
    inputs = tuple(random(*shape) for shape in other)
    assert torch.equal(graph(*inputs), model(*inputs))


@pytest.mark.filterwarnings("ignore:the size 1 of")
def test_another_size_where_it_is_fixed_is_an_error():
    graph = capture(Weighted().eval(), (random(3, 5, 4), random(3, 5, 1)))
    with pytest.raises(ValueError, match="weight has size 4 along axis 2, but the model needs 1 there"):
        graph(random(3, 5, 4), random(3, 5, 4))


@pytest.mark.filterwarnings("ignore:the size 1 of")
@pytest.mark.parametrize("kind", [Several, Nested])
def test_inputs_of_any_nesting(kind):
    def inputs(batch: int) -> tuple:
        x, weight = random(batch, 4), random(batch, 1)
        return (x, {"weight": weight}) if kind is Nested else (x, weight)

    model = kind().eval()
    graph = capture(model, inputs(1))
    assert torch.equal(graph(*inputs(6)), model(*inputs(6)))


@pytest.mark.filterwarnings("ignore:the size 1 of")
def test_whole_way_to_integers():
    model = Weighted().eval()
    quantized = zeropoint.to_int8(model, (random(1, 5, 4), random(1, 5, 1)), progress=False)
    assert quantized(random(3, 2, 4), random(3, 2, 1)).shape == (3, 2, 4)


def test_a_failure_for_another_reason_stays_one():
    class Choosy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(CaptureError, match="data-dependent"):
        capture(Choosy().eval(), (random(1, 4),))
