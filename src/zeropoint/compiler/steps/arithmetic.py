"""What is not quantized: float32 arithmetic, other dtypes, tensors of known values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from zeropoint.compiler.steps.table import dtype_name, row
from zeropoint.operators.node import arguments

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler

_OPERATIONS = {"add": "add", "sub": "subtract", "rsub": "subtract", "mul": "multiply", "div": "divide"}


@row(*(f"aten.{name}.{kind}" for name in _OPERATIONS for kind in ("Tensor", "Scalar")))
def _arithmetic(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    x, other = node.args[:2]
    if a.get("alpha", 1) != 1:
        raise c.unsupported("alpha is not 1")
    name = str(node.target).split(".")[1]
    op, swapped = f"float_{_OPERATIONS[name]}", name == "rsub"
    for t in (x, other):
        if isinstance(t, fx.Node) and (not isinstance(c.found[t], torch.Tensor) or c.dtype(t) != torch.float32):
            raise c.unsupported("it is a step on float32 only")
    if not isinstance(other, fx.Node):
        return c.add(op, c.tensor(x), number=float(other), swapped=swapped)
    return c.add(op, *(c.tensor(t) for t in ((other, x) if swapped else (x, other))))


@row("aten.to.dtype", "aten.to.dtype_layout", "aten._to_copy.default", "aten.type_as.default")
def _convert(c: Compiler, node: fx.Node) -> str:
    source, wanted = c.dtype(node.args[0]), c.dtype(node)
    taken = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32)
    if source != wanted and (
        wanted not in (torch.float32, torch.int64, torch.int32, torch.bool) or source not in taken
    ):
        raise c.unsupported(f"there is no step from {dtype_name(source)} to {dtype_name(wanted)}")
    return c.add("convert", c.tensor(node.args[0]), dtype=dtype_name(wanted))


@row("aten.cumsum.default")
def _cumulative_sum(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    x, wanted = c.tensor(node.args[0]), c.dtype(node)
    if wanted not in (torch.float32, torch.int64):
        raise c.unsupported("it is a step to float32 and int64 only")
    if c.dtype(node.args[0]) != wanted:
        x = c.add("convert", x, dtype=dtype_name(wanted))
    return c.add("cumulative_sum", x, axis=a["dim"])


@row("aten.remainder.Scalar")
def _remainder(c: Compiler, node: fx.Node) -> str:
    if c.dtype(node) != c.dtype(node.args[0]) or c.dtype(node) not in (torch.float32, torch.int64):
        raise c.unsupported("it is a step on float32 and int64 only")
    return c.add("remainder", c.tensor(node.args[0]), number=node.args[1])


@row("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def _range(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(node) != torch.int64:
        raise c.unsupported("it is a step for int64 only")
    first, end, step = (c.size(a.get(k, d)) for k, d in (("start", 0), ("end", None), ("step", 1)))
    if isinstance(step, int) and step < 1:
        raise c.unsupported(f"a step of {step}")
    room = c.number("add", c.number("subtract", end, first), c.number("subtract", step, 1))
    return c.add("range", first=first, step=step, count=c.number("floor_divide", room, step))


def _full(c: Compiler, node: fx.Node, shape: list[Any], value: Any) -> str:
    if c.dtype(node) not in (torch.float32, torch.int64):
        raise c.unsupported("it is a step for float32 and int64 only")
    return c.add("full", shape=shape, dtype=dtype_name(c.dtype(node)), value=value)


@row("aten.zeros.default", "aten.ones.default", "aten.full.default")
def _filled(c: Compiler, node: fx.Node) -> str:
    value = node.args[1] if "full" in str(node.target) else int("ones" in str(node.target))
    return _full(c, node, c.sizes(node.args[0]), value)


@row("aten.zeros_like.default", "aten.ones_like.default", "aten.full_like.default")
def _filled_like(c: Compiler, node: fx.Node) -> str:
    value = node.args[1] if "full" in str(node.target) else int("ones" in str(node.target))
    shape = [c.axis_size(node.args[0], axis) for axis in range(c.rank(node.args[0]))]
    return _full(c, node, shape, value)
