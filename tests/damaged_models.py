"""Models with one layer that 8 bits cannot hold."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.observers import FixedQParamsObserver

BAD = "second"


class Net(nn.Module):
    """Four layers in a row, and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.relu2 = nn.ReLU()
        self.third = nn.Conv2d(16, 16, 3, padding=1)
        self.add = zeropoint.nn.quantized.FloatFunctional()
        self.last = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.first(x)))
        y = self.third(self.relu2(self.second(x)))
        return self.last(self.add.add_relu(x, y).mean((2, 3)))


def net(kind: type[nn.Module] = Net) -> Any:
    """A network of this kind whose batch norms have seen some images."""
    torch.manual_seed(0)
    model = kind()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(8, 3, 8, 8))
    return model.eval()


def batches(count: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, 3, 8, 8, generator=generator) for _ in range(count)]


def with_outliers(model: Net) -> Net:
    """Weights for a channel that is always zero, so large that with one scale for all the others are nearly zero."""
    with torch.no_grad():
        model.norm.weight[0], model.norm.bias[0] = 0.0, -1.0
        model.second.weight[:, 0] = 8.0
    return model


def per_tensor() -> zeropoint.QConfig:
    """One scale for each weight."""
    return zeropoint.QConfig(
        zeropoint.MinMaxObserver.with_args(dtype=zeropoint.quint8), zeropoint.default_weight_observer
    )


def clipped() -> zeropoint.QConfig:
    """Results from 0 to 0.05, whatever they are."""
    narrow = FixedQParamsObserver.with_args(
        scale=0.05 / 255, zero_point=0, dtype=zeropoint.quint8, quant_min=0, quant_max=255
    )
    return zeropoint.QConfig(narrow, zeropoint.default_per_channel_weight_observer)


def assert_outliers_found(rows: Any) -> None:
    """The first row is the layer of `with_outliers`, with the reason."""
    worst = rows[0]
    assert worst.path == BAD
    assert worst.share > 0.5
    assert worst.weight_sqnr is not None
    assert worst.weight_sqnr < 30
    assert "outliers in the weight" in worst.why
