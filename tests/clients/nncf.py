"""nncf: fake quantization of torch.ao over torchao's observers, as its FX backend has it."""

from __future__ import annotations

import functools
from typing import Any

import nncf.experimental.torch.fx  # noqa: F401
import torch
from torch.quantization.fake_quantize import FakeQuantize
from torchao.quantization.pt2e.observer import MinMaxObserver, PerChannelMinMaxObserver

PACKAGES = ("nncf", "torchao==0.18.0")
KINDS = {
    "per channel": (PerChannelMinMaxObserver, "per_channel_symmetric"),
    "per tensor": (MinMaxObserver, "per_tensor_affine"),
}


def _fake_quantized(name: str) -> Any:
    observer, scheme = KINDS[name]
    options = {
        "quant_min": -128,
        "quant_max": 127,
        "dtype": torch.qint8,
        "qscheme": getattr(torch, scheme),
        "eps": 1e-16,
    }
    made = FakeQuantize(observer=observer, **options)
    x = torch.randn(4, 3)
    made(x)
    return made, lambda: made(x)


CASES = {name: functools.partial(_fake_quantized, name) for name in KINDS}


def INT8(model: Any) -> int:
    """The scales that were found: nothing is int8 yet."""
    return int((model.scale != 1).sum())
