"""catalyst: `quantize_model`."""

from __future__ import annotations

from typing import Any

import torch
from catalyst.utils.quantization import quantize_model

PACKAGES = ("catalyst", "tensorboardX", "tqdm", "torchvision", "pillow")


def _dynamic() -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).eval()
    quantized = quantize_model(model)
    x = torch.randn(8, 32)
    return quantized, lambda: quantized(x)


CASES = {"quantize_model": _dynamic}
