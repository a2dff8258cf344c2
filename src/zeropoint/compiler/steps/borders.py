"""Between floats and integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx

from zeropoint.compiler.steps.table import dtype_name, ours, row
from zeropoint.operators.node import arguments

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


@row(*ours("quantize_per_tensor"))
def _quantize(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    bounds = {"low": a["quant_min"], "high": a["quant_max"]}
    parameters = {"scale": float(a["scale"]), "zero_point": a["zero_point"], "dtype": dtype_name(a["dtype"])}
    return c.add("quantize", c.tensor(a["input"]), **parameters, **bounds)


@row(*ours("quantize_per_channel"))
def _quantize_channels(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if not all(c.is_parameter(a[k]) for k in ("scales", "zero_points")):
        raise c.unsupported("its scales or zero points are computed")
    stored = [(a["scales"], torch.float32), (a["zero_points"], torch.int32)]
    constants = [c.builder.constant(str(n.target).replace(".", "_"), c.parameter(n).to(dtype)) for n, dtype in stored]
    bounds = {"low": a["quant_min"], "high": a["quant_max"], "dtype": dtype_name(a["dtype"])}
    return c.add("quantize_channels", c.tensor(a["input"]), *constants, axis=a["axis"] % c.rank(a["input"]), **bounds)


@row(*ours("dequantize_per_tensor", "dequantize"))
def _dequantize(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("dequantize", c.tensor(a["input"]), scale=float(a["scale"]), zero_point=a["zero_point"])
