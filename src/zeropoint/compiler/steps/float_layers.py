"""Layers, batch and group norms and rows of tables that stay float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx

from zeropoint.compiler.steps.table import ours, row
from zeropoint.operators.node import arguments
from zeropoint.ops.float_layers import stored_weight
from zeropoint.ops.floats import batch_norm_line
from zeropoint.ops.geometry import Geometry

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


def _require_stored(c: Compiler, *nodes: Any) -> None:
    if any(node is not None and not c.is_parameter(node) for node in nodes):
        raise c.unsupported("its weight or bias is computed")


@row(*ours("float_linear"))
def _linear(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    _require_stored(c, a["weight"], a["bias"])
    return c.add("float_linear", *(c.tensor(a[k]) for k in ("input", "weight", "bias")))


@row(*ours("float_conv", "float_conv_transpose"))
def _conv(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    _require_stored(c, a["weight"], a["bias"])
    weight = c.parameter(a["weight"])
    dims, numbers = weight.dim() - 2, (a["stride"], a["padding"], a["dilation"], int(a["groups"]))
    geometry = Geometry("conv", dims, *numbers, a.get("output_padding"))
    stored = c.builder.constant(str(a["weight"].target), stored_weight(weight, geometry))
    x, is_single = c.tensor(a["input"]), c.rank(a["input"]) == dims + 1
    if is_single:
        x = c.add("unsqueeze", x, axis=0)
    y = c.add(
        "float_conv", x, stored, c.tensor(a["bias"]),
        spatial=dims, groups=geometry.groups, transposed=geometry.transposed, stride=list(geometry.stride),
        padding=list(geometry.padding), dilation=list(geometry.dilation), output_padding=list(geometry.output_padding),
    )  # fmt: skip
    return c.add("squeeze", y, axes=[0]) if is_single else y


def _with_line(c: Compiler, x: str | None, factors: Any, terms: Any, rank: int) -> str | None:
    """``x * factors + terms`` for each channel; either may be missing."""
    for op, values in (("float_multiply", factors), ("float_add", terms)):
        if values is not None:
            numbers = values.detach().float().reshape(-1, *[1] * (rank - 2))
            x = c.add(op, x, c.builder.constant(f"{c.node}_numbers", numbers))
    return x


@row(*ours("float_batch_norm"))
def _batch_norm(c: Compiler, node: fx.Node) -> str | None:
    a = arguments(node)
    names = ("weight", "bias", "running_mean", "running_var")
    _require_stored(c, *(a[k] for k in names))
    weight, bias, mean, var = (None if a[k] is None else c.parameter(a[k]) for k in names)
    assert mean is not None
    assert var is not None
    alpha, beta = batch_norm_line(weight, bias, mean, var, a["eps"])
    return _with_line(c, c.tensor(a["input"]), alpha, beta, c.rank(a["input"]))


@row(*ours("float_group_norm", "float_instance_norm"))
def _group_norm(c: Compiler, node: fx.Node) -> str | None:
    a = arguments(node)
    _require_stored(c, a["weight"], a["bias"])
    x, rank = a["input"], c.rank(a["input"])
    groups = a.get("num_groups", c.axis_size(x, 1))
    rows = c.add("reshape", c.tensor(x), shape=[c.number("multiply", c.axis_size(x, 0), groups), -1])
    normed = c.add("float_layer_norm", rows, None, None, axes=1, eps=a["eps"])
    y = c.add("reshape", normed, shape=[c.axis_size(x, axis) for axis in range(rank)])
    weight, bias = (None if a[k] is None else c.parameter(a[k]) for k in ("weight", "bias"))
    return _with_line(c, y, weight, bias, rank)
