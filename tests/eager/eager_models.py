"""Models for the eager workflows, made anew for every call, and twins: ours and torch.ao's."""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.nn.quantized as theirs_nnq
import torch.ao.quantization as theirs
from torch import Tensor, nn

import zeropoint as ours
from zeropoint.nn import quantized as ours_nnq


class Residual(nn.Module):
    """Convolutions with batch norm, one of them depthwise, around which their input goes and is added."""

    def __init__(self, channels: int, functional: Any) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu1 = nn.ReLU()
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.add = functional()

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu1(self.bn1(self.depthwise(x)))
        return self.add.add_relu(self.bn2(self.pointwise(y)), x)


class Cnn(nn.Module):
    """Images ``(N, 1, 8, 8)`` to ten logits, between the stubs of `side` (this module's `OURS` or `THEIRS`)."""

    def __init__(self, side: Side, channels: int = 32) -> None:
        super().__init__()
        self.quant, self.dequant = side.quantization.QuantStub(), side.quantization.DeQuantStub()
        self.conv = nn.Conv2d(1, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.block1 = Residual(channels, side.functional)
        self.pool = nn.MaxPool2d(2)
        self.block2 = Residual(channels, side.functional)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.flat = nn.Flatten()
        self.fc = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn(self.conv(self.quant(x))))
        x = self.block2(self.pool(self.block1(x)))
        return self.dequant(self.fc(self.flat(self.mean(x))))


CNN_CHAINS = [
    ["conv", "bn", "relu"],
    *(
        chain
        for block in ("block1", "block2")
        for chain in (
            [f"{block}.depthwise", f"{block}.bn1", f"{block}.relu1"],
            [f"{block}.pointwise", f"{block}.bn2"],
        )
    ),
]


class Mlp(nn.Module):
    """Two linear layers; the last can be left in float by its qconfig."""

    def __init__(self, side: Side) -> None:
        super().__init__()
        self.quant, self.dequant = side.quantization.QuantStub(), side.quantization.DeQuantStub()
        self.fc1, self.relu, self.fc2 = nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.dequant(self.fc2(self.relu(self.fc1(self.quant(x)))))


class Side:
    """One of the two libraries, with what their paths differ in."""

    def __init__(self, quantization: Any, nnq: Any) -> None:
        self.quantization, self.nnq, self.functional = quantization, nnq, nnq.FloatFunctional


SIDES = OURS, THEIRS = Side(ours, ours_nnq), Side(theirs, theirs_nnq)


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


def seven_bits(side: Side, per_channel: bool = False) -> Any:
    """A qconfig whose activations have 7 bits: torch's kernels saturate beyond, without VNNI."""
    q = side.quantization
    activation = q.MinMaxObserver.with_args(dtype=_dtype(side, "quint8"), quant_min=0, quant_max=127)
    return q.QConfig(activation, q.default_per_channel_weight_observer if per_channel else q.default_weight_observer)


def trained_bits(side: Side, per_channel: bool = False) -> Any:
    """A qconfig for training with whole bytes, where torch.ao's fake quantization and ours do the same."""
    q = side.quantization
    activation = q.FakeQuantize.with_args(
        observer=q.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=_dtype(side, "quint8")
    )
    return q.QConfig(
        activation, q.default_per_channel_weight_fake_quant if per_channel else q.default_weight_fake_quant
    )


def _dtype(side: Side, name: str) -> Any:
    return getattr(torch if side is THEIRS else ours, name)
