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


@row(*ours("stored_quantize"))
def _quantize_at_once(c: Compiler, node: fx.Node) -> str:
    raise c.unsupported(
        "it rounds x / scale + zero_point, where the step of programs rounds x / scale and then adds the zero point,"
        " which differs at ties; with fallback=True PyTorch computes it"
    )


@row(*ours("quantize_per_channel"))
def _quantize_channels(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if not all(c.is_parameter(a[k]) for k in ("scales", "zero_points")):
        raise c.unsupported("its scales or zero points are computed")
    stored = [(a["scales"], torch.float32), (a["zero_points"], torch.int32)]
    constants = [c.builder.constant(str(n.target).replace(".", "_"), c.parameter(n).to(dtype)) for n, dtype in stored]
    bounds = {"low": a["quant_min"], "high": a["quant_max"], "dtype": dtype_name(a["dtype"])}
    return c.add("quantize_channels", c.tensor(a["input"]), *constants, axis=a["axis"] % c.rank(a["input"]), **bounds)


@row(*ours("dequantize_per_tensor", "dequantize", "stored_dequantize"))
def _dequantize(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(node.args[0]) not in (torch.uint8, torch.int8):
        raise c.unsupported("programs dequantize 8-bit integers; with fallback=True PyTorch computes it")
    return c.add("dequantize", c.tensor(node.args[0]), scale=float(a["scale"]), zero_point=a["zero_point"])
