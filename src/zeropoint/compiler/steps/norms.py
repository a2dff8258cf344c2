"""Norms, softmax and slopes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from zeropoint.compiler.steps.table import dtype_name, ours, row
from zeropoint.operators.node import arguments

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


def _scales(a: dict[str, Any]) -> dict[str, Any]:
    scales = {k: float(a[k]) for k in ("input_scale", "scale")}
    return scales | {k: int(a[k]) for k in ("input_zero_point", "zero_point")}


def flat_numbers(c: Compiler, node: Any) -> str | None:
    """Numbers of a norm, flat."""
    return None if node is None else c.builder.constant(str(node.target), c.parameter(node).float().reshape(-1))


@row(*ours("batch_norm", "batch_norm_relu"))
def _batch_norm(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    numbers = (flat_numbers(c, a[k]) for k in ("weight", "bias", "mean", "var"))
    relu = "_relu" in str(node.target)
    return c.add("batch_norm", c.tensor(a["input"]), *numbers, **_scales(a), eps=float(a["eps"]), relu=relu)


@row(*ours("group_norm", "instance_norm"))
def _group_norm(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    numbers = (flat_numbers(c, a[k]) for k in ("weight", "bias"))
    groups = a.get("num_groups", 0)
    return c.add("group_norm", c.tensor(a["input"]), *numbers, **_scales(a), eps=float(a["eps"]), groups=groups)


@row(*ours("layer_norm"))
def _layer_norm(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    numbers = (flat_numbers(c, a[k]) for k in ("weight", "bias"))
    axes = len(a["normalized_shape"])
    return c.add("layer_norm", c.tensor(a["input"]), *numbers, **_scales(a), eps=float(a["eps"]), axes=axes)


@row(*ours("softmax"))
def _softmax(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("softmax", c.tensor(a["input"]), **_scales(a), axis=a["dim"])


@row(*ours("prelu"))
def _prelu(c: Compiler, node: fx.Node) -> str:
    """A function of bytes for each channel."""
    a = arguments(node)
    slopes = c.parameter(a["weight"]).reshape(-1)
    every = torch.arange(256, dtype=torch.uint8).view(c.dtype(node.args[0]))
    rest = [a[k] for k in ("weight_scale", "weight_zero_point", "scale", "zero_point")]
    parameters = a["input_scale"], a["input_zero_point"], slopes, *rest
    results = node.target(every[:, None].expand(256, slopes.numel()), *parameters)
    tables = results.t().contiguous().view(torch.uint8)
    if slopes.numel() == 1:
        table = c.builder.constant(f"{node}_table", tables.reshape(-1))
        return c.add("lookup", c.tensor(a["input"]), table, dtype=dtype_name(every.dtype))
    return c.add("channel_lookup", c.tensor(a["input"]), c.builder.constant(f"{node}_tables", tables))
