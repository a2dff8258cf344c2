"""Linear layers and convolutions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from zeropoint.nn import intrinsic as nni
from zeropoint.nn import qat as nnqat
from zeropoint.nn import quantized as nnq
from zeropoint.nn.intrinsic import qat as nniqat
from zeropoint.nn.intrinsic import quantized as nniq
from zeropoint.nn.intrinsic.quantized import dynamic as nniqd
from zeropoint.nn.qat import dynamic as nnqatd
from zeropoint.nn.quantized import dynamic as nnqd
from zeropoint.nn.quantized import reference as nnqr
from zeropoint.nn.quantized.storage import quantize_weight
from zeropoint.operators.float_forms import by_operator
from zeropoint.operators.node import arguments, each, parameter
from zeropoint.operators.plan import (
    Choice,
    State,
    Way,
    is_float_placeholder,
    is_static,
    relu_after,
    source,
    weight_dtype,
)
from zeropoint.operators.record import Fusion, ModuleForms, Operator
from zeropoint.operators.values import Value
from zeropoint.qfunctions.weight_only import weight_only_prepack

__all__ = ["RECORDS"]

ours = torch.ops.zeropoint
GROUP = 128  # inputs that share a scale in a weight of 4 bits
_PARAMETERS = ("weight", "bias")

# -------------------------------------------------------------------------------------------------------- annotation


def annotate(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    """A layer whose weight and bias are stored; by the dtypes of the qconfig, one of its forms."""
    a = arguments(node)
    if parameter(state.graph, a["weight"]) is None:
        return Choice(Way.FLOAT, "its weight is computed", operator)
    if a["bias"] is not None and parameter(state.graph, a["bias"]) is None:
        return Choice(Way.FLOAT, "its bias is computed", operator)
    if isinstance(a.get("padding"), str):
        return Choice(Way.FLOAT, f"padding={a['padding']!r} with more on one side", operator)
    weight, activation, kind = qconfig.weight(), qconfig.activation(), weight_dtype(qconfig)
    is_linear = operator.name == "linear"
    if kind == "float16":
        if not is_linear:
            return Choice(Way.FLOAT, "float16 weights are for linear layers", operator)
        return Choice(Way.HALF, "", operator, qconfig)
    if is_float_placeholder(activation) and kind in ("qint8", "quint8", "quint4x2"):
        if not operator.weight_only:
            return Choice(Way.FLOAT, "weights alone are quantized in linear layers only", operator)
        return Choice(Way.WEIGHT_4 if kind == "quint4x2" else Way.WEIGHT, "", operator, qconfig)
    if kind not in ("qint8", "quint8"):
        return Choice(Way.FLOAT, f"weights of {weight.dtype}", operator)
    relu = relu_after(node, operator)
    if getattr(activation, "is_dynamic", False):
        return Choice(Way.DYNAMIC, "", operator, qconfig, relu=relu if is_linear else None)
    if not is_static(activation):
        return Choice(Way.FLOAT, f"activations of {activation.dtype}", operator)
    if "per_channel" in str(activation.qscheme):
        return Choice(Way.FLOAT, "activations with a scale for each channel", operator)
    return Choice(Way.STATIC, "", operator, qconfig, (source(state, a["input"]).name,), relu)


# ---------------------------------------------------------------------------------------------------------- lowering


def lower(g: Any, node: fx.Node, choice: Choice) -> Value:
    a = arguments(node)
    if choice.way in (Way.WEIGHT, Way.WEIGHT_4):
        return _weight_only(g, a, choice)
    bias = g.stored_or_none(a["bias"])
    if choice.way is Way.HALF:
        half = g.parameter(a["weight"]).clamp(-65504, 65504).to(torch.float16)
        stored = g.constant(a["weight"].target, half)
        return Value(g.call(ours.linear_dynamic_fp16.default, g.floats(a["input"]), stored, bias))
    weight = g.weight(a["weight"], choice, choice.operator.weight_axis)
    geometry = _geometry(g, a)
    if choice.way is Way.DYNAMIC:
        activation = choice.qconfig.activation()
        options = [bool(getattr(activation, "reduce_range", False))]
        if choice.operator.name == "linear":
            options.append("per_channel" in str(activation.qscheme))  # a range for each token
        args = (g.floats(a["input"]), *weight, bias, *geometry, *options)
        return Value(g.call(g.op(choice, "_dynamic"), *args))
    if choice.to_float:
        return Value(g.call(ours.linear_to_float.default, *g.quantized(a["input"]), *weight, bias))
    out = g.output_scale(node, choice)
    args = (*g.quantized(a["input"]), *weight, bias, *geometry, *out.pair)
    return Value(integers=g.call(g.op(choice), *args), scale=out)


def _geometry(g: Any, a: dict[str, Any]) -> list[Any]:
    if "stride" not in a:
        return []
    dims = g.parameter(a["weight"]).dim() - 2
    names = ("stride", "padding", "output_padding", "dilation", "groups")
    numbers = [g.argument(a[k]) for k in names if k in a]
    return [each(v, dims) if isinstance(v, (list, tuple)) else v for v in numbers]


def _weight_only(g: Any, a: dict[str, Any], choice: Choice) -> Value:
    """A linear layer on floats with weights of 8 bits, as observed, or of 4 bits in groups of inputs."""
    weight, name = g.parameter(a["weight"]), str(a["weight"].target)
    if choice.way is Way.WEIGHT_4:
        packed = weight_only_prepack(weight, bits=4, group_size=GROUP, symmetric=False)
    else:
        packed = weight_only_prepack(quantize_weight(weight, g.weight_observer(a["weight"], choice.qconfig.weight)))
    scale, zero_point = packed.qparams()
    bias = g.stored_or_none(a["bias"])
    stored = (
        g.constant(name, packed.int_repr()),
        g.constant(f"{name}_scale", scale),
        None if zero_point is None else g.constant(f"{name}_zero_point", zero_point),
    )
    op = ours.weight_only_linear_4bit if packed.bits == 4 else ours.weight_only_linear
    return Value(g.call(op.default, g.floats(a["input"]), *stored, bias, packed.group_size))


def reference(g: Any, node: fx.Node, choice: Choice, made: fx.Node) -> None:
    """The weight quantized and dequantized."""
    axis = choice.operator.weight_axis
    integers, scales, zero_points = g.weight(node.args[1], choice, axis)
    made.args = (made.args[0], g.dequantized_weight(integers, scales, zero_points, axis, made), *made.args[2:])


# ----------------------------------------------------------------------------------------------------------- records


def _linear() -> Operator:
    return Operator(
        "linear",
        ("linear.default",),
        modules=(nn.Linear,),
        functions=(F.linear,),
        weights=("weight",),
        relu=True,
        dynamic=True,
        weight_only=True,
        heavy=True,
        annotate=annotate,
        lower=lower,
        reference=reference,
        float_form=by_operator("float_linear", "input", "weight", "bias", stored=_PARAMETERS),
        forms=(
            ModuleForms(nn.Linear, nnq.Linear, nnqd.Linear, nnqr.Linear, nnqat.Linear),
            ModuleForms(NonDynamicallyQuantizableLinear, nnq.Linear, nnqd.Linear, nnqr.Linear, nnqat.Linear),
            ModuleForms(nni.LinearReLU, nniq.LinearReLU, nniqd.LinearReLU, training=nniqat.LinearReLU),
            ModuleForms(nni.LinearBn1d, training=nniqat.LinearBn1d),
            ModuleForms(nni.LinearLeakyReLU, nniq.LinearLeakyReLU),
            ModuleForms(nni.LinearTanh, nniq.LinearTanh),
            ModuleForms(nnqat.Linear, nnq.Linear, reference=nnqr.Linear),
            ModuleForms(nnqatd.Linear, dynamic=nnqd.Linear),
            ModuleForms(nniqat.LinearReLU, nniq.LinearReLU),
            ModuleForms(nniqat.LinearBn1d, nnq.Linear),
        ),
        fusions=(
            Fusion((nn.Linear, nn.BatchNorm1d), None, nni.LinearBn1d, folds=True),
            Fusion((nn.Linear, nn.ReLU), nni.LinearReLU, nni.LinearReLU),
            Fusion((nn.Linear, nn.LeakyReLU), nni.LinearLeakyReLU),
            Fusion((nn.Linear, nn.Tanh), nni.LinearTanh),
        ),
    )


def _convolution(dims: int) -> Operator:
    """A convolution over 1, 2 or 3 axes; its classes differ in their last digits only."""

    def of(package: Any, kind: str) -> Any:
        return getattr(package, f"{kind}{dims}d")

    conv, norm = of(nn, "Conv"), of(nn, "BatchNorm")
    quantized, training = of(nnq, "Conv"), of(nnqat, "Conv")
    relu, quantized_relu = of(nni, "ConvReLU"), of(nniq, "ConvReLU")
    added = (ModuleForms(nni.ConvAdd2d, nniq.ConvAdd2d), ModuleForms(nni.ConvAddReLU2d, nniq.ConvAddReLU2d))
    return Operator(
        f"conv{dims}d",
        (f"conv{dims}d.default", f"conv{dims}d.padding"),
        modules=(conv,),
        functions=(getattr(F, f"conv{dims}d"),),
        weights=("weight",),
        relu=True,
        dynamic=True,
        heavy=True,
        annotate=annotate,
        lower=lower,
        reference=reference,
        float_form=by_operator(
            "float_conv", "input", *_PARAMETERS, "stride", "padding", "dilation", "groups", stored=_PARAMETERS,
            when=lambda a: not isinstance(a["padding"], str),
        ),
        forms=(
            ModuleForms(conv, quantized, of(nnqd, "Conv"), of(nnqr, "Conv"), training),
            ModuleForms(relu, quantized_relu, training=of(nniqat, "ConvReLU")),
            ModuleForms(of(nni, "ConvBn"), training=of(nniqat, "ConvBn")),
            ModuleForms(of(nni, "ConvBnReLU"), training=of(nniqat, "ConvBnReLU")),
            ModuleForms(training, quantized, reference=of(nnqr, "Conv")),
            ModuleForms(of(nniqat, "ConvReLU"), quantized_relu),
            ModuleForms(of(nniqat, "ConvBn"), quantized),
            ModuleForms(of(nniqat, "ConvBnReLU"), quantized_relu),
            *(added if dims == 2 else ()),
        ),
        fusions=(
            Fusion((conv, norm), None, of(nni, "ConvBn"), folds=True),
            Fusion((conv, norm, nn.ReLU), relu, of(nni, "ConvBnReLU"), folds=True),
            Fusion((conv, nn.ReLU), relu, relu),
        ),
    )  # fmt: skip


def _transposed(dims: int) -> Operator:
    name, kind = f"conv_transpose{dims}d", f"ConvTranspose{dims}d"
    conv, norm = getattr(nn, kind), getattr(nn, f"BatchNorm{dims}d")
    return Operator(
        name,
        (f"{name}.default" if dims == 1 else f"{name}.input",),
        modules=(conv,),
        functions=(getattr(F, name),),
        weights=("weight",),
        dynamic=True,
        heavy=True,
        annotate=annotate,
        lower=lower,
        reference=reference,
        float_form=by_operator(
            "float_conv_transpose", "input", *_PARAMETERS, "stride", "padding", "output_padding", "groups", "dilation",
            stored=_PARAMETERS,
        ),
        forms=(ModuleForms(conv, getattr(nnq, kind), getattr(nnqd, kind), getattr(nnqr, kind)),),
        fusions=(Fusion((conv, norm), folds=True),),
    )  # fmt: skip


RECORDS = (*(make(dims) for dims in (1, 2, 3) for make in (_convolution, _transposed)), _linear())
