"""Functions of one value, sums, products, and tensors joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx

from zeropoint.compiler.steps.floats import clamped
from zeropoint.compiler.steps.table import dtype_name, ours, row
from zeropoint.numerics import functions
from zeropoint.numerics.functions import FUNCTIONS, Step
from zeropoint.operators.node import arguments
from zeropoint.ops import checks

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


@row(
    *ours(*(name for name in FUNCTIONS if name not in ("same", "scaled"))),
    *ours("celu", "relu6", "add_scalar", "add_scalar_relu", "mul_scalar", "mul_scalar_relu", "stored_function"),
    "aten.clamp_min.default", "aten.clamp_max.default", "aten.clamp.default", "aten.clip.default", "aten.relu.default",
    "aten.hardtanh.default",
)  # fmt: skip
def _function(c: Compiler, node: fx.Node) -> str:
    """Any function of bytes: its results for all 256 of them."""
    x = node.args[0]
    dtype = c.dtype(x)
    if dtype == torch.float32 and node.target.namespace == "aten":
        return clamped(c, node)
    if dtype not in (torch.uint8, torch.int8):
        raise c.unsupported(f"it is a step on uint8 and int8 only, not on {dtype_name(dtype)}")
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    results = node.target(every, *node.args[1:], **node.kwargs)
    table = c.builder.constant(f"{node}_table", results.view(torch.uint8))
    return c.add("lookup", c.tensor(x), table, dtype=dtype_name(results.dtype))


@row(*ours("lookup"))
def _lookup(c: Compiler, node: fx.Node) -> str:
    x, table = node.args
    if not c.is_parameter(table):
        raise c.unsupported("its table is computed")
    stored = c.builder.constant(f"{node}_table", c.parameter(table).view(torch.uint8))
    return c.add("lookup", c.tensor(x), stored, dtype=dtype_name(c.parameter(table).dtype))


@row(*ours("add", "add_relu", "mul", "mul_relu"))
def _binary(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    op = "add" if "zeropoint.add" in str(node.target) else "multiply"
    scales = {k: float(a[k]) for k in ("a_scale", "b_scale", "scale")}
    zero_points = {k: int(a[k]) for k in ("a_zero_point", "b_zero_point", "zero_point")}
    return c.add(op, c.tensor(a["a"]), c.tensor(a["b"]), **scales, **zero_points, relu="_relu" in str(node.target))


@row("aten.cat.default", "aten.concat.default", "aten.hstack.default")
def _plain_cat(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    tensors = [c.tensor(t) for t in a["tensors"]]
    axis = a.get("dim", min(c.rank(a["tensors"][0]) - 1, 1))
    return c.add("cat", *tensors, *[None] * (2 * len(tensors)), axis=axis)


@row(*ours("cat", "cat_relu"))
def _cat(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    dtype = c.dtype(node)
    low, high = checks.bounds(dtype)
    scale, zero_point = float(a["scale"]), int(a["zero_point"])
    least = max(low, zero_point) if "_relu" in str(node.target) else low

    def table(piece: tuple[float, int], function: str) -> str | None:
        if piece == (scale, zero_point) and least == low:
            return None
        step = Step(*piece, scale, zero_point, least, high)
        return c.builder.constant(f"{node}_table", functions.table_of(function, (), step, dtype, dtype))

    pieces = [(float(s), int(z)) for s, z in zip(a["scales"], a["zero_points"])]
    tables = [table(piece, function) for function in ("requantize", "same") for piece in pieces]
    return c.add("cat", *(c.tensor(t) for t in a["inputs"]), *tables, axis=a["dim"])
