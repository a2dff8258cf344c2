"""Functions of one value: activations, bounds, dropout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from zeropoint import qfunctions
from zeropoint.nn import quantized as nnq
from zeropoint.nn.quantized.storage import quantize_weight
from zeropoint.numerics.dtypes import qint8, quint8
from zeropoint.observers import MinMaxObserver
from zeropoint.operators.choice import Choice, Precision, State, function_of_one_tensor
from zeropoint.operators.elementwise import emit_bounds, emit_function, emit_threshold
from zeropoint.operators.float_forms import FloatCall, by_operator, in_parts
from zeropoint.operators.lookup import emit_table
from zeropoint.operators.lowered_value import Scale, Value
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments, aten_name, overload_key, parameter
from zeropoint.operators.record import Effect, ModuleForms, Observed, Operator, Output, Traced
from zeropoint.operators.steps import Emit, StepBuilder, dtype_name, emit_same, steps

aten, ours = torch.ops.aten, torch.ops.zeropoint

# ---------------------------------------------------------------------------------------------------------- lowering


def lower_function(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    """The integers and their parameters, the numbers of the function, and the parameters of the result."""
    a, out = arguments(node), g.output_scale(node, choice)
    numbers = (_number(g, name, a[name]) for name in choice.operator.arguments)
    return Value(integers=g.call(g.op(choice), *g.quantized(node.args[0]), *numbers, *out.pair), scale=out)


def _number(g: Lowering, name: str, value: Any) -> Any:
    if isinstance(value, fx.Node):
        return g.constant(value.target, g.parameter(value))
    if name == "approximate":
        return float(value == "tanh")
    return float(value) if name in ("alpha", "scale", "input_scale", "negative_slope") else value


def _annotate_prelu(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    choice = function_of_one_tensor(state, node, operator, qconfig)
    if choice.precision is Precision.STATIC and parameter(state.graph, node.args[1]) is None:
        return Choice(Precision.FLOAT, "its slopes are not constants", operator)
    return choice


def _slopes(g: Lowering, node: fx.Node) -> Any:
    """The slopes of a PReLU, with the dtype of its input and a range of their own."""
    weight, kind = g.parameter(node.args[1]), g.scale_at(node.args[0]).dtype
    new = partial(MinMaxObserver, dtype=quint8 if kind == torch.uint8 else qint8)
    return quantize_weight(weight, g.weight_observer(node.args[1], new))


def _lower_prelu(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    out, weight = g.output_scale(node, choice), _slopes(g, node)
    stored = g.constant(node.args[1].target, weight.int_repr().clone())
    args = (*g.quantized(node.args[0]), stored, weight.q_scale(), weight.q_zero_point(), *out.pair)
    return Value(integers=g.call(g.op(choice), *args), scale=out)


def _reference_prelu(g: Lowering, node: fx.Node, choice: Choice, made: fx.Node) -> None:
    with g.graph.inserting_before(made):
        slopes = g.constant(node.args[1].target, _slopes(g, node).dequantize())
    made.args = (made.args[0], slopes)


# ------------------------------------------------------------------------------------- bounds, which integers keep too


def _relu(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return g.call(aten.clamp_min.default, q, s.zero_point)


def _clamp(low: str, high: str) -> Callable[..., fx.Node]:
    def clamp(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        bounds = [None if a.get(k) is None else float(a[k]) for k in (low, high)]
        return g.call(ours.clamp.default, q, *s.pair, *bounds)

    return clamp


def _relu6(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return g.call(ours.relu6.default, q, *s.pair)


def _threshold(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return g.call(ours.threshold.default, q, *s.pair, float(a["threshold"]), float(a["value"]))


def _same(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return q


# ------------------------------------------------------------------------------------------------- on float32, in parts


def _hard_sigmoid(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``clamp(x + 3, 0, 6) / 6``"""
    shifted = g.call(aten.add.Tensor, g.floats(a["self"]), 3.0)
    return aten.div.Tensor, (g.call(aten.clamp.default, shifted, 0.0, 6.0), 6.0)


def _hard_swish(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``x * hardsigmoid(x)``"""
    op, args = _hard_sigmoid(g, a)
    return aten.mul.Tensor, (g.floats(a["self"]), g.call(op, *args))


def _clamped(low: Any, high: Any) -> Callable[[Any, dict[str, Any]], FloatCall]:
    def clamp(g: Lowering, a: dict[str, Any]) -> FloatCall:
        bounds = (a[b] if isinstance(b, str) else b for b in (low, high))
        return aten.clamp.default, (g.floats(a["self"]), *bounds)

    return clamp


def _with_negative(g: Lowering, x: fx.Node, negative: fx.Node) -> FloatCall:
    return aten.add.Tensor, (g.call(aten.clamp_min.default, x, 0.0), negative)


def _leaky_relu(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``max(x, 0) + slope * min(x, 0)``"""
    x = g.floats(a["self"])
    return _with_negative(g, x, g.call(aten.mul.Tensor, g.call(aten.clamp_max.default, x, 0.0), a["negative_slope"]))


def _prelu(g: Lowering, a: dict[str, Any]) -> FloatCall | None:
    """`_leaky_relu` with a slope for each channel."""
    slopes, value = g.parameter(a["weight"]) if a["weight"].op == "get_attr" else None, a["self"].meta.get("val")
    if slopes is None or (slopes.numel() > 1 and not isinstance(value, Tensor)):
        return None
    shape = (-1, *[1] * (value.dim() - 2)) if slopes.numel() > 1 else (1,)
    x, stored = g.floats(a["self"]), g.constant(str(a["weight"].target), slopes.reshape(shape))
    return _with_negative(g, x, g.call(aten.mul.Tensor, g.call(aten.clamp_max.default, x, 0.0), stored))


def _exponential(g: Lowering, x: fx.Node, factor: float, alpha: float) -> fx.Node:
    """``alpha * (exp(v) - 1)`` of ``v = factor * min(x, 0)``, as ``2 alpha t / (1 - t)`` with ``t = tanh(v / 2)``."""
    half = g.call(aten.mul.Tensor, g.call(aten.clamp_max.default, x, 0.0), factor / 2)
    t = g.call(ours.float_tanh.default, half)
    rest = g.call(aten.add.Tensor, g.call(aten.mul.Tensor, t, -1.0), 1.0)
    return g.call(aten.div.Tensor, g.call(aten.mul.Tensor, t, 2.0 * alpha), rest)


def _elu(g: Lowering, a: dict[str, Any]) -> FloatCall:
    x = g.floats(a["self"])
    op, args = _with_negative(g, x, _exponential(g, x, float(a["input_scale"]), float(a["alpha"])))
    return (op, args) if a["scale"] == 1 else (aten.mul.Tensor, (g.call(op, *args), float(a["scale"])))


def _celu(g: Lowering, a: dict[str, Any]) -> FloatCall:
    x = g.floats(a["self"])
    return _with_negative(g, x, _exponential(g, x, 1.0 / float(a["alpha"]), float(a["alpha"])))


def _mish(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``x * tanh(log(1 + exp(x)))``, as ``x * sigmoid(x) * (1 + t) / (1 + t^2)`` with ``t = sigmoid(-x)``."""
    x = g.floats(a["self"])
    t = g.call(ours.float_sigmoid.default, g.call(aten.mul.Tensor, x, -1.0))
    over = g.call(aten.mul.Tensor, g.call(ours.float_sigmoid.default, x), g.call(aten.add.Tensor, t, 1.0))
    under = g.call(aten.add.Tensor, g.call(aten.mul.Tensor, t, t), 1.0)
    return aten.mul.Tensor, (x, g.call(aten.div.Tensor, over, under))


def _is_soft_sign(node: fx.Node) -> fx.Node | None:
    """Of a quotient: `x`, if it is ``x / (|x| + 1)``."""
    x, below = node.args[:2]
    if aten_name(below) not in ("add.Tensor", "add.Scalar") or below.args[1:2] != (1,):
        return None
    a = arguments(below)
    is_one = a["alpha"] == 1 and aten_name(a["self"]) == "abs.default"
    return x if is_one and a["self"].args[0] is x else None


def _soft_sign(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``x / (|x| + 1)``, with ``|x| = max(x, 0) + max(-x, 0)``"""
    x = g.floats(a["input"])
    negative = g.call(aten.clamp_min.default, g.call(aten.mul.Tensor, x, -1.0), 0.0)
    size = g.call(aten.add.Tensor, g.call(aten.clamp_min.default, x, 0.0), negative)
    return aten.div.Tensor, (x, g.call(aten.add.Tensor, size, 1.0))


def _soft_shrink(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``x - clamp(x, -lambda, lambda)``"""
    x = g.floats(a["self"])
    return aten.sub.Tensor, (x, g.call(aten.clamp.default, x, -float(a["lambd"]), float(a["lambd"])))


def _hard_shrink(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``x`` where ``|x| > lambda``, else 0."""
    x = g.floats(a["self"])
    is_small = g.call(aten.le.Scalar, g.call(aten.abs.default, x), float(a["lambd"]))
    return aten.masked_fill.Scalar, (x, is_small, 0.0)


# ---------------------------------------------------------------------------------------------------- steps of programs


def _emit_bounds(c: StepBuilder, node: fx.Node) -> str:
    """Bounds of bytes are a table, those of others a piece of an expression."""
    is_table = c.dtype(node.args[0]) in (torch.uint8, torch.int8) and c.dtype(node) == c.dtype(node.args[0])
    return emit_table(c, node) if is_table else emit_bounds(c, node)


def _emit_float_gelu(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return emit_function("gelu_tanh" if a["approximate"] == "tanh" else "gelu")(c, node)


def _emit_prelu(c: StepBuilder, node: fx.Node) -> str:
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


# ----------------------------------------------------------------------------------------------------------- records


def _function(
    name: str, module: type[nn.Module], function: Any, float_form: Any, *, emit: Emit = emit_table,
    emit_float: Emit | None = None, **more: Any,
) -> Operator:  # fmt: skip
    """A function with a range of its own, which ``torch.ops.zeropoint.<name>`` computes on integers.

    `emit_float` emits the step of ``torch.ops.zeropoint.float_<name>``, if there is such an operator.
    """
    on_floats = steps(emit_float, f"float_{name}") if emit_float is not None else ()
    return Operator(
        name, (f"{name}.default",), (module,), (function,), annotate=more.pop("annotate", function_of_one_tensor),
        lower=more.pop("lower", lower_function), float_form=float_form, steps=(*steps(emit, name), *on_floats), **more,
    )  # fmt: skip


def table_function(
    name: str,
    function: Callable[..., Any],
    *,
    ops: tuple[Any, ...] = (),
    modules: tuple[type[nn.Module], ...],
    output: Output = Output.OWN,
    **more: Any,
) -> Operator:
    """A function without an operator on integers: they look its 256 results up."""

    def lower(g: Lowering, node: fx.Node, choice: Choice) -> Value:
        integers, scale = g.integers(node.args[0])
        out = g.output_scale(node, choice)
        every = torch.arange(256, dtype=torch.uint8).view(scale.dtype)
        with torch.no_grad():
            results = function(ours.dequantize_per_tensor(every, *scale.all), *node.args[1:], **node.kwargs)
        table = g.constant(f"{name}_table", ours.quantize_per_tensor(results, *out.all))
        return Value(integers=g.call(ours.lookup.default, integers, table), scale=out)

    return Operator(
        name,
        tuple(overload_key(op) for op in ops),
        modules,
        (function,),
        forms=more.pop("forms", tuple(ModuleForms(module, nnq.Function) for module in modules)),
        output=output,
        annotate=function_of_one_tensor,
        lower=lower,
        **more,
    )


def _emit_dropout(c: StepBuilder, node: fx.Node) -> str | None:
    if arguments(node)["train"] is not False:
        raise c.unsupported("it draws random numbers (train=True)")
    return emit_same(c, node)


def _bound(
    name: str, integers: Any, *modules: type[nn.Module], emit: Emit | None = _emit_bounds, also: tuple[str, ...] = (),
    **more: Any,
) -> Operator:  # fmt: skip
    """A function whose results are values of its input, or numbers where it is cut off.

    `also`: the calls that it is on integers.
    """
    return Operator(
        name, (f"{name}.default",), modules, output=Output.INPUT, integers=integers,
        effect=more.pop("effect", Effect.BOUNDS),
        steps=(*(steps(emit, f"aten.{name}.default") if emit else ()), *steps(emit_table, *also)), **more,
    )  # fmt: skip


RECORDS = (
    _function(
        "hardswish", nn.Hardswish, F.hardswish, in_parts(_hard_swish), alone=True,
        forms=(ModuleForms(nn.Hardswish, nnq.Hardswish),), eager_function=(F.hardswish, qfunctions.hardswish),
        traced=Traced(Observed.OWN),
    ),
    _function("silu", nn.SiLU, F.silu, by_operator("float_silu", "self"), emit_float=emit_function("silu")),
    _function("mish", nn.Mish, F.mish, in_parts(_mish)),
    _function(
        "gelu", nn.GELU, F.gelu, by_operator("float_gelu", "self", "approximate"), arguments=("approximate",),
        emit_float=_emit_float_gelu,
    ),
    _function(
        "elu", nn.ELU, F.elu, in_parts(_elu), arguments=("alpha", "scale", "input_scale"), alone=True,
        forms=(ModuleForms(nn.ELU, nnq.ELU),), eager_function=(F.elu, qfunctions.elu),
        traced=Traced(Observed.OWN),
    ),
    _function("celu", nn.CELU, F.celu, in_parts(_celu), arguments=("alpha",), alone=True),
    _function(
        "leaky_relu", nn.LeakyReLU, F.leaky_relu, in_parts(_leaky_relu), arguments=("negative_slope",),
        forms=(ModuleForms(nn.LeakyReLU, nnq.LeakyReLU),), eager_function=(F.leaky_relu, qfunctions.leaky_relu),
        traced=Traced(Observed.OWN),
    ),
    _function(
        "prelu", nn.PReLU, F.prelu, in_parts(_prelu), annotate=_annotate_prelu, lower=_lower_prelu,
        reference=_reference_prelu, emit=_emit_prelu, slopes=("weight",), forms=(ModuleForms(nn.PReLU, nnq.PReLU),),
        traced=Traced(Observed.OWN, without=(F.prelu,)),
    ),
    _function(
        "sigmoid", nn.Sigmoid, torch.sigmoid, by_operator("float_sigmoid", "self"), output=Output.UNIT,
        forms=(ModuleForms(nn.Sigmoid),), emit_float=emit_function("sigmoid"),
        traced=Traced(Observed.FIXED, ("sigmoid", "sigmoid_")),
    ),
    _function(
        "hardsigmoid", nn.Hardsigmoid, F.hardsigmoid, in_parts(_hard_sigmoid), output=Output.UNIT,
        forms=(ModuleForms(nn.Hardsigmoid),), traced=Traced(Observed.FIXED, ("hardsigmoid", "hardsigmoid_")),
    ),
    _function(
        "tanh", nn.Tanh, torch.tanh, by_operator("float_tanh", "self"), output=Output.SYMMETRIC,
        forms=(ModuleForms(nn.Tanh),), emit_float=emit_function("tanh"),
        traced=Traced(Observed.FIXED, ("tanh", "tanh_")),
    ),
    table_function(
        "softsign", F.softsign, ops=(ours.float_softsign.default,), modules=(nn.Softsign,),
        composed=("div.Tensor", _is_soft_sign), float_form=in_parts(_soft_sign),
    ),
    table_function(
        "softshrink", F.softshrink, ops=(aten.softshrink.default,), modules=(nn.Softshrink,),
        float_form=in_parts(_soft_shrink),
    ),
    table_function(
        "hardshrink", F.hardshrink, ops=(aten.hardshrink.default,), modules=(nn.Hardshrink,),
        float_form=in_parts(_hard_shrink),
    ),
    _bound(  # zero is a step
        "relu", _relu, nn.ReLU, effect=Effect.COMPUTES, functions=(F.relu,),
        traced=Traced(Observed.SHARED, ("relu", "relu_")),
    ),
    _bound(
        "relu6", _relu6, nn.ReLU6, forms=(ModuleForms(nn.ReLU6, nnq.ReLU6),), float_form=in_parts(_clamped(0.0, 6.0)),
        emit=None, also=("relu6",), functions=(F.relu6,), traced=Traced(Observed.SHARED),
    ),
    _bound(
        "hardtanh", _clamp("min_val", "max_val"), nn.Hardtanh, float_form=in_parts(_clamped("min_val", "max_val")),
        functions=(F.hardtanh, F.hardtanh_), traced=Traced(Observed.SHARED),
    ),
    _bound("threshold", _threshold, nn.Threshold, emit=emit_threshold, also=("threshold",)),
    _bound(
        "clamp", _clamp("min", "max"), also=("clamp",), functions=(torch.clamp,),
        traced=Traced(Observed.SHARED, ("clamp",)),
    ),
    Operator(
        "clip",
        steps=(
            *steps(_emit_bounds, "aten.clip.default"),
            *steps(emit_bounds, *(f"aten.{name}.Tensor" for name in ("clip", "clamp", "clamp_min", "clamp_max"))),
        ),
    ),
    _bound("clamp_min", _clamp("min", "none")),
    _bound("clamp_max", _clamp("none", "max")),
    _bound(
        "dropout", _same, nn.Dropout, effect=Effect.COMPUTES, emit=_emit_dropout,
        forms=(ModuleForms(nn.Dropout, nnq.Dropout),), functions=(F.dropout,),
        eager_function=(F.dropout, qfunctions.dropout), traced=Traced(Observed.OWN),
    ),
)  # fmt: skip
