"""Linear layers, convolutions and products of two tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from zeropoint.compiler.steps.table import dtype_name, ours, row
from zeropoint.operators.node import arguments
from zeropoint.ops import checks
from zeropoint.ops.geometry import three

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


def _result(c: Compiler, a: dict[str, Any], relu: bool, dtype: torch.dtype) -> dict[str, Any]:
    """The numbers of a layer's result."""
    if dtype == torch.float32:
        return {"dtype": "float32", "relu": relu}
    low, high = checks.bounds(dtype)
    zero_point = int(a["zero_point"])
    low = max(low, min(zero_point, high)) if relu else low
    return {"dtype": dtype_name(dtype), "scale": float(a["scale"]), "zero_point": zero_point, "low": low, "high": high}


def _stored(c: Compiler, a: dict[str, Any], weight: Tensor, repeat: int = 1) -> list[str | None]:
    """The constants of a layer: its weight with the output channels first, scales, zero points, bias or None."""
    name = str(a["weight"].target)
    scale, zero_point = (c.parameter(a[f"weight_{k}"]).reshape(-1) for k in ("scale", "zero_point"))
    if repeat > 1:  # scales of transposed convolutions lie along the outputs of one group
        scale, zero_point = (
            t.repeat(repeat) if t.numel() * repeat == weight.shape[0] else t for t in (scale, zero_point)
        )
    bias = None if a["bias"] is None else c.builder.constant(str(a["bias"].target), c.parameter(a["bias"]).float())
    return [
        c.builder.constant(name, weight),
        c.builder.constant(f"{name}_scale", scale.float()),
        c.builder.constant(f"{name}_zero_point", zero_point.to(torch.int32)),
        bias,
    ]


def _layer(c: Compiler, node: fx.Node, op: str, weight: Tensor, repeat: int = 1, **numbers: Any) -> str:
    """A step of a layer, on integers or, if it is dynamic, on floats."""
    a = arguments(node)
    x, stored, relu = c.tensor(a["input"]), _stored(c, a, weight, repeat), "_relu" in str(node.target)
    numbers |= {"weight_dtype": dtype_name(weight.dtype)}
    if "_dynamic" in str(node.target):
        numbers |= {k: bool(a[k]) for k in ("reduce_range", "per_token") if k in a}
        numbers |= {"relu": relu} if op == "linear" else {}
        return c.add(f"{op}_dynamic", x, *stored, **numbers)
    numbers |= {"input_scale": float(a["input_scale"]), "input_zero_point": int(a["input_zero_point"])}
    return c.add(op, x, *stored, None, **numbers, **_result(c, a, relu, c.dtype(node)))


@row(*ours("linear", "linear_relu", "linear_to_float", "linear_dynamic", "linear_relu_dynamic"))
def _linear(c: Compiler, node: fx.Node) -> str:
    return _layer(c, node, "linear", c.parameter(arguments(node)["weight"]))


def _spatial(values: Any, missing: int, dims: int) -> list[int]:
    return list(three([int(v) for v in values], missing, dims))


@row(*ours(*(f"conv{d}d{kind}" for d in (1, 2, 3) for kind in ("", "_relu", "_dynamic"))))
@row(*ours(*(f"conv_transpose{d}d{kind}" for d in (1, 2, 3) for kind in ("", "_dynamic"))))
def _conv(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    weight, groups = c.parameter(a["weight"]), int(a["groups"])
    dims = weight.dim() - 2
    transposed = "output_padding" in a
    if transposed:  # (in, out / groups, ...) -> (out, in / groups, ...)
        inputs, each, *kernel = weight.shape
        weight = weight.reshape(groups, inputs // groups, each, *kernel).transpose(1, 2)
        weight = weight.reshape(groups * each, inputs // groups, *kernel)
    stored = weight.reshape(*weight.shape[:2], *[1] * (3 - dims), *weight.shape[2:]).movedim(1, -1)
    return _layer(
        c, node, "conv", stored, groups if transposed else 1,
        spatial=dims, groups=groups, transposed=transposed,
        stride=_spatial(a["stride"], 1, dims), padding=_spatial(a["padding"], 0, dims),
        dilation=_spatial(a["dilation"], 1, dims),
        output_padding=_spatial(a["output_padding"] if transposed else [0], 0, dims),
    )  # fmt: skip


@row(*ours("matmul", "bmm"))
def _matmul(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    scales = {k: float(a[k]) for k in ("a_scale", "b_scale", "scale")}
    zero_points = {k: int(a[k]) for k in ("a_zero_point", "b_zero_point", "zero_point")}
    return c.add("matmul", c.tensor(a["a"]), c.tensor(a["b"]), **scales, **zero_points)
