"""Bounds and thresholds of float32 tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from zeropoint.compiler.steps.table import row
from zeropoint.operators.node import arguments

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


@row("aten.threshold.default")
def _threshold(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(node) != torch.float32:
        raise c.unsupported("it is a step on float32 only")
    return c.add("float_threshold", c.tensor(node.args[0]), **{k: _finite(c, a[k]) for k in ("threshold", "value")})


def clamped(c: Compiler, node: fx.Node) -> str:
    """Floats between two bounds, of which one may be missing."""
    a = arguments(node)
    low, high = 0.0 if "relu" in str(node.target) else a.get("min", a.get("min_val")), a.get("max", a.get("max_val"))
    bounds = {"low": None if low == -math.inf else low, "high": None if high == math.inf else high}
    return c.add(
        "float_clamp", c.tensor(node.args[0]), **{k: _finite(c, v) for k, v in bounds.items() if v is not None}
    )


def _finite(c: Compiler, number: Any) -> float:
    if not isinstance(number, (int, float)) or not math.isfinite(number):
        raise c.unsupported(f"{number} is no finite number")
    return float(number)
