"""Batch norms behind a layer whose axes were moved before: part of the layer, but for training."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from eight_bit_steps import steps_between
from torch import Tensor, nn

import zeropoint

Move = Callable[[Tensor], Tensor]


class Moved(nn.Module):
    def __init__(self, layer: nn.Module, norm: nn.Module, move: Move) -> None:
        super().__init__()
        self.layer, self.norm, self.move = layer, norm, move

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.move(self.layer(x))))


FOLDED: dict[str, tuple[nn.Module, nn.Module, Move, tuple[int, ...]]] = {
    "rows of tokens": (nn.Linear(6, 8), nn.BatchNorm1d(8), lambda y: y.flatten(0, 1), (2, 5, 6)),
    "tokens": (nn.Linear(6, 8), nn.BatchNorm1d(8), lambda y: y.transpose(1, 2), (3, 5, 6)),
    "heads": (nn.Linear(6, 8), nn.BatchNorm2d(8), lambda y: y.unflatten(1, (3, 2)).permute(0, 3, 1, 2), (3, 6, 6)),
    "pixels": (nn.Conv2d(3, 8, 3), nn.BatchNorm1d(8), lambda y: y.flatten(2), (2, 3, 6, 6)),
    "one line": (nn.Conv1d(3, 8, 3), nn.BatchNorm2d(8), lambda y: y.unsqueeze(2), (2, 3, 6)),
    "transposed": (nn.ConvTranspose1d(3, 8, 3), nn.BatchNorm2d(8), lambda y: y.unsqueeze(3), (2, 3, 6)),
}
OTHERS: dict[str, tuple[nn.Module, nn.Module, Move, tuple[int, ...]]] = {
    "another axis": (nn.Linear(6, 5), nn.BatchNorm1d(5), lambda y: y.view(3, 5, 5), (15, 6)),
    "half of the channels": (nn.Linear(6, 8), nn.BatchNorm1d(4), lambda y: y.view(-1, 4), (4, 6)),
    "places": (nn.Conv2d(3, 8, 3), nn.BatchNorm1d(16), lambda y: y.flatten(2).transpose(1, 2), (2, 3, 6, 6)),
}


def built(parts: tuple[nn.Module, nn.Module, Move, tuple[int, ...]]) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    layer, norm, move, shape = parts
    model, x = Moved(layer, norm, move), torch.randn(shape)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2.0)
        norm.bias.normal_()
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
    return model.eval(), x


@pytest.mark.parametrize("parts", FOLDED.values(), ids=FOLDED)
def test_a_batch_norm_behind_moved_axes_is_part_of_the_layer(parts) -> None:
    model, x = built(parts)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert "batch_norm" not in {row.operator for row in quantized.summary().rows}
    assert steps_between(quantized(x), model(x)) <= 4
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))


@pytest.mark.parametrize("parts", OTHERS.values(), ids=OTHERS)
def test_a_batch_norm_over_anything_else_than_the_channels_stays_by_itself(parts) -> None:
    model, x = built(parts)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert "batch_norm" in {row.operator for row in quantized.summary().rows}
    assert steps_between(quantized(x), model(x)) <= 4


def test_it_trains_by_itself() -> None:
    model, x = built(FOLDED["tokens"])
    mapping = zeropoint.get_default_qat_qconfig_mapping("native")
    prepared = zeropoint.prepare_qat_graph(model.train(), mapping, (x,))
    before = {name: value.clone() for name, value in prepared.named_buffers() if "running_mean" in name}
    prepared(x)
    assert before
    assert all(not torch.equal(value, dict(prepared.named_buffers())[name]) for name, value in before.items())
