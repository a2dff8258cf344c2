"""Eager quantization of a small model, and how near it must be."""

from __future__ import annotations

from typing import Any

import torch
from eight_bit_steps import steps_between
from torch import Tensor, nn

import zeropoint


def converted_eagerly(model: nn.Module, x: Tensor) -> Any:
    """The wrapped model, calibrated with `x` and converted."""
    wrapped = zeropoint.QuantWrapper(model).eval()
    wrapped.qconfig = zeropoint.get_default_qconfig("native")
    prepared = zeropoint.prepare(wrapped)
    prepared(x)
    return zeropoint.convert(prepared)


def assert_close(made: Any, model: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        expected = model(x)
        assert steps_between(made(x), expected) <= 4
