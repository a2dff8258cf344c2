"""ONNX forms of sums, products, matrix products and concatenation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from zeropoint.operators.elementwise import overloads
from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, Read, ReadNode, Write, reads, writes


def operands(w: OnnxWriter, node: fx.Node, *given: Any) -> list[Any]:
    """Tensors and numbers in the dtype that they are computed in together."""
    tensors = [value for value in given if isinstance(value, fx.Node) and isinstance(w.found[value], torch.Tensor)]
    kinds = [torch.float32 if w.scale_of(t) is not None else w.dtype(t) for t in tensors]
    plain = [t for t in tensors if w.rank(t) > 0] or tensors
    kind = torch.float32 if any(k.is_floating_point for k in kinds) else None
    if kind is None:
        kind = w.dtype(plain[0])
        for tensor in plain[1:]:
            kind = torch.promote_types(kind, w.dtype(tensor))
        if any(isinstance(value, float) for value in given):
            kind = torch.float32
        elif kind == torch.bool and any(type(value) is int for value in given):
            kind = torch.int64
    if any(k == torch.float64 for k in kinds):
        raise w.unsupported("it computes with float64")

    def operand(value: Any) -> Any:
        if not isinstance(value, fx.Node):
            return w.number(value, kind)
        if value in tensors:
            return w.convert(w.floats(value), kind)
        return w.op("Squeeze", w.convert(w.tensor(value), kind), w.ints([0]))  # a size

    return [operand(value) for value in given]


def two(name: str) -> Write:
    """Writes an operator of two tensors, or of a tensor and a number."""

    def write(w: OnnxWriter, node: fx.Node) -> Any:
        return w.result(w.op(name, *operands(w, node, *node.args[:2])))

    return write


# ------------------------------------------------------------------------------------------------------------- writing


def _write_sum(name: str, swapped: bool = False) -> Write:
    def write(w: OnnxWriter, node: fx.Node) -> Any:
        alpha = arguments(node).get("alpha", 1)
        a, b = operands(w, node, *node.args[:2])
        if alpha != 1:
            if isinstance(alpha, fx.Node):
                raise w.unsupported("its alpha is not a constant")
            b = w.op("Mul", b, w.number(alpha, torch.float32 if isinstance(alpha, float) else w.dtype(node)))
        return w.result(w.op(name, *((b, a) if swapped else (a, b))))

    return write


def _write_of_integers(name: str) -> Write:
    """Of two tensors of integers; a negative scale of the second turns its sign, as that of a difference."""

    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a = arguments(node)
        x, y = w.floats(a["a"]), w.floats(a["b"])
        own = w.scale_of(a["b"])
        factor = 1.0 if own is None else float(a["b_scale"]) / own[0]
        if name == "Add" and factor == -1.0:
            return w.result(w.op("Sub", x, y))
        return w.result(w.op(name, x, y if factor == 1.0 else w.op("Mul", y, w.number(factor))))

    return write


def _write_with_number(name: str) -> Write:
    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a = arguments(node)
        return w.result(w.op(name, w.floats(a["input"]), w.number(float(a["other"]))))

    return write


def _write_product(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    x, y = (a["a"], a["b"]) if "a" in a else (a["self"], a.get("other", a.get("mat2")))
    return w.result(w.op("MatMul", w.floats(x), w.floats(y)))


def _write_cat(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    parts = a["inputs"] if "inputs" in a else a["tensors"]
    axis = a.get("dim", min(w.rank(parts[0]) - 1, 1))
    kind = w.dtype(node)
    values = [w.floats(part) for part in parts]
    if w.scale_of(node) is None and any(w.dtype(part) != kind for part in parts):
        values = [w.convert(value, kind) for value in values]
    return w.result(w.op("Concat", *values, axis=axis))


# ------------------------------------------------------------------------------------------------------------- reading


def _read_arithmetic(function: Callable[[Any, Any], Any], turned: Callable[[Any, Any], Any]) -> Read:
    """`turned` takes its operands the other way round: ATen has a number as the second one."""

    def read(r: OnnxReader, n: ReadNode) -> Any:
        a, *rest = (r.operand(value) for value in n.every())
        for b in rest:
            a = turned(b, a) if not isinstance(a, torch.Tensor) else function(a, b)
        return a

    return read


def _read_concat(r: OnnxReader, n: ReadNode) -> Any:
    return r.joined(n.every(), n.attribute("axis"))


FORMS = {
    "matmul": OnnxForms(writes(_write_product, "matmul", "float_matmul", "aten.matmul.default")),
    "bmm": OnnxForms(writes(_write_product, "bmm", "aten.bmm.default")),
    "mm": OnnxForms(writes(_write_product, "aten.mm.default")),
    "add": OnnxForms(
        writes=(
            *writes(_write_of_integers("Add"), "add", "add_relu"),
            *writes(_write_with_number("Add"), "add_scalar", "add_scalar_relu"),
            *writes(_write_sum("Add"), overloads("add")),
            *writes(_write_sum("Sub"), overloads("sub", "subtract")),
            *writes(_write_sum("Sub", swapped=True), overloads("rsub")),
        ),
        reads=(
            *reads(_read_arithmetic(torch.add, torch.add), "Add", "Sum"),
            *reads(_read_arithmetic(torch.sub, torch.rsub), "Sub"),
        ),
    ),
    "mul": OnnxForms(
        writes=(
            *writes(_write_of_integers("Mul"), "mul", "mul_relu"),
            *writes(_write_with_number("Mul"), "mul_scalar", "mul_scalar_relu"),
            *writes(two("Mul"), overloads("mul", "multiply")),
        ),
        reads=reads(_read_arithmetic(torch.mul, torch.mul), "Mul"),
    ),
    "cat": OnnxForms(
        writes(_write_cat, "cat", "cat_relu", "aten.cat.default", "aten.concat.default"), reads(_read_concat, "Concat")
    ),
}  # fmt: skip
