"""Norms, with parameters that stay float, and softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from zeropoint import qfunctions
from zeropoint.nn import intrinsic as nni, quantized as nnq
from zeropoint.nn.intrinsic import quantized as nniq
from zeropoint.operators.activations import lower_function
from zeropoint.operators.choice import function_of_one_tensor
from zeropoint.operators.float_forms import FloatCall, by_operator, in_parts
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments
from zeropoint.operators.record import Fusion, ModuleForms, Observed, Operator, Output, Traced
from zeropoint.operators.steps import GraphBuilder, ProgramStep, StepBuilder, called, require_stored, restores, steps
from zeropoint.ops.float_functions import batch_norm_line

aten, ours = torch.ops.aten, torch.ops.zeropoint
_PARAMETERS = ("weight", "bias")


def _rms_norm(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``x / sqrt(mean(x^2) + eps) * weight``, as ``x * sqrt(n) / |x, sqrt(n * eps)|``, a norm of one value more."""
    axes, n = len(a["normalized_shape"]), math.prod(a["normalized_shape"])
    eps = torch.finfo(torch.float32).eps if a["eps"] is None else float(a["eps"])
    x = g.floats(a["input"])
    rows = x if axes == 1 else g.call(aten.flatten.using_ints, x, -axes, -1)
    more = g.call(aten.constant_pad_nd.default, rows, [0, 1], math.sqrt(n * eps))
    norm = g.call(ours.float_norm.default, more, [-1], True)
    last: FloatCall = aten.div.Tensor, (g.call(aten.mul.Tensor, rows, math.sqrt(n)), norm)
    if axes > 1:
        last = aten.unflatten.int, (g.call(last[0], *last[1]), -1, a["normalized_shape"])
    if a["weight"] is not None:
        last = aten.mul.Tensor, (g.call(last[0], *last[1]), g.floats(a["weight"]))
    return last


def _norm(name: str, *taken: str, **more: Any) -> Operator:
    return Operator(
        name, (f"{name}.default",), functions=(getattr(F, name),), arguments=taken, alone=True,
        annotate=function_of_one_tensor, lower=lower_function, **more,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- steps of programs


def _scales(a: dict[str, Any]) -> dict[str, Any]:
    scales = {k: float(a[k]) for k in ("input_scale", "scale")}
    return scales | {k: int(a[k]) for k in ("input_zero_point", "zero_point")}


def _flat_numbers(c: StepBuilder, node: Any) -> str | None:
    """Numbers of a norm, flat."""
    return None if node is None else c.builder.constant(str(node.target), c.parameter(node).float().reshape(-1))


def _emit_batch_norm(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    numbers = (_flat_numbers(c, a[k]) for k in ("weight", "bias", "mean", "var"))
    relu = "_relu" in str(node.target)
    return c.add("batch_norm", c.tensor(a["input"]), *numbers, **_scales(a), eps=float(a["eps"]), relu=relu)


def _emit_group_norm(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    numbers = (_flat_numbers(c, a[k]) for k in ("weight", "bias"))
    groups = a.get("num_groups", 0)
    return c.add("group_norm", c.tensor(a["input"]), *numbers, **_scales(a), eps=float(a["eps"]), groups=groups)


def _emit_layer_norm(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    numbers = (_flat_numbers(c, a[k]) for k in ("weight", "bias"))
    axes = len(a["normalized_shape"])
    return c.add("layer_norm", c.tensor(a["input"]), *numbers, **_scales(a), eps=float(a["eps"]), axes=axes)


def _emit_softmax(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("softmax", c.tensor(a["input"]), **_scales(a), axis=a["dim"])


def _with_line(c: StepBuilder, x: str | None, factors: Any, terms: Any, rank: int) -> str | None:
    """``x * factors + terms`` for each channel; either may be missing."""
    for op, values in (("float_multiply", factors), ("float_add", terms)):
        if values is not None:
            numbers = values.detach().float().reshape(-1, *[1] * (rank - 2))
            x = c.add(op, x, c.builder.constant(f"{c.node}_numbers", numbers))
    return x


def _emit_float_batch_norm(c: StepBuilder, node: fx.Node) -> str | None:
    a = arguments(node)
    names = ("weight", "bias", "running_mean", "running_var")
    require_stored(c, *(a[k] for k in names))
    weight, bias, mean, var = (None if a[k] is None else c.parameter(a[k]) for k in names)
    assert mean is not None
    assert var is not None
    alpha, beta = batch_norm_line(weight, bias, mean, var, a["eps"])
    return _with_line(c, c.tensor(a["input"]), alpha, beta, c.rank(a["input"]))


def _emit_float_group_norm(c: StepBuilder, node: fx.Node) -> str | None:
    a = arguments(node)
    require_stored(c, a["weight"], a["bias"])
    x, rank = a["input"], c.rank(a["input"])
    groups = a.get("num_groups", c.axis_size(x, 1))
    rows = c.add("reshape", c.tensor(x), shape=[c.number("multiply", c.axis_size(x, 0), groups), -1])
    normed = c.add("float_layer_norm", rows, None, None, axes=1, eps=a["eps"])
    y = c.add("reshape", normed, shape=[c.axis_size(x, axis) for axis in range(rank)])
    weight, bias = (None if a[k] is None else c.parameter(a[k]) for k in ("weight", "bias"))
    return _with_line(c, y, weight, bias, rank)


def _emit_float_layer_norm(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    require_stored(c, a["weight"], a["bias"])
    numbers = (_flat_numbers(c, a[k]) for k in ("weight", "bias"))
    return c.add("float_layer_norm", c.tensor(a["input"]), *numbers, axes=len(a["normalized_shape"]), eps=a["eps"])


def _emit_float_softmax(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("float_softmax", c.tensor(a["input"]), axis=a["dim"], safe="safe" in str(node.target))


def _emit_float_log_softmax(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("float_log_softmax", c.tensor(a["input"]), axis=a["dim"])


def _restore_norm(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    """A norm of bytes."""
    a, x = step.attributes, r.tensor(step.inputs[0])
    numbers = [r.tensor(name) for name in step.inputs[1:]]
    given: list[Any] = []
    name = step.op
    if name == "group_norm":
        name, given = ("group_norm", [a["groups"]]) if a["groups"] else ("instance_norm", [])
    elif name == "layer_norm":
        given = [list(r.shape(x)[-a["axes"] :])]
        numbers = _shaped(r, step, given[0])
    op = getattr(ours, f"{name}_relu" if a.get("relu") else name).default
    scale = a["input_scale"], a["input_zero_point"]
    return r.call(op, x, *scale, *given, *numbers, a["eps"], a["scale"], a["zero_point"])


def _shaped(r: GraphBuilder, step: ProgramStep, shape: list[int]) -> list[fx.Node | None]:
    """Weight and bias, which files have flat."""
    values = ((name, r.constant(name)) for name in step.inputs[1:3])
    return [None if t is None else r.stored(str(name), t.reshape(shape)) for name, t in values]


def _restore_float_layer_norm(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, x = step.attributes, r.tensor(step.inputs[0])
    shape = list(r.shape(x)[-a["axes"] :])
    numbers = _shaped(r, step, shape)
    is_free = all(t is None for t in numbers)
    sizes = [r.call(aten.sym_size.int, x, axis - a["axes"]) for axis in range(a["axes"])] if is_free else shape
    return r.call(ours.float_layer_norm.default, x, sizes, *numbers, a["eps"])


def _restore_softmax(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a = step.attributes
    numbers = a["input_scale"], a["input_zero_point"], a["axis"], a["scale"], a["zero_point"]
    return r.call(ours.softmax.default, r.tensor(step.inputs[0]), *numbers)


def _restore_float_softmax(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    op = ours.float_safe_softmax if step.attributes["safe"] else ours.float_softmax
    return r.call(op.default, r.tensor(step.inputs[0]), step.attributes["axis"])


RECORDS = (
    _norm(
        "batch_norm", "weight", "bias", "running_mean", "running_var", "eps",
        modules=(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
        relu=True,
        traced=Traced(Observed.BATCH_NORM, without=(nn.BatchNorm1d, F.batch_norm)),
        steps=(
            *steps(_emit_batch_norm, *(f"batch_norm{d}{r}" for d in ("", "1d", "2d", "3d") for r in ("", "_relu"))),
            *steps(_emit_float_batch_norm, "float_batch_norm"),
        ),
        restores=restores(_restore_norm, "batch_norm", "group_norm", "layer_norm"),
        float_form=by_operator(
            "float_batch_norm", "input", "weight", "bias", "running_mean", "running_var", "eps",
            stored=("weight", "bias", "running_mean", "running_var"), when=lambda a: not a["training"],
        ),
        forms=(
            ModuleForms(nn.BatchNorm2d, nnq.BatchNorm2d),
            ModuleForms(nn.BatchNorm3d, nnq.BatchNorm3d),
            ModuleForms(nni.BNReLU2d, nniq.BNReLU2d),
            ModuleForms(nni.BNReLU3d, nniq.BNReLU3d),
        ),
        fusions=(
            Fusion((nn.BatchNorm2d, nn.ReLU), nni.BNReLU2d, nni.BNReLU2d),
            Fusion((nn.BatchNorm3d, nn.ReLU), nni.BNReLU3d, nni.BNReLU3d),
        ),
    ),
    _norm(
        "layer_norm", "normalized_shape", "weight", "bias", "eps",
        modules=(nn.LayerNorm,),
        forms=(ModuleForms(nn.LayerNorm, nnq.LayerNorm),),
        eager_function=(F.layer_norm, qfunctions.layer_norm),
        traced=Traced(Observed.NORM),
        steps=(*steps(_emit_layer_norm, "layer_norm"), *steps(_emit_float_layer_norm, "float_layer_norm")),
        restores=restores(_restore_float_layer_norm, "float_layer_norm"),
        float_form=by_operator("float_layer_norm", "input", "normalized_shape", "weight", "bias", "eps"),
    ),
    _norm(
        "group_norm", "num_groups", "weight", "bias", "eps",
        modules=(nn.GroupNorm,),
        forms=(ModuleForms(nn.GroupNorm, nnq.GroupNorm),),
        traced=Traced(Observed.OWN, without=(nn.GroupNorm,)),
        steps=(*steps(_emit_group_norm, "group_norm"), *steps(_emit_float_group_norm, "float_group_norm")),
        float_form=by_operator("float_group_norm", "input", "num_groups", "weight", "bias", "eps", stored=_PARAMETERS),
    ),
    _norm(
        "instance_norm", "weight", "bias", "eps",
        modules=(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
        forms=(
            ModuleForms(nn.InstanceNorm1d, nnq.InstanceNorm1d),
            ModuleForms(nn.InstanceNorm2d, nnq.InstanceNorm2d),
            ModuleForms(nn.InstanceNorm3d, nnq.InstanceNorm3d),
        ),
        eager_function=(F.instance_norm, qfunctions.instance_norm),
        traced=Traced(Observed.OWN),
        steps=(*steps(_emit_group_norm, "instance_norm"), *steps(_emit_float_group_norm, "float_instance_norm")),
        float_form=by_operator(
            "float_instance_norm", "input", "weight", "bias", "eps",
            stored=(*_PARAMETERS, "running_mean", "running_var"),
            when=lambda a: bool(a["use_input_stats"]),
        ),
    ),
    Operator(
        "rms_norm", ("rms_norm.default",), modules=(nn.RMSNorm,), functions=(F.rms_norm,), output=Output.FLOAT,
        float_form=in_parts(_rms_norm),
    ),
    Operator(
        "softmax", ("softmax.int", "_softmax.default"), modules=(nn.Softmax,), functions=(F.softmax,),
        forms=(ModuleForms(nn.Softmax, nnq.Softmax),), output=Output.UNIT, arguments=("dim",),
        annotate=function_of_one_tensor, lower=lower_function, traced=Traced(Observed.FIXED, without=(F.softmax,)),
        float_form=by_operator("float_softmax", "self", "dim"),
        steps=(*steps(_emit_softmax, "softmax"), *steps(_emit_float_softmax, "float_softmax")),
        restores=(*restores(_restore_softmax, "softmax"), *restores(_restore_float_softmax, "float_softmax")),
    ),
    Operator(
        "log_softmax", ("log_softmax.int", "_log_softmax.default"),
        float_form=by_operator("float_log_softmax", "self", "dim"),
        steps=steps(_emit_float_log_softmax, "float_log_softmax"),
        restores=restores(called(ours.float_log_softmax.default, "axis"), "float_log_softmax"),
    ),
    Operator(
        "safe_softmax", ("_safe_softmax.default",), float_form=by_operator("float_safe_softmax", "self", "dim"),
        steps=steps(_emit_float_softmax, "float_safe_softmax"),
    ),
)  # fmt: skip
