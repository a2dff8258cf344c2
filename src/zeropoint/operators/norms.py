"""Norms, with parameters that stay float, and softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from zeropoint import qfunctions
from zeropoint.nn import intrinsic as nni
from zeropoint.nn import quantized as nnq
from zeropoint.nn.intrinsic import quantized as nniq
from zeropoint.operators.activations import lower_function
from zeropoint.operators.float_forms import FloatCall, by_operator, in_parts
from zeropoint.operators.plan import function_of_one_tensor
from zeropoint.operators.record import Fusion, ModuleForms, Operator, Output

__all__ = ["RECORDS"]

aten, ours = torch.ops.aten, torch.ops.zeropoint
_PARAMETERS = ("weight", "bias")


def _rms_norm(g: Any, a: dict[str, Any]) -> FloatCall:
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


def _norm(name: str, *arguments: str, **more: Any) -> Operator:
    return Operator(
        name, (f"{name}.default",), functions=(getattr(F, name),), arguments=arguments, alone=True,
        annotate=function_of_one_tensor, lower=lower_function, **more,
    )  # fmt: skip


RECORDS = (
    _norm(
        "batch_norm", "weight", "bias", "running_mean", "running_var", "eps",
        modules=(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
        relu=True,
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
        float_form=by_operator("float_layer_norm", "input", "normalized_shape", "weight", "bias", "eps"),
    ),
    _norm(
        "group_norm", "num_groups", "weight", "bias", "eps",
        modules=(nn.GroupNorm,),
        forms=(ModuleForms(nn.GroupNorm, nnq.GroupNorm),),
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
        annotate=function_of_one_tensor, lower=lower_function,
        float_form=by_operator("float_softmax", "self", "dim"),
    ),
    Operator(
        "log_softmax", ("log_softmax.int", "_log_softmax.default"),
        float_form=by_operator("float_log_softmax", "self", "dim"),
    ),
    Operator("safe_softmax", ("_safe_softmax.default",), float_form=by_operator("float_safe_softmax", "self", "dim")),
    Operator(
        "vector_norm", ("linalg_vector_norm.default",),
        float_form=by_operator(
            "float_norm", "self", "dim", "keepdim", when=lambda a: a["ord"] == 2 and len(a["dim"] or ()) == 1
        ),
    ),
)  # fmt: skip
