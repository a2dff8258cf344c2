"""Quantize and dequantize: the operators between float32 and integers."""

from __future__ import annotations

import torch
from torch import fx

from zeropoint.nn import quantized as nnq
from zeropoint.nn.stubs import DeQuantStub, QuantStub
from zeropoint.numerics.affine import BYTE_LIMITS
from zeropoint.operators.node import arguments
from zeropoint.operators.record import ModuleForms, Operator, Output
from zeropoint.operators.steps import GraphBuilder, ProgramStep, StepBuilder, dtype_name, dtype_of, restores, steps

ours = torch.ops.zeropoint


def _emit_quantize(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    bounds = {"low": a["quant_min"], "high": a["quant_max"]}
    parameters = {"scale": float(a["scale"]), "zero_point": a["zero_point"], "dtype": dtype_name(a["dtype"])}
    return c.add("quantize", c.tensor(a["input"]), **parameters, **bounds)


def _emit_quantize_fused(c: StepBuilder, node: fx.Node) -> str:
    """As quantized tensors are made: the zero point is added before rounding."""
    a = arguments(node)
    limits = BYTE_LIMITS.get(a["storage"])
    if limits is None or limits != (a["qmin"], a["qmax"]):
        raise c.unsupported("programs quantize to 8 bits only; with fallback=True PyTorch runs it")
    parameters = {"scale": float(a["scale"]), "zero_point": a["zero_point"], "dtype": dtype_name(a["storage"])}
    return c.add("quantize", c.tensor(a["x"]), **parameters, low=a["qmin"], high=a["qmax"], rounding="fused")


def _emit_quantize_channels(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    if not all(c.is_parameter(a[k]) for k in ("scales", "zero_points")):
        raise c.unsupported("its scales or zero points are not constants")
    stored = [(a["scales"], torch.float32), (a["zero_points"], torch.int32)]
    constants = [c.builder.constant(str(n.target).replace(".", "_"), c.parameter(n).to(dtype)) for n, dtype in stored]
    bounds = {"low": a["quant_min"], "high": a["quant_max"], "dtype": dtype_name(a["dtype"])}
    return c.add("quantize_channels", c.tensor(a["input"]), *constants, axis=a["axis"] % c.rank(a["input"]), **bounds)


def _emit_dequantize(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(node.args[0]) not in (torch.uint8, torch.int8):
        raise c.unsupported("programs dequantize 8-bit integers only; with fallback=True PyTorch runs it")
    return c.add("dequantize", c.tensor(node.args[0]), scale=float(a["scale"]), zero_point=a["zero_point"])


def _restore_quantize(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, dtype = step.attributes, dtype_of(step.attributes["dtype"])
    op = ours.stored_quantize if a.get("rounding") == "fused" else ours.quantize_per_tensor
    return r.call(op.default, r.tensor(step.inputs[0]), a["scale"], a["zero_point"], a["low"], a["high"], dtype)


def _restore_quantize_channels(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, zero_points = step.attributes, r.constant(step.inputs[2])
    assert zero_points is not None
    stored = r.tensor(step.inputs[1]), r.stored(str(step.inputs[2]), zero_points.to(torch.int64))
    options = a["axis"], a["low"], a["high"], dtype_of(a["dtype"])
    return r.call(ours.quantize_per_channel.default, r.tensor(step.inputs[0]), *stored, *options)


def _restore_dequantize(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, x = step.attributes, r.tensor(step.inputs[0])
    dtype = r.dtype(x)
    return r.call(ours.dequantize_per_tensor.default, x, a["scale"], a["zero_point"], *BYTE_LIMITS[dtype], dtype)


RECORDS = (
    Operator(
        "quantize", forms=(ModuleForms(QuantStub, nnq.Quantize, reference=nnq.Quantize),),
        steps=(
            *steps(_emit_quantize, "quantize_per_tensor"),
            *steps(_emit_quantize_fused, "stored_quantize"),
            *steps(_emit_quantize_channels, "quantize_per_channel"),
        ),
        restores=(
            *restores(_restore_quantize, "quantize"), *restores(_restore_quantize_channels, "quantize_channels"),
        ),
    ),
    Operator(
        "dequantize", forms=(ModuleForms(DeQuantStub, nnq.DeQuantize, reference=nnq.DeQuantize),), output=Output.FLOAT,
        steps=steps(_emit_dequantize, "dequantize_per_tensor", "dequantize", "stored_dequantize"),
        restores=restores(_restore_dequantize, "dequantize"),
    ),
)  # fmt: skip
