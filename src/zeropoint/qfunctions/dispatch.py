"""How functions on quantized tensors reach the operators on plain integers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.ops.library import KERNELS
from zeropoint.tensor.quantizer import is_plain
from zeropoint.tensor.recording import is_watched

__all__ = ["run"]


def run(name: str, *arguments: Any) -> Tensor:
    """The operator of that name, called directly unless a compiler looks on."""
    first = arguments[0] if isinstance(arguments[0], Tensor) else arguments[0][0]
    if is_watched() or not is_plain(first):
        return getattr(torch.ops.zeropoint, name)(*arguments)
    return KERNELS[name](*arguments)
