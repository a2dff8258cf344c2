"""TinyNeuralNetwork: its quantizers, which put observers in themselves."""

from __future__ import annotations

import functools
import tempfile
from typing import Any

import torch
from tinynn.graph.quantization.quantizer import PostQuantizer, QATQuantizer
from torch import nn

PACKAGES = ("tinynn @ git+https://github.com/alibaba/TinyNeuralNetwork", "igraph", "texttable", "ruamel.yaml")


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
        self.second, self.fc = nn.Conv2d(8, 8, 3), nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(self.second(self.relu(self.bn(self.conv(x)))) + 1.0, 1))


def _quantized(kind: Any) -> Any:
    x = torch.randn(2, 3, 8, 8)
    quantizer = kind(_Net(), (x,), work_dir=tempfile.mkdtemp(), config={"backend": "qnnpack", "force_overwrite": True})
    prepared = quantizer.quantize()
    with torch.set_grad_enabled(kind is QATQuantizer):
        output = prepared(x)
    if kind is QATQuantizer:
        output.pow(2).mean().backward()
    prepared.eval()
    made = quantizer.convert(prepared)
    return made, lambda: made(x)


CASES = {
    "static": functools.partial(_quantized, PostQuantizer),
    "training": functools.partial(_quantized, QATQuantizer),
}
