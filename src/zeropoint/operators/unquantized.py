"""What is not quantized and no step of others: other dtypes, counting, tensors of known values."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.operators.node import arguments
from zeropoint.operators.record import Operator
from zeropoint.operators.steps import StepBuilder, dtype_name, emit_same, steps

__all__ = ["RECORDS"]


def _emit_convert(c: StepBuilder, node: fx.Node) -> str:
    source, wanted = c.dtype(node.args[0]), c.dtype(node)
    taken = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32)
    if source != wanted and (
        wanted not in (torch.float32, torch.int64, torch.int32, torch.bool) or source not in taken
    ):
        raise c.unsupported(f"there is no step from {dtype_name(source)} to {dtype_name(wanted)}")
    return c.add("convert", c.tensor(node.args[0]), dtype=dtype_name(wanted))


def _emit_cumulative_sum(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    x, wanted = c.tensor(node.args[0]), c.dtype(node)
    if wanted not in (torch.float32, torch.int64):
        raise c.unsupported("it is a step to float32 and int64 only")
    if c.dtype(node.args[0]) != wanted:
        x = c.add("convert", x, dtype=dtype_name(wanted))
    return c.add("cumulative_sum", x, axis=a["dim"])


def _emit_remainder(c: StepBuilder, node: fx.Node) -> str:
    if c.dtype(node) != c.dtype(node.args[0]) or c.dtype(node) not in (torch.float32, torch.int64):
        raise c.unsupported("it is a step on float32 and int64 only")
    return c.add("remainder", c.tensor(node.args[0]), number=node.args[1])


def _emit_range(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(node) != torch.int64:
        raise c.unsupported("it is a step for int64 only")
    first, end, step = (c.size(a.get(k, d)) for k, d in (("start", 0), ("end", None), ("step", 1)))
    if isinstance(step, int) and step < 1:
        raise c.unsupported(f"a step of {step}")
    room = c.number("add", c.number("subtract", end, first), c.number("subtract", step, 1))
    return c.add("range", first=first, step=step, count=c.number("floor_divide", room, step))


def _emit_full(c: StepBuilder, node: fx.Node, shape: list[Any], value: Any) -> str:
    if c.dtype(node) not in (torch.float32, torch.int64):
        raise c.unsupported("it is a step for float32 and int64 only")
    return c.add("full", shape=shape, dtype=dtype_name(c.dtype(node)), value=value)


def _emit_filled(c: StepBuilder, node: fx.Node) -> str:
    value = node.args[1] if "full" in str(node.target) else int("ones" in str(node.target))
    return _emit_full(c, node, c.sizes(node.args[0]), value)


def _emit_filled_like(c: StepBuilder, node: fx.Node) -> str:
    value = node.args[1] if "full" in str(node.target) else int("ones" in str(node.target))
    shape = [c.axis_size(node.args[0], axis) for axis in range(c.rank(node.args[0]))]
    return _emit_full(c, node, shape, value)


RECORDS = (
    Operator(
        "to",
        steps=steps(
            _emit_convert, "aten.to.dtype", "aten.to.dtype_layout", "aten._to_copy.default", "aten.type_as.default"
        ),
    ),
    Operator("cumsum", steps=steps(_emit_cumulative_sum, "aten.cumsum.default")),
    Operator("remainder", steps=steps(_emit_remainder, "aten.remainder.Scalar")),
    Operator("arange", steps=steps(_emit_range, *(f"aten.arange.{k}" for k in ("default", "start", "start_step")))),
    Operator("full", steps=steps(_emit_filled, *(f"aten.{name}.default" for name in ("zeros", "ones", "full")))),
    Operator(
        "full_like",
        steps=steps(_emit_filled_like, *(f"aten.{name}_like.default" for name in ("zeros", "ones", "full"))),
    ),
    Operator("assert_metadata", steps=steps(emit_same, "aten._assert_tensor_metadata.default")),
)
