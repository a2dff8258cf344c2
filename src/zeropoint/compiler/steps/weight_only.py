"""Linear layers on floats whose weights are kept small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from zeropoint.compiler.steps.table import row
from zeropoint.operators.node import arguments
from zeropoint.ops.weight_only import SmallWeight, half_weight, small_weight

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


def _weight_only(c: Compiler, a: dict[str, Any], small: SmallWeight, relu: bool = False) -> str:
    def constant(part: str, value: Tensor | None) -> str | None:
        return None if value is None else c.builder.constant(f"{a['weight'].target}{part}", value)

    return c.add(
        "weight_only_linear",
        c.tensor(a["input"]),
        constant("", small.weight),
        *(constant(f"_{part}", _flat(getattr(small, part))) for part in ("scale", "zero_point", "shift", "bias")),
        storage=small.storage,
        inputs=small.inputs,
        group_size=small.group_size,
        relu=relu,
    )


def _flat(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.reshape(-1)


@row("zeropoint.weight_only_linear.default", "zeropoint.weight_only_linear_4bit.default")
def _weight_only_linear(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(a["input"]) != torch.float32:
        raise c.unsupported(f"it is a step on float32 only, not on {c.dtype(a['input'])}")
    weight, scale, zero_point, bias = (
        None if a[k] is None else c.parameter(a[k]) for k in ("weight", "scale", "zero_point", "bias")
    )
    inputs, bits = c.found[a["input"]].shape[-1], 4 if "4bit" in str(node.target) else 8
    return _weight_only(
        c, a, small_weight(str(node.target), weight, inputs, bits, scale, zero_point, bias, a["group_size"])
    )


@row("zeropoint.linear_dynamic_fp16.default", "zeropoint.linear_relu_dynamic_fp16.default")
def _linear_fp16(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    bias = None if a["bias"] is None else c.parameter(a["bias"])
    return _weight_only(
        c, a, half_weight(str(node.target), c.parameter(a["weight"]), bias), "_relu" in str(node.target)
    )
