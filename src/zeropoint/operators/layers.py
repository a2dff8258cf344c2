"""Linear layers and convolutions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from zeropoint.nn import intrinsic as nni, qat as nnqat, quantized as nnq
from zeropoint.nn.intrinsic import qat as nniqat, quantized as nniq
from zeropoint.nn.intrinsic.quantized import dynamic as nniqd
from zeropoint.nn.qat import dynamic as nnqatd
from zeropoint.nn.quantized import dynamic as nnqd, reference as nnqr
from zeropoint.nn.quantized.storage import quantize_weight
from zeropoint.observers.grouped import GROUP
from zeropoint.operators.choice import (
    Choice,
    Precision,
    State,
    is_float_placeholder,
    is_static,
    relu_after,
    source,
    weight_dtype,
)
from zeropoint.operators.computed_weights import computed_conv, computed_linear
from zeropoint.operators.float_forms import FloatCall, FloatForm, by_operator, first_of, in_parts
from zeropoint.operators.lowered_value import Value
from zeropoint.operators.lowering import Lowering, ReferenceLowering
from zeropoint.operators.node import arguments, each, parameter
from zeropoint.operators.record import Fusion, ModuleForms, Operator
from zeropoint.operators.steps import (
    GraphBuilder,
    ProgramStep,
    StepBuilder,
    called,
    dtype_name,
    dtype_of,
    require_stored,
    restores,
    steps,
)
from zeropoint.ops import checks, rounding
from zeropoint.ops.float_layers import stored_weight
from zeropoint.ops.geometry import Geometry, three
from zeropoint.ops.weight_only import SmallWeight, half_weight, small_weight
from zeropoint.qfunctions.weight_only import weight_only_prepack

aten, ours = torch.ops.aten, torch.ops.zeropoint
_PARAMETERS = ("weight", "bias")

# -------------------------------------------------------------------------------------------------------- annotation


def annotate(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    """A layer whose weight and bias are stored; by the dtypes of the qconfig, one of its forms."""
    a = arguments(node)
    if parameter(state.graph, a["weight"]) is None:
        return Choice(Precision.FLOAT, "its weight is not a constant", operator)
    if a["bias"] is not None and parameter(state.graph, a["bias"]) is None:
        return Choice(Precision.FLOAT, "its bias is not a constant", operator)
    if isinstance(a.get("padding"), str):
        return Choice(Precision.FLOAT, f"asymmetric padding={a['padding']!r}", operator)
    weight, activation, kind = qconfig.weight(), qconfig.activation(), weight_dtype(qconfig)
    is_linear = operator.name == "linear"
    if kind == "float16":
        if not is_linear:
            return Choice(Precision.FLOAT, "float16 weights are supported in linear layers only", operator)
        return Choice(Precision.HALF, "", operator, qconfig)
    if is_float_placeholder(activation) and kind in ("qint8", "quint8", "quint4x2"):
        if not operator.weight_only:
            return Choice(Precision.FLOAT, "weight-only quantization is supported in linear layers only", operator)
        return Choice(Precision.WEIGHT_4 if kind == "quint4x2" else Precision.WEIGHT, "", operator, qconfig)
    if kind not in ("qint8", "quint8"):
        return Choice(Precision.FLOAT, f"unsupported weight dtype {weight.dtype}", operator)
    relu = relu_after(node, operator)
    if getattr(activation, "is_dynamic", False):
        return Choice(Precision.DYNAMIC, "", operator, qconfig, relu=relu if is_linear else None)
    if not is_static(activation):
        return Choice(Precision.FLOAT, f"unsupported activation dtype {activation.dtype}", operator)
    if "per_channel" in str(activation.qscheme):
        return Choice(Precision.FLOAT, "per-channel activations are not supported", operator)
    return Choice(Precision.STATIC, "", operator, qconfig, (source(state, a["input"]).name,), relu)


# ---------------------------------------------------------------------------------------------------------- lowering


def lower(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    a = arguments(node)
    if choice.precision in (Precision.WEIGHT, Precision.WEIGHT_4):
        return _weight_only(g, a, choice)
    bias = g.stored_or_none(a["bias"])
    if choice.precision is Precision.HALF:
        half = g.parameter(a["weight"]).clamp(-65504, 65504).to(torch.float16)
        stored = g.constant(a["weight"].target, half)
        return Value(g.call(ours.linear_dynamic_fp16.default, g.floats(a["input"]), stored, bias))
    weight = g.weight(a["weight"], choice, choice.operator.weight_axis)
    geometry, is_one = _geometry(g, a), _is_one_image(g, node)
    if choice.precision is Precision.DYNAMIC:
        activation = choice.qconfig.activation()
        options = [bool(getattr(activation, "reduce_range", False))]
        if choice.operator.name == "linear":
            options.append("per_channel" in str(activation.qscheme))  # a range for each token
        x = _as_batch(g, g.floats(a["input"]), is_one)
        made = g.call(g.op(choice, "_dynamic"), x, *weight, bias, *geometry, *options)
        return Value(_of_batch(g, made, is_one))
    if choice.to_float:
        return Value(g.call(ours.linear_to_float.default, *g.quantized(a["input"]), *weight, bias))
    out = g.output_scale(node, choice)
    x, *scale = g.quantized(a["input"])
    made = g.call(g.op(choice), _as_batch(g, x, is_one), *scale, *weight, bias, *geometry, *out.pair)
    return Value(integers=_of_batch(g, made, is_one), scale=out)


def _is_one_image(g: Lowering, node: fx.Node) -> bool:
    """Whether a convolution takes one image, without an axis for the batch: one axis less than its weight has."""
    a = arguments(node)
    value = g.unobserved(a["input"]).meta.get("val")
    return "stride" in a and isinstance(value, Tensor) and value.dim() == g.parameter(a["weight"]).dim() - 1


def _as_batch(g: Lowering, x: fx.Node, is_one: bool) -> fx.Node:
    return g.call(aten.unsqueeze.default, x, 0) if is_one else x


def _of_batch(g: Lowering, y: fx.Node, is_one: bool) -> fx.Node:
    return g.call(aten.squeeze.dim, y, 0) if is_one else y


def _of_images(form: FloatForm) -> FloatForm:
    """A float form of a convolution, of one image too."""

    def made(g: Lowering, node: fx.Node) -> FloatCall | None:
        found = form(g, node)
        if found is None or not _is_one_image(g, node):
            return found
        target, (x, *more) = found
        return aten.squeeze.dim, (g.call(target, _as_batch(g, x, True), *more), 0)

    return made


def _geometry(g: Lowering, a: dict[str, Any]) -> list[Any]:
    if "stride" not in a:
        return []
    dims = g.parameter(a["weight"]).dim() - 2
    names = ("stride", "padding", "output_padding", "dilation", "groups")
    numbers = [g.argument(a[k]) for k in names if k in a]
    return [each(v, dims) if isinstance(v, (list, tuple)) else v for v in numbers]


def _weight_only(g: Lowering, a: dict[str, Any], choice: Choice) -> Value:
    """A linear layer on floats with weights of 8 bits, as observed, or of 4 bits in groups of inputs."""
    weight, name = g.parameter(a["weight"]), str(a["weight"].target)
    if choice.precision is Precision.WEIGHT_4:
        group_size = getattr(choice.qconfig.weight(), "group_size", GROUP)
        packed = weight_only_prepack(weight, bits=4, group_size=group_size, symmetric=False)
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


def reference(g: ReferenceLowering, node: fx.Node, choice: Choice, made: fx.Node) -> None:
    """The weight quantized and dequantized."""
    axis = choice.operator.weight_axis
    integers, scales, zero_points = g.weight(node.args[1], choice, axis)
    made.args = (made.args[0], g.dequantized_weight(integers, scales, zero_points, axis, made), *made.args[2:])


# ---------------------------------------------------------------------------------------------------- steps of programs


def _result(c: StepBuilder, a: dict[str, Any], relu: bool, dtype: torch.dtype) -> dict[str, Any]:
    """The numbers of a layer's result."""
    if dtype == torch.float32:
        return {"dtype": "float32", "relu": relu}
    low, high = checks.bounds(dtype)
    zero_point = int(a["zero_point"])
    low = max(low, min(zero_point, high)) if relu else low
    return {"dtype": dtype_name(dtype), "scale": float(a["scale"]), "zero_point": zero_point, "low": low, "high": high}


def _stored(c: StepBuilder, a: dict[str, Any], weight: Tensor, repeat: int = 1) -> list[str | None]:
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


def _emit_layer(c: StepBuilder, node: fx.Node, op: str, weight: Tensor, repeat: int = 1, **numbers: Any) -> str:
    """A step of a layer, on integers or, if it is dynamic, on floats."""
    a = arguments(node)
    x, stored, relu = c.tensor(a["input"]), _stored(c, a, weight, repeat), "_relu" in str(node.target)
    numbers |= {"weight_dtype": dtype_name(weight.dtype)}
    if a.get("rounding", rounding.OURS) != rounding.OURS:
        numbers |= {"rounding": rounding.code(op, a["rounding"])}
    if "_dynamic" in str(node.target):
        numbers |= {k: bool(a[k]) for k in ("reduce_range", "per_token") if k in a}
        numbers |= {"relu": relu} if op == "linear" else {}
        return c.add(f"{op}_dynamic", x, *stored, **numbers)
    numbers |= {"input_scale": float(a["input_scale"]), "input_zero_point": int(a["input_zero_point"])}
    return c.add(op, x, *stored, None, **numbers, **_result(c, a, relu, c.dtype(node)))


def _emit_linear(c: StepBuilder, node: fx.Node) -> str:
    return _emit_layer(c, node, "linear", c.parameter(arguments(node)["weight"]))


def _spatial(c: StepBuilder, values: Any, missing: int, dims: int) -> list[int]:
    return list(three([int(v) for v in _numbers(c, values)], missing, dims))


def _numbers(c: StepBuilder, values: Any) -> Any:
    """Strides, paddings, dilations: their steps take numbers only."""
    if any(isinstance(v, fx.Node) for v in values):
        raise c.unsupported("its stride, padding or dilation depends on input sizes")
    return values


def _groups(c: StepBuilder, groups: Any) -> int:
    """A number; if it is that of the channels of the input, the one of the example: no other fits the weight."""
    return int(c.found[groups] if isinstance(groups, fx.Node) else groups)


def _emit_conv(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    weight, groups = c.parameter(a["weight"]), _groups(c, a["groups"])
    dims = weight.dim() - 2
    transposed = "output_padding" in a
    if transposed:  # (in, out / groups, ...) -> (out, in / groups, ...)
        inputs, each, *kernel = weight.shape
        weight = weight.reshape(groups, inputs // groups, each, *kernel).transpose(1, 2)
        weight = weight.reshape(groups * each, inputs // groups, *kernel)
    stored = weight.reshape(*weight.shape[:2], *[1] * (3 - dims), *weight.shape[2:]).movedim(1, -1)
    return _emit_layer(
        c, node, "conv", stored, groups if transposed else 1,
        spatial=dims, groups=groups, transposed=transposed,
        stride=_spatial(c, a["stride"], 1, dims), padding=_spatial(c, a["padding"], 0, dims),
        dilation=_spatial(c, a["dilation"], 1, dims),
        output_padding=_spatial(c, a["output_padding"] if transposed else [0], 0, dims),
    )  # fmt: skip


def _emit_weight_only(c: StepBuilder, a: dict[str, Any], small: SmallWeight, relu: bool = False) -> str:
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


def _emit_weight_only_linear(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(a["input"]) != torch.float32:
        raise c.unsupported(f"only float32 is supported, got {c.dtype(a['input'])}")
    weight, scale, zero_point, bias = (
        None if a[k] is None else c.parameter(a[k]) for k in ("weight", "scale", "zero_point", "bias")
    )
    inputs, bits = c.found[a["input"]].shape[-1], 4 if "4bit" in str(node.target) else 8
    return _emit_weight_only(
        c, a, small_weight(str(node.target), weight, inputs, bits, scale, zero_point, bias, a["group_size"])
    )


def _emit_linear_fp16(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    bias = None if a["bias"] is None else c.parameter(a["bias"])
    return _emit_weight_only(
        c, a, half_weight(str(node.target), c.parameter(a["weight"]), bias), "_relu" in str(node.target)
    )


def _emit_float_linear(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    require_stored(c, a["weight"], a["bias"])
    return c.add("float_linear", *(c.tensor(a[k]) for k in ("input", "weight", "bias")))


def _emit_float_conv(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    require_stored(c, a["weight"], a["bias"])
    weight = c.parameter(a["weight"])
    dims = weight.dim() - 2
    stride, padding, dilation = (_numbers(c, a[k]) for k in ("stride", "padding", "dilation"))
    geometry = Geometry("conv", dims, stride, padding, dilation, _groups(c, a["groups"]), a.get("output_padding"))
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


# ------------------------------------------------------------------------------------------------- steps as nodes again


def _restored(r: GraphBuilder, step: ProgramStep, weight: Tensor, repeat: int = 1) -> list[Any]:
    """Weight, scales, zero points and bias of a layer as graphs hold them."""
    name = str(step.inputs[1])
    scale, zero_point = (r.constant(part) for part in step.inputs[2:4])
    assert scale is not None
    assert zero_point is not None
    if repeat > 1 and scale.numel() == weight.shape[1] * repeat:
        scale, zero_point = (t[: t.numel() // repeat] for t in (scale, zero_point))
    numbers = r.stored(f"{name}_scale", scale), r.stored(f"{name}_zero_point", zero_point.to(torch.int64))
    return [r.stored(name, weight), *numbers, r.tensor(step.inputs[4])]


def _restored_layer(r: GraphBuilder, step: ProgramStep, name: str, *parts: Any) -> fx.Node:
    """The call of a layer on bytes, its ReLU, and bounds that are none."""
    a = step.attributes
    given = r.tensor(step.inputs[0]), a["input_scale"], a["input_zero_point"], *parts
    if a["dtype"] == "float32":
        y = r.call(ours.linear_to_float.default, *given)
        return r.call(aten.relu.default, y) if a["relu"] else y
    zero_point, bounds = a["zero_point"], (a["low"], a["high"])
    whole = checks.bounds(dtype_of(a["dtype"]))
    has_relu = "transpose" not in name and bounds == (max(whole[0], min(zero_point, whole[1])), whole[1]) != whole
    op = getattr(ours, f"{name}_relu" if has_relu else name).default
    y = r.call(op, *given, a["scale"], zero_point, *_restored_rounding(a))
    return y if has_relu or bounds == whole else r.call(aten.clamp.default, y, *bounds)


def _restored_rounding(a: dict[str, Any]) -> list[str]:
    """The last argument of a layer that rounds as another engine."""
    return [name for name, code in rounding.CODES.items() if code == a.get("rounding", 0) != 0]


def _restore_linear(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    weight = r.constant(step.inputs[1])
    assert weight is not None
    return _restored_layer(r, step, "linear", *_restored(r, step, weight))


def _restore_linear_dynamic(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, weight = step.attributes, r.constant(step.inputs[1])
    assert weight is not None
    op = ours.linear_relu_dynamic if a["relu"] else ours.linear_dynamic
    options = a["reduce_range"], a.get("per_token", False), *_restored_rounding(a)
    return r.call(op.default, r.tensor(step.inputs[0]), *_restored(r, step, weight), *options)


def _restored_geometry(a: dict[str, Any]) -> list[Any]:
    """Strides and all that as calls of this kind take them, without the axes that are not there."""
    stride, padding, dilation, more = (
        a[k][-a["spatial"] :] for k in ("stride", "padding", "dilation", "output_padding")
    )
    return [stride, padding, *([more] if a["transposed"] else []), dilation, a["groups"]]


def _restored_kernel(weight: Tensor | None, a: dict[str, Any]) -> Tensor:
    """``(out, depth, height, width, in / groups)`` as PyTorch has it."""
    assert weight is not None
    moved = weight.movedim(-1, 1)
    kernel, groups = moved.shape[5 - a["spatial"] :], a["groups"]
    moved = moved.reshape(*moved.shape[:2], *kernel)
    if not a["transposed"]:
        return moved.contiguous()
    outputs, inputs = moved.shape[:2]
    turned = moved.reshape(groups, outputs // groups, inputs, *kernel).transpose(1, 2)
    return turned.reshape(groups * inputs, outputs // groups, *kernel).contiguous()


def _restore_conv(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a = step.attributes
    parts = _restored(r, step, _restored_kernel(r.constant(step.inputs[1]), a), a["groups"] if a["transposed"] else 1)
    name = f"conv{'_transpose' if a['transposed'] else ''}{a['spatial']}d"
    if step.op == "conv":
        return _restored_layer(r, step, name, *parts, *_restored_geometry(a))
    op = getattr(ours, f"{name}_dynamic").default
    return r.call(op, r.tensor(step.inputs[0]), *parts, *_restored_geometry(a), a["reduce_range"])


def _restore_float_conv(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a = step.attributes
    weight = r.stored(str(step.inputs[1]), _restored_kernel(r.constant(step.inputs[1]), a))
    given = r.tensor(step.inputs[0]), weight, r.tensor(step.inputs[2])
    if not a["transposed"]:
        return r.call(ours.float_conv.default, *given, *_restored_geometry(a))
    *some, dilation, groups = _restored_geometry(a)
    return r.call(ours.float_conv_transpose.default, *given, *some, groups, dilation)


def _restore_weight_only(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, x = step.attributes, r.tensor(step.inputs[0])
    weight, scale, zero_point, shift, _ = (r.constant(name) for name in step.inputs[1:])
    stored, bias = r.tensor(step.inputs[1]), r.tensor(step.inputs[5])
    if a["storage"] == "float16":
        op = ours.linear_relu_dynamic_fp16 if a["relu"] else ours.linear_dynamic_fp16
        return r.call(op.default, x, stored, bias)
    assert weight is not None
    assert scale is not None
    assert zero_point is not None

    def spread(part: str, values: Tensor) -> fx.Node:
        shape = (weight.shape[0], -1) if values.numel() > 1 else (1,)
        return r.stored(f"{step.inputs[1]}_{part}", values.reshape(shape))

    moved = spread("zero_point", zero_point.round().to(torch.int64) if shift is None else shift)
    op = ours.weight_only_linear_4bit if a["storage"] == "uint4" else ours.weight_only_linear
    return r.call(op.default, x, stored, spread("scale", scale), moved, bias, a["group_size"])


# ----------------------------------------------------------------------------------------------------------- records


_LAYER: dict[str, Any] = {
    "weights": ("weight",), "dynamic": True, "heavy": True,
    "annotate": annotate, "lower": lower, "reference": reference,
}  # fmt: skip


def _linear() -> Operator:
    return Operator(
        "linear",
        ("linear.default",),
        modules=(nn.Linear,),
        functions=(F.linear,),
        relu=True,
        weight_only=True,
        **_LAYER,
        float_form=first_of(
            by_operator("float_linear", "input", "weight", "bias", stored=_PARAMETERS), in_parts(computed_linear)
        ),
        steps=(
            *steps(_emit_linear, "linear", "linear_relu", "linear_to_float", "linear_dynamic", "linear_relu_dynamic"),
            *steps(_emit_weight_only_linear, "weight_only_linear", "weight_only_linear_4bit"),
            *steps(_emit_linear_fp16, "linear_dynamic_fp16", "linear_relu_dynamic_fp16"),
            *steps(_emit_float_linear, "float_linear"),
        ),
        restores=(
            *restores(_restore_linear, "linear"),
            *restores(_restore_linear_dynamic, "linear_dynamic"),
            *restores(_restore_weight_only, "weight_only_linear"),
            *restores(called(ours.float_linear.default), "float_linear"),
        ),
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
        relu=True,
        **_LAYER,
        float_form=first_of(
            _of_images(by_operator(
                "float_conv", "input", *_PARAMETERS, "stride", "padding", "dilation", "groups", stored=_PARAMETERS,
                when=lambda a: not isinstance(a["padding"], str),
            )),
            in_parts(computed_conv),
        ),
        steps=(
            *steps(_emit_conv, *(f"conv{dims}d{kind}" for kind in ("", "_relu", "_dynamic"))),
            *steps(_emit_float_conv, "float_conv"),
        ),
        restores=(*restores(_restore_conv, "conv", "conv_dynamic"), *restores(_restore_float_conv, "float_conv")),
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
        **_LAYER,
        float_form=_of_images(by_operator(
            "float_conv_transpose", "input", *_PARAMETERS, "stride", "padding", "output_padding", "groups", "dilation",
            stored=_PARAMETERS,
        )),
        steps=(*steps(_emit_conv, name, f"{name}_dynamic"), *steps(_emit_float_conv, "float_conv_transpose")),
        forms=(ModuleForms(conv, getattr(nnq, kind), getattr(nnqd, kind), getattr(nnqr, kind)),),
        fusions=(Fusion((conv, norm), folds=True),),
    )  # fmt: skip


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``y[o] = x1^T W[o] x2 + b[o]``, as a linear layer of the first and a product with the second."""
    outputs, first, second = weight.shape
    rows = F.linear(input1, weight.transpose(1, 2).reshape(outputs * second, first))
    y = torch.matmul(rows.unflatten(-1, [outputs, second]), input2.unsqueeze(-1)).squeeze(-1)
    return y if bias is None else y + bias


def _bilinear() -> Operator:
    forms = (ModuleForms(nn.Bilinear, nnq.Dequantized),)
    return Operator(
        "bilinear", ("bilinear.default",), modules=(nn.Bilinear,), functions=(F.bilinear,), forms=forms, parts=bilinear
    )


RECORDS = (*(make(dims) for dims in (1, 2, 3) for make in (_convolution, _transposed)), _linear(), _bilinear())
