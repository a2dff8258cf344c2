"""ONNX forms of element-wise arithmetic, comparisons and functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from zeropoint.operators.elementwise import overloads
from zeropoint.operators.node import arguments
from zeropoint.operators.onnx.activations import computes, one
from zeropoint.operators.onnx.arithmetic import operands, two
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, Read, ReadNode, Write, reads, writes

# Functions that ONNX has under one name, by zeropoint's names.
_FUNCTIONS = {
    "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf",
}  # fmt: skip


def _composed(w: OnnxWriter, name: str, x: Any) -> Any:
    """A function that ONNX has in parts only."""
    one_ = w.number(1.0)
    if name == "rsqrt":
        return w.op("Reciprocal", w.op("Sqrt", x))
    if name == "exp2":
        return w.op("Pow", w.number(2.0), x)
    if name == "expm1":
        return w.op("Sub", w.op("Exp", x), one_)
    if name in ("log2", "log10"):
        base = torch.log(torch.tensor(2.0 if name == "log2" else 10.0))
        return w.op("Div", w.op("Log", x), base)
    if name == "log1p":
        return w.op("Log", w.op("Add", x, one_))
    if name == "erfc":
        return w.op("Sub", one_, w.op("Erf", x))
    raise w.unsupported(f"ONNX has no function {name!r}")


def _function(w: OnnxWriter, name: str, x: Any) -> Any:
    return w.op(_FUNCTIONS[name], x) if name in _FUNCTIONS else _composed(w, name, x)


def _write_function(name: str) -> Write:
    def write(w: OnnxWriter, node: fx.Node) -> Any:
        return w.result(_function(w, name, w.convert(w.floats(node.args[0]), torch.float32)))

    return write


def _write_unary(w: OnnxWriter, node: fx.Node) -> Any:
    return w.result(_function(w, str(node.args[1]), w.floats(node.args[0])))


def _write_binary(w: OnnxWriter, node: fx.Node) -> Any:
    a, b = operands(w, node, *node.args[:2])
    if node.args[2] == "pow":
        return w.result(w.op("Pow", a, b))
    if node.args[2] in ("maximum", "minimum"):
        return w.result(w.op("Max" if node.args[2] == "maximum" else "Min", a, b))
    if node.args[2] == "floor_divide":
        return w.result(w.op("Floor", w.op("Div", a, b)))
    raise w.unsupported(f"ONNX has no function {node.args[2]!r}")


def _write_divide(w: OnnxWriter, node: fx.Node) -> Any:
    given = arguments(node)
    mode = "floor" if "floor_divide" in str(node.target) else given.get("rounding_mode")
    a, b = operands(w, node, *node.args[:2])
    if mode is None:
        kind = w.dtype(node)
        return w.result(w.op("Div", w.convert(a, kind), w.convert(b, kind)))
    if not w.dtype(node).is_floating_point and mode == "floor":  # Div of integers cuts off towards zero
        rest = w.op("Mod", a, b)
        return w.result(w.op("Div", w.op("Sub", a, rest), b))
    quotient = w.op("Div", a, b)
    if not w.dtype(node).is_floating_point:
        return w.result(quotient)
    if mode == "floor":
        return w.result(w.op("Floor", quotient))
    return w.result(w.op("Mul", w.op("Sign", quotient), w.op("Floor", w.op("Abs", quotient))))


def _write_remainder(fmod: int) -> Write:
    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a, b = operands(w, node, *node.args[:2])
        if fmod or not w.dtype(node).is_floating_point:
            return w.result(w.op("Mod", a, b, fmod=fmod))
        whole = w.op("Floor", w.op("Div", a, b))
        return w.result(w.op("Sub", a, w.op("Mul", whole, b)))

    return write


def _write_square(w: OnnxWriter, node: fx.Node) -> Any:
    x = w.floats(node.args[0])
    return w.result(w.op("Mul", x, x))


def _write_trunc(w: OnnxWriter, node: fx.Node) -> Any:
    x = w.floats(node.args[0])
    return w.result(w.op("Mul", w.op("Sign", x), w.op("Floor", w.op("Abs", x))))


def _write_compare(name: str, negated: bool = False) -> Write:
    def write(w: OnnxWriter, node: fx.Node) -> Any:
        made = w.op(name, *operands(w, node, *node.args[:2]))
        return w.op("Not", made) if negated else made

    return write


def _write_logical(name: str) -> Write:
    """Of bools, or of integers bit by bit."""

    def write(w: OnnxWriter, node: fx.Node) -> Any:
        is_logical = "logical" in str(node.target) or w.dtype(node) == torch.bool
        given = operands(w, node, *node.args[:2])
        if is_logical:
            return w.op(name, *(w.convert(value, torch.bool) for value in given))
        return w.op(f"Bitwise{name}", *given)

    return write


def _write_not(w: OnnxWriter, node: fx.Node) -> Any:
    if "logical" in str(node.target) or w.dtype(node.args[0]) == torch.bool:
        return w.op("Not", w.convert(w.tensor(node.args[0]), torch.bool))
    return w.op("BitwiseNot", w.tensor(node.args[0]))


def _write_where(w: OnnxWriter, node: fx.Node) -> Any:
    condition, *sides = node.args[:3]
    kind = w.dtype(node)
    yes, no = (w.convert(w.floats(s), kind) if isinstance(s, fx.Node) else w.number(s, kind) for s in sides)
    return _chosen(w, w.convert(w.tensor(condition), torch.bool), yes, no, kind)


def _chosen(w: OnnxWriter, condition: Any, yes: Any, no: Any, kind: torch.dtype) -> Any:
    """One of two values; ONNX Runtime has no Where of bools."""
    if kind != torch.bool:
        return w.op("Where", condition, yes, no)
    return w.op("Or", w.op("And", condition, yes), w.op("And", w.op("Not", condition), no))


def _write_masked_fill(w: OnnxWriter, node: fx.Node) -> Any:
    x, mask, value = node.args[:3]
    kind = w.dtype(node)
    filled = w.convert(w.tensor(value), kind) if isinstance(value, fx.Node) else w.number(value, kind)
    return _chosen(w, w.tensor(mask), filled, w.floats(x), kind)


def _write_is_finite(w: OnnxWriter, node: fx.Node) -> Any:
    x = w.floats(node.args[0])
    return w.op("Not", w.op("Or", w.op("IsNaN", x), w.op("IsInf", x)))


def _read_compare(function: Callable[[Any, Any], Any]) -> Read:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        return function(r.tensor(n.input(0)), r.operand(n.input(1)))

    return read


def _read_divide(r: OnnxReader, n: ReadNode) -> Any:
    b = r.operand(n.input(1))
    whole = not any(r.dtype(value).is_floating_point for value in n.every())
    return torch.div(r.tensor(n.input(0)), b, rounding_mode="trunc") if whole else torch.div(r.tensor(n.input(0)), b)


def _read_power(r: OnnxReader, n: ReadNode) -> Any:
    return torch.pow(r.tensor(n.input(0)), r.operand(n.input(1)))


def _read_modulo(r: OnnxReader, n: ReadNode) -> Any:
    function = torch.fmod if n.attribute("fmod", 0) else torch.remainder
    return function(r.tensor(n.input(0)), r.operand(n.input(1)))


def _read_extreme(function: Callable[[Any, Any], Any]) -> Read:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        best = r.tensor(n.input(0))
        for value in n.every()[1:]:
            best = function(best, r.tensor(value))
        return best

    return read


def _read_is_inf(r: OnnxReader, n: ReadNode) -> Any:
    x, below, above = r.tensor(n.input(0)), n.attribute("detect_negative", 1), n.attribute("detect_positive", 1)
    if below and above:
        return torch.isinf(x)
    return torch.eq(x, float("inf") if above else float("-inf")) if below or above else torch.zeros_like(x) != 0


def _read_where(r: OnnxReader, n: ReadNode) -> Any:
    return torch.where(*(r.tensor(value) for value in n.first(3)))


def _tested(
    name: str, read: Callable[[Any, Any], Any], aten: tuple[str, ...], onnx: str, negated: bool = False
) -> OnnxForms:
    return OnnxForms(
        writes(_write_compare(onnx, negated), overloads(*aten)), () if negated else reads(_read_compare(read), onnx)
    )


def _simple(name: str, onnx: str, function: Callable[..., Any], *more: str) -> OnnxForms:
    return OnnxForms(writes(one(onnx), overloads(name, *more)), reads(computes(function), onnx))


def _of_floats(name: str) -> OnnxForms:
    onnx = _FUNCTIONS.get(name)
    read = reads(computes(getattr(torch, name)), onnx) if onnx else ()
    return OnnxForms(writes(_write_function(name), f"aten.{name}.default"), read)


_ALL_FUNCTIONS = (*_FUNCTIONS, "rsqrt", "exp2", "expm1", "log2", "log10", "log1p", "erfc")

FORMS = {
    **{name: _of_floats(name) for name in _ALL_FUNCTIONS},
    "float_functions": OnnxForms((*writes(_write_unary, "float_unary"), *writes(_write_binary, "float_binary"))),
    "abs": _simple("abs", "Abs", torch.abs, "absolute"),
    "sign": _simple("sign", "Sign", torch.sign),
    "neg": _simple("neg", "Neg", torch.neg, "negative"),
    "reciprocal": _simple("reciprocal", "Reciprocal", torch.reciprocal),
    "square": OnnxForms(writes(_write_square, "aten.square.default")),
    "floor": _simple("floor", "Floor", torch.floor),
    "ceil": _simple("ceil", "Ceil", torch.ceil),
    "round": OnnxForms(writes(one("Round"), "aten.round.default"), reads(computes(torch.round), "Round")),
    "trunc": OnnxForms(writes(_write_trunc, "aten.trunc.default", "aten.fix.default")),
    "isnan": OnnxForms(writes(one("IsNaN"), "aten.isnan.default"), reads(computes(torch.isnan), "IsNaN")),
    "isinf": OnnxForms(writes(one("IsInf"), "aten.isinf.default"), reads(_read_is_inf, "IsInf")),
    "isfinite": OnnxForms(writes(_write_is_finite, "aten.isfinite.default")),
    "bitwise_not": OnnxForms(writes(_write_not, "aten.bitwise_not.default")),
    "logical_not": OnnxForms(writes(_write_not, "aten.logical_not.default"), reads(computes(torch.logical_not), "Not")),
    "minimum": OnnxForms(writes(two("Min"), "aten.minimum.default"), reads(_read_extreme(torch.minimum), "Min")),
    "maximum": OnnxForms(writes(two("Max"), "aten.maximum.default"), reads(_read_extreme(torch.maximum), "Max")),
    "extreme_of_two": OnnxForms((*writes(two("Max"), "aten.max.other"), *writes(two("Min"), "aten.min.other"))),
    "remainder": OnnxForms(writes(_write_remainder(0), overloads("remainder")), reads(_read_modulo, "Mod")),
    "fmod": OnnxForms(writes(_write_remainder(1), overloads("fmod"))),
    "div": OnnxForms(writes(_write_divide, overloads("div", "divide", "true_divide")), reads(_read_divide, "Div")),
    "floor_divide": OnnxForms(writes(_write_divide, overloads("floor_divide"))),
    "pow": OnnxForms(writes(two("Pow"), overloads("pow")), reads(_read_power, "Pow")),
    "bitwise_and": OnnxForms(writes(_write_logical("And"), overloads("bitwise_and", "__and__"))),
    "bitwise_or": OnnxForms(writes(_write_logical("Or"), overloads("bitwise_or", "__or__"))),
    "bitwise_xor": OnnxForms(writes(_write_logical("Xor"), overloads("bitwise_xor", "__xor__"))),
    "logical_and": OnnxForms(
        writes(_write_logical("And"), "aten.logical_and.default"), reads(_read_compare(torch.logical_and), "And")
    ),
    "logical_or": OnnxForms(
        writes(_write_logical("Or"), "aten.logical_or.default"), reads(_read_compare(torch.logical_or), "Or")
    ),
    "logical_xor": OnnxForms(
        writes(_write_logical("Xor"), "aten.logical_xor.default"), reads(_read_compare(torch.logical_xor), "Xor")
    ),
    "eq": _tested("eq", torch.eq, ("eq",), "Equal"),
    "ne": _tested("ne", torch.ne, ("ne", "not_equal"), "Equal", negated=True),
    "lt": _tested("lt", torch.lt, ("lt", "less"), "Less"),
    "le": _tested("le", torch.le, ("le", "less_equal"), "LessOrEqual"),
    "gt": _tested("gt", torch.gt, ("gt", "greater"), "Greater"),
    "ge": _tested("ge", torch.ge, ("ge", "greater_equal"), "GreaterOrEqual"),
    "where": OnnxForms(
        writes(_write_where, [name for name in overloads("where") if not name.endswith("default")]),
        reads(_read_where, "Where"),
    ),
    "masked_fill": OnnxForms(writes(_write_masked_fill, overloads("masked_fill"))),
}  # fmt: skip
