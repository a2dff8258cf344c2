"""Models for the eager workflows, made anew for every call, and twins: ours and torch.ao's."""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.nn.quantized
import torch.ao.quantization
from torch import Tensor, nn

from zeropoint.demo_digits import OURS, Library

THEIRS = Library("torch.ao", torch.ao.quantization, torch.ao.nn.quantized)
SIDES = OURS, THEIRS


class Mlp(nn.Module):
    """Two linear layers; the last can be left in float by its qconfig."""

    def __init__(self, side: Library) -> None:
        super().__init__()
        self.quant, self.dequant = side.quantization.QuantStub(), side.quantization.DeQuantStub()
        self.fc1, self.relu, self.fc2 = nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.dequant(self.fc2(self.relu(self.fc1(self.quant(x)))))


def twins(kind: Any, *arguments: Any) -> tuple[Any, Any]:
    """The same float model for ours and for torch.ao's workflow, with batch statistics that are not trivial."""
    torch.manual_seed(0)
    mine, peer = kind(OURS, *arguments), kind(THEIRS, *arguments)
    stir(mine)
    peer.load_state_dict(mine.state_dict())
    return mine, peer


def stir(model: nn.Module) -> nn.Module:
    """Give batch norms statistics and parameters, as after training."""
    generator = torch.Generator().manual_seed(1)
    for m in model.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            for t, low in ((m.weight, 0.5), (m.bias, -0.5), (m.running_mean, -0.5), (m.running_var, 0.5)):
                with torch.no_grad():
                    t.copy_(torch.rand(t.shape, generator=generator) + low)
    return model


def seven_bits(side: Library, per_channel: bool = False) -> Any:
    """A qconfig whose activations have 7 bits: torch's kernels saturate beyond, without VNNI."""
    q = side.quantization
    activation = q.MinMaxObserver.with_args(dtype=side.dtype("quint8"), quant_min=0, quant_max=127)
    return q.QConfig(activation, q.default_per_channel_weight_observer if per_channel else q.default_weight_observer)


def trained_bits(side: Library, per_channel: bool = False) -> Any:
    """A qconfig for training with whole bytes, where torch.ao's fake quantization and ours do the same."""
    q = side.quantization
    activation = q.FakeQuantize.with_args(
        observer=q.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=side.dtype("quint8")
    )
    return q.QConfig(
        activation, q.default_per_channel_weight_fake_quant if per_channel else q.default_weight_fake_quant
    )
