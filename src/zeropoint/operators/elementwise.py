"""Operators that work element by element on floats, integers and bools: arithmetic, comparisons, functions.

Each becomes a piece of an expression (`expressions`); the compiler joins pieces that follow each other into one step.
What is not exact in floats is replaced by our own operator in graphs, whose bytes programs have too.
"""

from __future__ import annotations

import math
import operator as python
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from zeropoint.operators.expressions import Expression, Term
from zeropoint.operators.float_forms import FloatCall, FloatForm, are_floats, in_parts
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments
from zeropoint.operators.record import Observed, Operator, Traced
from zeropoint.operators.steps import Emit, GraphBuilder, ProgramStep, StepBuilder, dtype_of, restores, steps
from zeropoint.ops.float_maps import BINARY, UNARY

aten, ours = torch.ops.aten, torch.ops.zeropoint
_F32 = torch.float32
_PARTS_OF_FREXP = ("mantissa", "exponent")
# These have records that say what becomes of integers.
_OF_INTEGERS_TOO = ("pow", "atan2", "floor_divide", "remainder", "fmod", "maximum", "minimum")
# Of bools: a sum is one of the two, a product both.
_OF_BOOLS = {"add": "bitwise_or", "mul": "bitwise_and"}


def overloads(*names: str) -> list[str]:
    """Every overload of operators of ATen that writes nothing, as quantized graphs call it."""
    return [
        f"aten.{name}.{overload}"
        for name in names
        for overload in getattr(aten, name).overloads()
        if not getattr(getattr(aten, name), overload)._schema.is_mutable
    ]


def _aten_names(*names: str) -> tuple[str, ...]:
    return tuple(name.removeprefix("aten.") for name in overloads(*names))


def _operands(node: fx.Node, count: int) -> list[Any]:
    return list(arguments(node).values())[:count]


def _value(c: StepBuilder, given: Any) -> Any:
    return c.found[given] if isinstance(given, fx.Node) else given


def _common(c: StepBuilder, *given: Any) -> torch.dtype:
    """The dtype in which PyTorch compares two values."""
    first, second = (_value(c, v) for v in given)
    return torch.result_type(first, second)


# ---------------------------------------------------------------------------------------------------- steps: arithmetic


def emit_arithmetic(operation: str, swapped: bool = False) -> Emit:
    """Two values in the dtype of the result, integers as PyTorch wraps them."""

    def emit(c: StepBuilder, node: fx.Node) -> str:
        left, right = _operands(node, 2)[::-1] if swapped else _operands(node, 2)
        dtype, alpha = c.dtype(node), arguments(node).get("alpha", 1)
        if alpha != 1 and dtype == _F32:
            raise c.unsupported("alpha is not 1")
        e = Expression(c)
        a, b = e.term(left, dtype), e.term(right, dtype)
        names = _OF_BOOLS if dtype == torch.bool else {}
        if alpha != 1:
            b = e.call(names.get("mul", "mul"), b, e.term(alpha, dtype))
        return e.step(e.call(names.get(operation, operation), a, b))

    return emit


def _emit_divide(c: StepBuilder, node: fx.Node) -> str:
    """A quotient, rounded toward zero or down if the call says so."""
    mode, dtype = arguments(node).get("rounding_mode"), c.dtype(node)
    name = str(node.target)
    mode = "floor" if "floor_divide" in name else mode
    e = Expression(c)
    a, b = (e.term(v, dtype) for v in _operands(node, 2))
    if mode is None or dtype == _F32:
        if mode == "floor":
            raise c.unsupported("floor division of floats has its own operator in quantized graphs")
        quotient = e.call("div", a, b)
        return e.step(quotient if mode is None else e.call("trunc", quotient))
    return e.step(e.call("floor_divide" if mode == "floor" else "trunc_divide", a, b))


def _emit_power(c: StepBuilder, node: fx.Node) -> str:
    if c.dtype(node) == _F32:
        raise c.unsupported("a power of floats has its own operator in quantized graphs")
    return emit_arithmetic("pow")(c, node)


def _emit_compare(operation: str) -> Emit:
    def emit(c: StepBuilder, node: fx.Node) -> str:
        e, dtype = Expression(c), _common(c, *_operands(node, 2))
        return e.step(e.call(operation, *(e.term(v, dtype) for v in _operands(node, 2)), gives=torch.bool))

    return emit


def _emit_logical(operation: str) -> Emit:
    def emit(c: StepBuilder, node: fx.Node) -> str:
        e = Expression(c)
        return e.step(e.call(operation, *(e.term(v, torch.bool) for v in arguments(node).values())))

    return emit


def _emit_where(c: StepBuilder, node: fx.Node) -> str:
    chosen, left, right = _operands(node, 3)
    e, dtype = Expression(c), c.dtype(node)
    return e.step(e.call("where", e.term(chosen, torch.bool), e.term(left, dtype), e.term(right, dtype)))


def _emit_masked_fill(c: StepBuilder, node: fx.Node) -> str:
    x, mask, value = _operands(node, 3)
    e, dtype = Expression(c), c.dtype(node)
    return e.step(e.call("where", e.term(mask, torch.bool), e.term(value, dtype), e.term(x, dtype)))


def emit_bounds(c: StepBuilder, node: fx.Node) -> str:
    """Values between two bounds, of which one may be missing."""
    a = arguments(node)
    low = 0 if "relu" in str(node.target) else a.get("min", a.get("min_val"))
    high = a.get("max", a.get("max_val"))
    e, dtype = Expression(c), c.dtype(node)
    x = e.term(node.args[0], dtype)
    x = x if low is None else e.call("maximum", x, e.term(low, dtype))
    return e.step(x if high is None else e.call("minimum", x, e.term(high, dtype)))


def emit_threshold(c: StepBuilder, node: fx.Node) -> str:
    a, e, dtype = arguments(node), Expression(c), c.dtype(node)
    x = e.term(node.args[0], dtype)
    below = e.call("le", x, e.term(a["threshold"], dtype), gives=torch.bool)
    return e.step(e.call("where", below, e.term(a["value"], dtype), x))


# ----------------------------------------------------------------------------------------------------- steps: functions


def emit_function(operation: str) -> Emit:
    """A function of each value in the dtype of the result."""

    def emit(c: StepBuilder, node: fx.Node) -> str:
        e, dtype = Expression(c), c.dtype(node)
        return e.step(e.call(operation, e.term(node.args[0], dtype)))

    return emit


def _emit_sign(c: StepBuilder, node: fx.Node) -> str:
    return str(c.tensor(node.args[0])) if c.dtype(node) == torch.bool else emit_function("sign")(c, node)


def _emit_whole(operation: str) -> Emit:
    """Rounding, which leaves integers as they are."""

    def emit(c: StepBuilder, node: fx.Node) -> str:
        if len(node.args) > 1 or node.kwargs.get("decimals"):
            raise c.unsupported("only decimals=0 is supported")
        if c.dtype(node) != _F32:
            return str(c.tensor(node.args[0]))
        return emit_function(operation)(c, node)

    return emit


def _emit_square(c: StepBuilder, node: fx.Node) -> str:
    e, dtype = Expression(c), c.dtype(node)
    x = e.term(node.args[0], dtype)
    return e.step(e.call("mul", x, x))


def _emit_test(test: Callable[[Expression, Term], Term]) -> Emit:
    """What is asked of floats; integers are numbers always."""

    def emit(c: StepBuilder, node: fx.Node) -> str:
        e = Expression(c)
        return e.step(test(e, e.term(node.args[0], _F32)))

    return emit


def _is(operation: str) -> Callable[[Expression, Term], Term]:
    return lambda e, x: e.call(operation, x, gives=torch.bool)


def _is_finite(e: Expression, x: Term) -> Term:
    return e.call("bitwise_not", e.call("bitwise_or", _is("isnan")(e, x), _is("isinf")(e, x)))


def _emit_nan_to_num(c: StepBuilder, node: fx.Node) -> str:
    if c.dtype(node) != _F32:  # integers are numbers always
        return str(c.tensor(node.args[0]))
    a, e = arguments(node), Expression(c)
    largest = torch.finfo(_F32).max
    x = e.term(node.args[0], _F32)
    replaced = e.call("where", _is("isnan")(e, x), e.number(a["nan"] or 0.0, _F32), x)
    for infinite, given, ours_ in ((math.inf, a["posinf"], largest), (-math.inf, a["neginf"], -largest)):
        found = e.call("eq", x, e.number(infinite, _F32), gives=torch.bool)
        replaced = e.call("where", found, e.number(ours_ if given is None else given, _F32), replaced)
    return e.step(replaced)


def emit_convert(c: StepBuilder, node: fx.Node) -> str:
    """Another dtype; what stays on the CPU stays where it is."""
    e, dtype = Expression(c), c.dtype(node)
    return e.step(e.term(node.args[0], dtype))


def _emit_ours(c: StepBuilder, node: fx.Node) -> str:
    """One of our operators that names its function."""
    *tensors, function = node.args
    e = Expression(c)
    return e.step(e.call(function, *(e.term(t, _F32) for t in tensors)))


# ------------------------------------------------------------------------------------------------- steps as nodes again

_FUNCTIONS = {
    "gelu": (ours.float_gelu.default,), "gelu_tanh": (ours.float_gelu.default, "tanh"),
    "tanh": (ours.float_tanh.default,), "sigmoid": (ours.float_sigmoid.default,), "silu": (ours.float_silu.default,),
}  # fmt: skip
_PLAIN = {
    **{name: getattr(aten, name).default for name in (
        "neg", "abs", "sign", "bitwise_not", "floor", "ceil", "round", "trunc", "reciprocal", "isnan", "isinf",
        "minimum", "maximum", "gcd", "lcm",
    )},
    **{name: getattr(aten, name).Tensor for name in (
        "add", "sub", "mul", "div", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne", "lt",
        "le", "gt", "ge",
    )},
    "shift_left": aten.bitwise_left_shift.Tensor, "shift_right": aten.bitwise_right_shift.Tensor,
    "where": aten.where.self,
}  # fmt: skip
_BOUNDED = {"maximum": aten.clamp_min.default, "minimum": aten.clamp_max.default}
_QUOTIENTS = {"floor_divide": "floor", "trunc_divide": "trunc"}


def _operation(r: GraphBuilder, operation: str, dtype: torch.dtype, values: list[Any]) -> fx.Node:
    """One instruction of an expression as a call."""
    if operation in UNARY:
        return r.call(ours.float_unary.default, *values, operation)
    if dtype == _F32 and operation in BINARY:
        return r.call(ours.float_binary.default, *values, operation)
    if operation in _FUNCTIONS:
        target, *more = _FUNCTIONS[operation]
        return r.call(target, *values, *more)
    if operation in _QUOTIENTS:
        return r.call(aten.div.Tensor_mode, *values, rounding_mode=_QUOTIENTS[operation])
    if operation == "pow":
        return r.call(aten.pow.Tensor_Tensor, *values)
    if operation not in _PLAIN:
        raise r.unsupported(f"{operation!r} of an expression has no graph operator")
    return r.call(_PLAIN[operation], *values)


def _restore_map(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    """An expression, instruction by instruction. Numbers are tensors without axes, or bounds."""
    made: list[Any] = [r.tensor(name) for name in step.inputs]
    numbers: dict[int, Any] = {}
    sizes = step.attributes.get("sizes", [])

    def tensor(index: int) -> Any:
        if made[index] is None:
            value, dtype = numbers[index]
            made[index] = r.stored("number", torch.tensor(value, dtype=dtype))
        return made[index]

    for operation, name, *operands in step.attributes["code"]:
        dtype = dtype_of(name)
        if operation == "number":
            value = float(operands[0]) if isinstance(operands[0], str) else operands[0]
            numbers[len(made)] = (value, dtype)
            made.append(None)
        elif operation == "size":
            made.append(r.call(aten.scalar_tensor.default, r.size(sizes[operands[0]]), dtype=dtype))
        elif operation == "convert":
            made.append(r.call(aten.to.dtype, tensor(operands[0]), dtype))
        elif operation in _BOUNDED and (bounded := _bounded(operands, numbers)) is not None:
            made.append(r.call(_BOUNDED[operation], tensor(bounded[0]), bounded[1]))
        else:
            made.append(_operation(r, operation, dtype, [tensor(index) for index in operands]))
    last: fx.Node = tensor(len(made) - 1)
    return last


def _bounded(operands: list[int], numbers: dict[int, Any]) -> tuple[int, Any] | None:
    """Of a value and a number: both."""
    for x, bound in (operands, operands[::-1]):
        if bound in numbers and x not in numbers:
            return x, numbers[bound][0]
    return None


def _restore_old(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    """What programs had for the operation of a map once: of two tensors, or of one and a number."""
    a, operands = step.attributes, [r.tensor(name) for name in step.inputs]
    name = step.op.removeprefix("float_")
    if name == "clamp":
        return r.call(aten.clamp.default, *operands, a.get("low"), a.get("high"))
    if name == "threshold":
        return r.call(aten.threshold.default, *operands, a["threshold"], a["value"])
    if name in _FUNCTIONS:
        target, *more = _FUNCTIONS[name]
        return r.call(target, *operands, *more)
    operation = {"multiply": "mul", "divide": "div", "subtract": "sub"}.get(name, name)
    if "number" in a:
        operands.append(r.stored("number", torch.tensor(a["number"], dtype=r.dtype(operands[0]))))
    return r.call(_PLAIN[operation], *(operands[::-1] if a.get("swapped") else operands))


_OLD = ("add", "subtract", "multiply", "divide", "clamp", "threshold", *_FUNCTIONS)


# ------------------------------------------------------------------------------------------------ float forms in graphs


def _as_floats(g: Lowering, value: Any) -> Any:
    """A tensor or a number as a float32 tensor."""
    if not isinstance(value, fx.Node):
        return g.constant(f"number_{value}", torch.tensor(float(value), dtype=_F32))
    made = g.floats(value)
    return made if are_floats(g, [value]) else g.call(aten.to.dtype, made, _F32)


def _form(compute: Callable[[Any, fx.Node], FloatCall | None]) -> FloatForm:
    """A form of calls that give float32, of tensors of any dtype."""

    def form(g: Lowering, node: fx.Node) -> FloatCall | None:
        if "written" in node.meta or not are_floats(g, [node]):
            return None
        return compute(g, node)

    return form


def _unary_form(function: str) -> FloatForm:
    return _form(lambda g, node: (ours.float_unary.default, (_as_floats(g, node.args[0]), function)))


def _binary_form(function: str, swapped: bool = False) -> FloatForm:
    def compute(g: Lowering, node: fx.Node) -> FloatCall:
        operands = _operands(node, 2)[::-1] if swapped else _operands(node, 2)
        return ours.float_binary.default, (*(_as_floats(g, v) for v in operands), function)

    return _form(compute)


def _floor_form(g: Lowering, node: fx.Node) -> FloatCall | None:
    rounds = "floor_divide" in str(node.target) or arguments(node).get("rounding_mode") == "floor"
    return _binary_form("floor_divide")(g, node) if rounds else None


# Powers that are products, quotients and roots.
_POWERS: dict[float, Callable[[Any, Any], FloatCall]] = {
    1.0: lambda g, x: (aten.alias.default, (x,)),
    2.0: lambda g, x: (aten.mul.Tensor, (x, x)),
    3.0: lambda g, x: (aten.mul.Tensor, (g.call(aten.mul.Tensor, x, x), x)),
    0.5: lambda g, x: (ours.float_unary.default, (x, "sqrt")),
    -0.5: lambda g, x: (ours.float_unary.default, (x, "rsqrt")),
    -1.0: lambda g, x: (aten.reciprocal.default, (x,)),
    -2.0: lambda g, x: (aten.reciprocal.default, (g.call(aten.mul.Tensor, x, x),)),
}


def _power(g: Lowering, node: fx.Node) -> FloatCall:
    base, exponent = _operands(node, 2)
    if isinstance(base, fx.Node) and isinstance(exponent, (int, float)) and float(exponent) in _POWERS:
        return _POWERS[float(exponent)](g, _as_floats(g, base))
    return ours.float_binary.default, (_as_floats(g, base), _as_floats(g, exponent), "pow")


def _product_form(quotient: bool) -> FloatForm:
    """``x + value * a * b``, or ``x + value * a / b``, each rounded."""

    def parts(g: Lowering, a: dict[str, Any]) -> FloatCall:
        first, second = g.floats(a["tensor1"]), g.floats(a["tensor2"])
        scaled = first if a["value"] == 1 else g.call(aten.mul.Tensor, first, a["value"])
        made = g.call(aten.div.Tensor if quotient else aten.mul.Tensor, scaled, second)
        return aten.add.Tensor, (g.floats(a["self"]), made)

    return in_parts(parts)


def _lerp(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``x + weight * (end - x)``; from the end if that is nearer, ``end - (1 - weight) * (end - x)``."""
    x, end = g.floats(a["self"]), g.floats(a["end"])
    distance = g.call(aten.sub.Tensor, end, x)
    weight = g.floats(a["weight"]) if isinstance(a["weight"], fx.Node) else a["weight"]
    from_first = aten.add.Tensor, (x, g.call(aten.mul.Tensor, distance, weight))
    if not isinstance(weight, fx.Node):
        rest = g.call(aten.mul.Tensor, distance, 1.0 - weight)
        return from_first if abs(weight) < 0.5 else (aten.sub.Tensor, (end, rest))
    rest = g.call(aten.add.Tensor, g.call(aten.mul.Tensor, weight, -1.0), 1.0)
    from_last = g.call(aten.sub.Tensor, end, g.call(aten.mul.Tensor, distance, rest))
    is_near = g.call(aten.lt.Scalar, g.call(aten.abs.default, weight), 0.5)
    return aten.where.self, (is_near, g.call(from_first[0], *from_first[1]), from_last)


def _softplus(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``log(1 + exp(beta x)) / beta``, and `x` where that is the same to all its digits."""
    x, beta = g.floats(a["self"]), float(a["beta"])
    scaled = x if beta == 1 else g.call(aten.mul.Tensor, x, beta)
    e = g.call(ours.float_unary.default, scaled, "exp")
    soft = g.call(ours.float_unary.default, e, "log1p")
    soft = soft if beta == 1 else g.call(aten.div.Tensor, soft, beta)
    return aten.where.self, (g.call(aten.gt.Scalar, scaled, float(a["threshold"])), x, soft)


def _log_sigmoid(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``min(x, 0) - log(1 + exp(-|x|))``"""
    x = g.floats(a["self"])
    size = g.call(aten.mul.Tensor, g.call(aten.abs.default, x), -1.0)
    soft = g.call(ours.float_unary.default, g.call(ours.float_unary.default, size, "exp"), "log1p")
    return aten.sub.Tensor, (g.call(aten.clamp_max.default, x, 0.0), soft)


def _logit(g: Lowering, a: dict[str, Any]) -> FloatCall:
    x = g.floats(a["self"])
    if a["eps"] is not None:
        x = g.call(aten.clamp.default, x, float(a["eps"]), 1.0 - float(a["eps"]))
    rest = g.call(aten.add.Tensor, g.call(aten.mul.Tensor, x, -1.0), 1.0)
    return ours.float_unary.default, (g.call(aten.div.Tensor, x, rest), "log")


# ----------------------------------------------------------------------------------------------------------- records


def _mapped(name: str, emit: Emit, *more: str, float_form: FloatForm | None = None, **other: Any) -> Operator:
    """One operator of ATen with all its overloads; `more`: other names of it."""
    every = (name, *more)
    taken = _aten_names(*every) if float_form is not None else ()
    return Operator(name, taken, float_form=float_form, steps=steps(emit, overloads(*every)), **other)


def _extreme_of_two(name: str, other: str) -> Operator:
    """Of two zeros the second one, as PyTorch's vectors have it: a map takes the first of two equal numbers."""
    emit, form = emit_arithmetic(name, swapped=True), _binary_form(name, swapped=True)
    targets = (*overloads(name), f"aten.{other}")
    return Operator(name, (*_aten_names(name), other), float_form=form, steps=steps(emit, targets))


_OTHER_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "lgamma": "special_gammaln", "digamma": "special_psi", "igamma": "special_gammainc", "igammac": "special_gammaincc",
    "i0": "special_modified_bessel_i0", "i1": "special_modified_bessel_i1",
}  # fmt: skip


def _form_only(name: str, form: FloatForm, *more: str) -> Operator:
    """A function that only our operators compute, under each name that PyTorch has for it."""
    every = (name, f"special_{name}", _OTHER_NAMES.get(name, name), *more)
    return Operator(name, _aten_names(*dict.fromkeys(n for n in every if hasattr(aten, n))), float_form=form)


# The name in Python's operator and in ATen, and the other names in torch.
COMPARISONS: dict[str, tuple[str, ...]] = {
    "eq": (), "ne": ("not_equal",), "lt": ("less",), "le": ("less_equal",),
    "gt": ("greater",), "ge": ("greater_equal",),
}  # fmt: skip

RECORDS = (
    *(_form_only(name, _unary_form(name)) for name in UNARY if name not in _PARTS_OF_FREXP),
    *(_form_only(name, _binary_form(name)) for name in BINARY if name not in _OF_INTEGERS_TOO),
    Operator(
        "float_functions", steps=steps(_emit_ours, "float_unary", "float_binary"),
        restores=(
            *restores(_restore_map, "map"),
            *restores(_restore_old, *(f"float_{name}" for name in _OLD), "remainder"),
        ),
    ),
    _mapped("abs", emit_function("abs"), "absolute"),
    _mapped("sign", _emit_sign, "sgn"),
    _mapped("neg", emit_function("neg"), "negative"),
    _mapped("reciprocal", emit_function("reciprocal")),
    _mapped("square", _emit_square),
    _mapped("floor", _emit_whole("floor")),
    _mapped("ceil", _emit_whole("ceil")),
    _mapped("round", _emit_whole("round")),
    _mapped("trunc", _emit_whole("trunc"), "fix"),
    _mapped("isnan", _emit_test(_is("isnan"))),
    _mapped("isinf", _emit_test(_is("isinf"))),
    _mapped("isfinite", _emit_test(_is_finite)),
    _mapped("nan_to_num", _emit_nan_to_num),
    _mapped("bitwise_not", emit_function("bitwise_not")),
    _mapped("logical_not", _emit_logical("bitwise_not")),
    *(_extreme_of_two(name, other) for name, other in (("minimum", "min.other"), ("maximum", "max.other"))),
    _mapped("remainder", emit_arithmetic("remainder"), float_form=_binary_form("remainder")),
    _mapped("fmod", emit_arithmetic("fmod"), float_form=_binary_form("fmod")),
    _mapped("div", _emit_divide, "divide", "true_divide", float_form=_form(_floor_form)),
    _mapped(
        "floor_divide", _emit_divide, float_form=_form(_floor_form), functions=(python.floordiv,),
        traced=Traced(Observed.SHARED),
    ),
    _mapped("pow", _emit_power, float_form=_form(_power)),
    _mapped("atan2", emit_arithmetic("atan2"), "arctan2", float_form=_binary_form("atan2")),
    _mapped("gcd", emit_arithmetic("gcd")),
    _mapped("lcm", emit_arithmetic("lcm")),
    _mapped("bitwise_and", emit_arithmetic("bitwise_and"), "__and__"),
    _mapped("bitwise_or", emit_arithmetic("bitwise_or"), "__or__"),
    _mapped("bitwise_xor", emit_arithmetic("bitwise_xor"), "__xor__"),
    _mapped("bitwise_left_shift", emit_arithmetic("shift_left"), "__lshift__"),
    _mapped("bitwise_right_shift", emit_arithmetic("shift_right"), "__rshift__"),
    _mapped("logical_and", _emit_logical("bitwise_and")),
    _mapped("logical_or", _emit_logical("bitwise_or")),
    _mapped("logical_xor", _emit_logical("bitwise_xor")),
    *(_mapped(name, _emit_compare(name), *others) for name, others in COMPARISONS.items()),
    Operator("where", steps=steps(_emit_where, [name for name in overloads("where") if not name.endswith("default")])),
    _mapped("masked_fill", _emit_masked_fill),
    _form_only("addcmul", _product_form(False)),
    _form_only("addcdiv", _product_form(True)),
    _form_only("lerp", in_parts(_lerp)),
    _form_only("softplus", in_parts(_softplus)),
    _form_only("log_sigmoid", in_parts(_log_sigmoid)),
    _form_only("logit", in_parts(_logit)),
)  # fmt: skip
