"""Sizes of tensors as values of an ONNX file: vectors of one number, and what is computed with them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from zeropoint.compiler.sizes import SIZES as CALLS
from zeropoint.interop.onnx.writer import Writer


def _write_size(w: Writer, node: fx.Node) -> Any:
    return w.typed(w.axis_size(node.args[0], int(node.args[1])), torch.int64)


def _write_numel(w: Writer, node: fx.Node) -> Any:
    return w.op("Reshape", w.op("Size", w.tensor(node.args[0])), w.ints([1]))


def _operand(w: Writer, value: Any) -> Any:
    if isinstance(value, float) and not value.is_integer():
        raise w.unsupported(f"a size is computed with {value}, which is not an integer")
    return w.tensor(value) if isinstance(value, fx.Node) else w.ints([int(value)])


def _calculation(name: str) -> Callable[[Writer, fx.Node], Any]:
    def write(w: Writer, node: fx.Node) -> Any:
        return w.typed(w.op(name, *(_operand(w, value) for value in node.args)), torch.int64)

    return write


def _same(w: Writer, node: fx.Node) -> Any:
    return _operand(w, node.args[0])


def _nothing(w: Writer, node: fx.Node) -> None:
    """A check of what the model was captured with."""


# Quotients of sizes are of numbers that are not negative, where cutting off is rounding down.
_CALCULATIONS = {
    operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul", operator.floordiv: "Div", operator.mod: "Mod",
    torch.sym_max: "Max", max: "Max", torch.sym_min: "Min", min: "Min", operator.neg: "Neg", operator.abs: "Abs",
}  # fmt: skip
SIZES: dict[Any, Callable[[Writer, fx.Node], Any]] = {
    "aten.sym_size.int": _write_size,
    "aten.sym_numel.default": _write_numel,
    **{function: _calculation(name) for function, name in _CALCULATIONS.items()},
    **dict.fromkeys((torch.sym_int, int), _same),
    **{
        call: _nothing
        for call, emit in CALLS.items()
        if getattr(emit, "__name__", "") in ("_emit_nothing", "_emit_comparison")
    },
}
