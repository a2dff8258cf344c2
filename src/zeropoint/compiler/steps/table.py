"""THE table from operators of graphs to steps of programs. One row makes the steps of one operator, or of its family.

What a step computes, and the numbers it takes, is in native/engine/steps.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from zeropoint.graph.frontends.shape_guards import OPERATIONS

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler

__all__ = ["LAST", "NUMBERS", "ROWS", "Unsupported", "dtype_name", "ours", "row"]

Row = Callable[["Compiler", fx.Node], Any]
ROWS: dict[Any, Row] = {}
LAST = 2**62  # beyond the end of every axis

# What numbers that follow from sizes are made with.
NUMBERS: dict[str, Callable[[Any, Any], int]] = {
    **OPERATIONS,
    "subtract": operator.sub,
    "scaled": lambda a, b: int(a * b),
}


class Unsupported(NotImplementedError):
    """An operator that no step computes."""


def row(*names: Any) -> Callable[[Row], Row]:
    """Enters a function into the table, for these operators."""

    def enter(function: Row) -> Row:
        for name in names:
            assert name not in ROWS, name
            ROWS[name] = function
        return function

    return enter


def ours(*names: str) -> list[str]:
    """Names of our operators, as the table has them."""
    return [f"zeropoint.{name}.default" for name in names]


def dtype_name(dtype: torch.dtype) -> str:
    """``uint8`` for ``torch.uint8``."""
    return str(dtype).removeprefix("torch.")
