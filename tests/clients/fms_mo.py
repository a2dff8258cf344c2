"""fms-model-optimizer: its layers for FBGEMM, made of reference layers of torch.ao."""

from __future__ import annotations

import functools
from typing import Any

import torch
from fms_mo.modules.linear import QLinearFPout
from torch.ao.nn.quantized.reference import Linear

PACKAGES = ("fms-model-optimizer==0.8.7",)


def _lowered(scheme: Any) -> Any:
    weight = torch.nn.Linear(16, 8)
    per_channel = scheme == torch.per_channel_affine
    qparams = {
        "qscheme": scheme,
        "dtype": torch.qint8,
        "scale": torch.full((8,), 0.01) if per_channel else 0.01,
        "zero_point": torch.zeros(8, dtype=torch.int64) if per_channel else 0,
        "axis": 0,
    }
    layer = QLinearFPout.from_reference(Linear.from_float(weight, qparams), 0.05, 64)
    model, x = torch.nn.Sequential(layer), torch.randn(5, 16)
    return model, lambda: model(x)


CASES = {
    "per tensor": functools.partial(_lowered, torch.per_tensor_affine),
    "per channel": functools.partial(_lowered, torch.per_channel_affine),
}


def INT8(model: Any) -> int:
    """Layers of the package with packed weights."""
    return sum(isinstance(module, torch.ao.nn.quantized.Linear) for module in model.modules())
