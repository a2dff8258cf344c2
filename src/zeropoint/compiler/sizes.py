"""Sizes of tensors as numbers of a program, and what is computed with them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from zeropoint.compiler.program_builder import Size
from zeropoint.graph.frontends.shape_guards import OPERATIONS
from zeropoint.operators.steps import Emit, StepBuilder

__all__ = ["NUMBERS", "SIZES"]

# What numbers that follow from sizes are made with.
NUMBERS: dict[str, Callable[[Any, Any], int]] = {
    **OPERATIONS,
    "subtract": operator.sub,
    "scaled": lambda a, b: int(a * b),
}


def _emit_numel(c: StepBuilder, node: fx.Node) -> Any:
    return c.number_of_elements(node.args[0])


def _emit_size(c: StepBuilder, node: fx.Node) -> Size:
    return Size(c.add("size", c.tensor(node.args[0]), axis=node.args[1]))


def _emit_arithmetic(c: StepBuilder, node: fx.Node) -> Any:
    a, b = node.args
    if node.target is operator.mul and isinstance(b, float):
        return c.number("scaled", c.size(a), b)
    name = next(name for name, function in NUMBERS.items() if function is node.target)
    return c.number(name, c.size(a), c.size(b))


def _emit_whole(c: StepBuilder, node: fx.Node) -> Any:
    """What is cut off is cut off by the product before it."""
    return c.size(node.args[0])


def _emit_scaled(c: StepBuilder, node: fx.Node) -> Any:
    """A number on its way to a product with a factor, of which the whole part is taken."""
    products = [user for user in node.users if user.target is operator.mul and isinstance(user.args[1], float)]
    readers = [reader for product in products for reader in product.users]
    if len(products) != len(node.users) or any(
        r.target not in (torch.sym_int, math.trunc, math.floor) for r in readers
    ):
        raise c.unsupported("sizes are whole numbers")
    return c.size(node.args[0])


SIZES: dict[Any, Emit] = {
    "aten.sym_numel.default": _emit_numel,
    "aten.sym_size.int": _emit_size,
    **dict.fromkeys((operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod), _emit_arithmetic),
    **dict.fromkeys((torch.sym_int, math.trunc, math.floor), _emit_whole),
    torch.sym_float: _emit_scaled,
}
