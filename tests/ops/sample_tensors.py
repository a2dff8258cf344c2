"""Tensors and numbers to call operators with: of every dtype and layout, the same in every run."""

from __future__ import annotations

import torch
from strategies import integers, lay_out

# name -> list of (arguments, keyword arguments). A list, because inputs differ in dtype, layout and gradient.
Samples = dict[str, list[tuple[tuple, dict]]]

ours = torch.ops.zeropoint

INT8 = (-128, 127, torch.int8)
UINT8 = (0, 255, torch.uint8)


def values(*shape: int, dtype: torch.dtype = torch.float32, layout: str = "contiguous") -> torch.Tensor:
    return lay_out(torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype), layout)


def leaf(*shape: int, **options) -> torch.Tensor:
    return values(*shape, **options).requires_grad_()


def codes(*shape: int, dtype: torch.dtype = torch.int8, layout: str = "contiguous") -> torch.Tensor:
    return lay_out(integers(0, shape, dtype), layout)


def scales(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 0.1).to(dtype)


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def one(number: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([number], dtype=dtype)


def running(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A range that was observed before."""
    return torch.full(shape, -0.5), torch.full(shape, 0.75)


ON, OFF = one(1, torch.int64), one(0, torch.int64)
BELL = torch.exp(-torch.linspace(-8, 8, 64).square() / 2) * 1000
ENDS = torch.tensor(-8.0), torch.tensor(8.0)
EPS = one(torch.finfo(torch.float32).eps, torch.float32)
SCALE, ZERO = one(0.1, torch.float32), one(3, torch.int64)
FLOAT32 = torch.float32
