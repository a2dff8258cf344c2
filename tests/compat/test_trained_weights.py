"""What conversion quantizes weights with that were trained, against torch.ao."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization as theirs
import torch.ao.quantization.quantize_fx as their_fx
from torch import Tensor, nn

import zeropoint
import zeropoint.compat
import zeropoint.fx


class Net(nn.Module):
    def __init__(self, library: Any) -> None:
        super().__init__()
        self.quant, self.dequant = library.QuantStub(), library.DeQuantStub()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.fc = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dequant(self.fc(self.relu(self.bn(self.conv(self.quant(x)))).flatten(1)))


class Plain(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.relu(self.bn(self.conv(x))).flatten(1))


def moved(prepared: nn.Module, x: Tensor) -> nn.Module:
    """After a step of training: weights have changed since they were observed."""
    prepared(x)
    with torch.no_grad():
        for parameter in (prepared.conv.weight, prepared.fc.weight):
            parameter.mul_(1.5)
    return prepared


def eager(library: Any, state: dict[str, Tensor], x: Tensor) -> nn.Module:
    model = Net(library).train()
    model.load_state_dict(state)
    model.qconfig = library.get_default_qat_qconfig("x86")
    fused = library.fuse_modules_qat(model, [["conv", "bn", "relu"]])
    return library.convert(moved(library.prepare_qat(fused), x).eval())


def graph(library: Any, state: dict[str, Tensor], x: Tensor) -> nn.Module:
    fx = their_fx if library is theirs else zeropoint.fx
    model = Plain(library).train()
    model.load_state_dict(state)
    mapping = library.get_default_qat_qconfig_mapping("x86")
    return fx.convert_fx(moved(fx.prepare_qat_fx(model, mapping, (x,)), x).eval())


def integers(model: Any) -> list[tuple[list[int], list[float]]]:
    weights = [model.conv.weight(), model.fc.weight()]
    return [(w.int_repr().flatten().tolist(), w.q_per_channel_scales().tolist()) for w in weights]


@pytest.mark.parametrize("mode", [eager, graph], ids=lambda mode: mode.__name__)
def test_averages_of_trained_weights_move_on_at_conversion_as_in_torch_ao(mode: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    state, x = copy.deepcopy(Net(theirs).state_dict()), torch.randn(2, 3, 6, 6)
    expected, kept = integers(mode(theirs, state, x)), integers(mode(zeropoint, state, x))
    zeropoint.compat.install()
    try:
        found = integers(mode(zeropoint, state, x))
    finally:
        zeropoint.compat.uninstall()
    assert found == expected
    assert kept != expected  # without compat, what was trained is what is deployed
