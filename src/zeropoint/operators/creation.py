"""Operators that stay outside quantization: constant tensors, casts, ranges and cumulative sums, as masks need them."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from zeropoint.operators.elementwise import emit_convert, overloads
from zeropoint.operators.expressions import Expression
from zeropoint.operators.node import arguments
from zeropoint.operators.record import Operator
from zeropoint.operators.steps import (
    GraphBuilder,
    ProgramStep,
    StepBuilder,
    called,
    dtype_name,
    dtype_of,
    emit_same,
    restores,
    steps,
)

aten = torch.ops.aten
_I64 = torch.int64


def whole_numbers(c: StepBuilder, count: Any, first: Any = 0, step: Any = 1) -> str:
    """``first, first + step, ...`` as int64."""
    return c.add("range", first=first, step=step, count=count)


def filled(c: StepBuilder, shape: list[Any], dtype: torch.dtype, value: Any) -> str:
    """One value everywhere; it may be a number that is known when the program runs."""
    if isinstance(value, str):
        e = Expression(c)
        zeros = e.tensor(filled(c, shape, dtype, 0), dtype)
        return e.step(e.call("add", zeros, e.number(value, dtype)))
    if isinstance(value, (bool, int)) or math.isfinite(value):
        stored = torch.tensor(value).to(dtype).item()
        return c.add("full", shape=shape, dtype=dtype_name(dtype), value=int(stored) if dtype == torch.bool else stored)
    return c.add("expand", c.builder.constant("infinite", torch.tensor(value, dtype=dtype)), shape=shape)


def _sizes_of(c: StepBuilder, node: fx.Node) -> list[Any]:
    return [c.axis_size(node, axis) for axis in range(c.rank(node))]


def _number(c: StepBuilder, value: Any) -> Any:
    return c.size(value) if isinstance(value, fx.Node) else value


def _emit_range(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    given = [a.get("start", 0), a["end"], a.get("step", 1)]
    if any(isinstance(n, float) and not n.is_integer() for n in given):
        raise c.unsupported("its numbers are not integers and are known only at run time")
    first, end, step = (c.size(n) for n in given)
    less = c.number("floor_divide", c.number("subtract", first, end), step)  # rounded down: the count is rounded up
    e = Expression(c)
    numbers = e.tensor(whole_numbers(c, c.number("subtract", 0, less), first, step), _I64)
    return e.step(e.convert(numbers, c.dtype(node)))


def _value_of(c: StepBuilder, node: fx.Node) -> Any:
    a, name = arguments(node), str(node.target)
    if "full" in name or "scalar_tensor" in name:
        return _number(c, a["s"] if "scalar_tensor" in name else a["fill_value"])
    return int("ones" in name)


def _emit_filled(c: StepBuilder, node: fx.Node) -> str:
    shape = arguments(node).get("size", [])
    return filled(c, c.sizes(shape), c.dtype(node), _value_of(c, node))


def _emit_filled_like(c: StepBuilder, node: fx.Node) -> str:
    return filled(c, _sizes_of(c, node.args[0]), c.dtype(node), _value_of(c, node))


def _emit_fill(c: StepBuilder, node: fx.Node) -> str:
    """Another value everywhere, which may be a tensor of one."""
    x, value = list(arguments(node).values())[:2]
    if isinstance(value, fx.Node) and isinstance(c.found[value], torch.Tensor):
        e = Expression(c)
        return c.add("expand", e.step(e.term(value, c.dtype(node))), shape=_sizes_of(c, x))
    return filled(c, _sizes_of(c, x), c.dtype(node), _number(c, value))


def _emit_cumulative(c: StepBuilder, node: fx.Node) -> str:
    """Running sums or products."""
    step = "cumulative_product" if "cumprod" in str(node.target) else "cumulative_sum"
    wanted, e = c.dtype(node), Expression(c)
    if wanted.is_floating_point and wanted != torch.float32:
        raise c.unsupported("floats can only be converted to float32")
    if wanted.is_floating_point or wanted == _I64:
        return c.add(step, e.step(e.term(node.args[0], wanted)), axis=arguments(node)["dim"])
    whole = e.step(e.convert(e.term(node.args[0], wanted), _I64))
    sums = Expression(c)  # what does not fit wraps, as it does in the sums of smaller integers
    added = c.add(step, whole, axis=arguments(node)["dim"])
    return sums.step(sums.convert(sums.tensor(added, _I64), wanted))


def _emit_cumulative_extreme(c: StepBuilder, node: fx.Node) -> list[str]:
    dtype = c.dtype(node.args[0])
    if dtype not in (torch.float32, _I64):
        raise c.unsupported("only float32 and int64 are supported")
    axis, largest = arguments(node)["dim"], "cummax" in str(node.target)
    names = [str(node), f"{node}_places"]
    return c.builder.add_several("cumulative_extreme", [c.tensor(node.args[0])], names, axis=axis, largest=largest)


def _lines(c: StepBuilder, rows: Any, columns: Any) -> tuple[str, str]:
    """The numbers of rows, as a column, and those of columns."""
    return c.add("unsqueeze", whole_numbers(c, rows), axis=1), whole_numbers(c, columns)


def _emit_eye(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    rows = c.size(a["n"])
    e, lines = Expression(c), _lines(c, rows, c.size(a["m"]) if "m" in a else rows)
    same = e.call("eq", *(e.tensor(line, _I64) for line in lines), gives=torch.bool)
    return e.step(e.convert(same, c.dtype(node)))


def _emit_triangle(c: StepBuilder, node: fx.Node) -> str:
    """What lies below a diagonal, or above it; zeros elsewhere."""
    a, x, dtype = arguments(node), node.args[0], c.dtype(node)
    e = Expression(c)
    down, along = (e.tensor(n, _I64) for n in _lines(c, c.axis_size(x, -2), c.axis_size(x, -1)))
    diagonal = e.term(a["diagonal"], _I64)
    kept = e.call("le" if "tril" in str(node.target) else "ge", e.call("sub", along, down), diagonal, gives=torch.bool)
    return e.step(e.call("where", kept, e.term(x, dtype), e.number(0, dtype)))


def _emit_one_hot(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    if a["num_classes"] == -1:
        raise c.unsupported("the number of classes depends on the data: pass num_classes")
    e = Expression(c)
    x = c.add("unsqueeze", c.tensor(node.args[0]), axis=-1)
    classes = e.tensor(whole_numbers(c, c.size(a["num_classes"])), _I64)
    found = e.call("eq", e.convert(e.tensor(x, c.dtype(node.args[0])), _I64), classes, gives=torch.bool)
    return e.step(e.convert(found, _I64))


def _emit_bucketize(c: StepBuilder, node: fx.Node) -> str:
    """How many boundaries are not above each value; NaN is above all of them."""
    a = arguments(node)
    if not isinstance(a["self"], fx.Node):
        raise c.unsupported("it does not support numbers")
    e, dtype = Expression(c), torch.result_type(c.found[a["self"]], c.found[a["boundaries"]])
    x = c.add("unsqueeze", c.tensor(a["self"]), axis=-1)
    values = e.convert(e.tensor(x, c.dtype(a["self"])), dtype)
    above = e.call("lt" if a["right"] else "le", values, e.term(a["boundaries"], dtype), gives=torch.bool)
    below = e.call("bitwise_not", above)
    counted = c.add("integer_sum", e.step(e.convert(below, _I64)), axes=[-1], keepdim=False)
    made = Expression(c)
    return made.step(made.convert(made.tensor(counted, _I64), c.dtype(node)))


# ------------------------------------------------------------------------------------------------- steps as nodes again


def _restore_filled(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a = step.attributes
    return r.call(aten.full.default, r.size(a["shape"]), a["value"], dtype=dtype_of(a["dtype"]))


def _restore_range(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    first, by, count = (r.size(step.attributes[name]) for name in ("first", "step", "count"))

    def made(operation: Any, a: Any, b: Any) -> Any:
        return r.call(operation, a, b) if isinstance(a, fx.Node) or isinstance(b, fx.Node) else operation(a, b)

    end = made(operator.add, first, count if by == 1 else made(operator.mul, count, by))
    return r.call(aten.arange.start_step, first, end, by, dtype=_I64)


def _restore_convert(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    return r.call(aten.to.dtype, r.tensor(step.inputs[0]), dtype_of(step.attributes["dtype"]))


def _restore_cumulative_extreme(r: GraphBuilder, step: ProgramStep) -> list[fx.Node]:
    a = step.attributes
    made = r.call((aten.cummax if a["largest"] else aten.cummin).default, r.tensor(step.inputs[0]), a["axis"])
    return [r.call(operator.getitem, made, i) for i in (0, 1)]


# Memory that was not written is zeros here.
_CREATED = tuple(f"aten.{name}.default" for name in ("zeros", "ones", "full", "new_zeros", "new_ones", "new_full"))
_CREATED += ("aten.scalar_tensor.default", "aten.new_empty.default", "aten.empty.memory_format")
RECORDS = (
    Operator(
        "to",
        steps=steps(emit_convert, overloads("to", "_to_copy", "type_as")),
        restores=restores(_restore_convert, "convert"),
    ),
    Operator(
        "cumsum",
        steps=steps(_emit_cumulative, "aten.cumsum.default"),
        restores=restores(called(aten.cumsum.default, "axis"), "cumulative_sum"),
    ),
    Operator(
        "cumprod",
        steps=steps(_emit_cumulative, "aten.cumprod.default"),
        restores=restores(called(aten.cumprod.default, "axis"), "cumulative_product"),
    ),
    Operator(
        "cummax",
        steps=steps(_emit_cumulative_extreme, "aten.cummax.default", "aten.cummin.default"),
        restores=restores(_restore_cumulative_extreme, "cumulative_extreme"),
    ),
    Operator(
        "arange",
        steps=steps(_emit_range, *(f"aten.arange.{k}" for k in ("default", "start", "start_step"))),
        restores=restores(_restore_range, "range"),
    ),
    Operator("full", steps=steps(_emit_filled, *_CREATED), restores=restores(_restore_filled, "full")),
    Operator(
        "full_like",
        steps=steps(_emit_filled_like, *(f"aten.{name}_like.default" for name in ("zeros", "ones", "full", "empty"))),
    ),
    Operator("fill", steps=steps(_emit_fill, "aten.fill.Scalar", "aten.fill.Tensor")),
    Operator("eye", steps=steps(_emit_eye, "aten.eye.default", "aten.eye.m")),
    Operator("triangle", steps=steps(_emit_triangle, "aten.tril.default", "aten.triu.default")),
    Operator("one_hot", steps=steps(_emit_one_hot, "aten.one_hot.default")),
    Operator("bucketize", steps=steps(_emit_bucketize, "aten.bucketize.Tensor")),
    Operator("assert_metadata", steps=steps(emit_same, "aten._assert_tensor_metadata.default")),
)
