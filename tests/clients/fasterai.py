"""fasterai: `Quantizer`, static and dynamic."""

from __future__ import annotations

import functools
from typing import Any

import torch
from fasterai.quantize.quantizer import Quantizer
from torch import nn

PACKAGES = ("fasterai", "fastcore", "tqdm")


def _quantized(method: str) -> Any:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).eval()
    data = [(torch.randn(4, 3, 8, 8), torch.zeros(4)) for _ in range(3)]
    x = torch.randn(4, 3, 8, 8)
    made = Quantizer("x86", method).quantize(model, calibration_dl=data)
    return made, lambda: made(x)


CASES = {method: functools.partial(_quantized, method) for method in ("static", "dynamic")}
