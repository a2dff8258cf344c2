"""The functions that compose operators of others, by name, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zeropoint.graph.torch_internals import NotComposed

__all__ = [
    "COMPOSITIONS",
    "FIXING",
    "WITH_WEIGHTS",
    "NotComposed",
    "aten",
    "axis_of",
    "compose",
    "counted",
    "in_dtype",
    "not_of_none",
    "of_channels",
    "scaled",
]

aten = torch.ops.aten
COMPOSITIONS: dict[str, Callable[..., Any]] = {}
WITH_WEIGHTS: set[str] = set()  # layers: composed only where their weights depend on the inputs
FIXING: set[str] = set()  # what may fix free sizes: those of weights, and those that its numbers fit alone


def compose(name: str, function: Callable[..., Any], layer: bool = False, fixes: bool = False) -> None:
    """Say what composes an operator, whether that is a layer, and whether it may fix free sizes."""
    COMPOSITIONS[name] = function
    if fixes:
        FIXING.add(name)
    if layer:
        WITH_WEIGHTS.add(name)


def axis_of(x: Tensor, axis: int) -> int:
    """An axis, counted from the first."""
    return axis % max(x.dim(), 1)


def counted(x: Tensor, axis: int) -> Tensor:
    """0, 1, ... along an axis, in the shape of a tensor; counted, because `arange` would fix a free size."""
    return torch.ones_like(x, dtype=torch.int64).cumsum(axis) - 1


def in_dtype(number: Any, x: Tensor) -> Any:
    """A factor as PyTorch takes it for integers: without what is behind the point."""
    return number if x.is_floating_point() or x.is_complex() else int(number)


def not_of_none(result: Tensor, x: Tensor) -> Tensor:
    """A result of floats; there is none if `x` has no elements: NaN is made of its first one."""
    return torch.where(result == result, result, x.reshape(-1).select(0, 0) * torch.nan)


def of_channels(value: Tensor | None, x: Tensor) -> Tensor | None:
    """One value for each channel, in the shape that it is broadcast in."""
    return None if value is None else value.reshape([1, -1] + [1] * (x.dim() - 2))


def scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """``x * weight + bias``"""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias
