"""neural-compressor 2.6: `fit`, static, dynamic and with training."""

from __future__ import annotations

import functools
from typing import Any

import torch
from neural_compressor import PostTrainingQuantConfig, QuantizationAwareTrainingConfig, quantization
from neural_compressor.training import prepare_compression
from torch import nn

PACKAGES = ("setuptools<81", "neural-compressor==2.6", "schema", "py-cpuinfo", "prettytable", "deprecated",
            "wrapt", "pandas", "python-dateutil", "pytz", "opencv-python-headless", "pillow", "requests",
            "pycocotools", "wcwidth",
            "six", "matplotlib", "cycler", "kiwisolver", "contourpy", "fonttools")  # fmt: skip


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
        self.second, self.fc = nn.Conv2d(8, 8, 3), nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.second(self.relu(self.bn(self.conv(x)))).flatten(1))


class _Data:
    batch_size = 4

    def __iter__(self) -> Any:
        generator = torch.Generator().manual_seed(1)
        return iter([(torch.randn(4, 3, 8, 8, generator=generator), torch.zeros(4)) for _ in range(4)])


def _fitted(approach: str) -> Any:
    x = torch.randn(4, 3, 8, 8)
    config = PostTrainingQuantConfig(approach=approach, backend="default")
    fitted = quantization.fit(_Net().eval(), config, calib_dataloader=_Data())
    return fitted.model, lambda: fitted.model(x)


def _trained() -> Any:
    first, x = torch.randn(2, 4, 3, 8, 8)  # before what may draw other random numbers
    manager = prepare_compression(_Net().train(), QuantizationAwareTrainingConfig())
    manager.callbacks.on_train_begin()
    with torch.enable_grad():
        manager.model.model(first).pow(2).mean().backward()
    manager.callbacks.on_train_end()
    model = manager.model.model.eval()
    return model, lambda: model(x)


CASES = {a: functools.partial(_fitted, a) for a in ("static", "dynamic")} | {"training": _trained}
