"""Copies of tensors with some elements written anew or added to, at places that indices or masks name."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.operators.creation import filled
from zeropoint.operators.expressions import Expression, in_dtype
from zeropoint.operators.node import arguments
from zeropoint.operators.record import Operator
from zeropoint.operators.steps import (
    LAST,
    GraphBuilder,
    ProgramStep,
    StepBuilder,
    restores,
    steps,
    with_axis,
    without_axis,
)

aten = torch.ops.aten
_REDUCTIONS = {"add": "add", "sum": "add", "multiply": "multiply", "prod": "multiply", "amax": "maximum"}
_REDUCTIONS |= {"amin": "minimum"}


def _is_tensor(c: StepBuilder, value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(c.found[value], torch.Tensor)


def _values(c: StepBuilder, value: Any, shape: list[Any], dtype: torch.dtype) -> str:
    """A tensor, or a number as large as what is written."""
    if _is_tensor(c, value):
        return in_dtype(c, value, dtype)
    return filled(c, shape, dtype, c.size(value) if isinstance(value, fx.Node) else value)


def _emit_scatter(c: StepBuilder, node: fx.Node) -> str:
    """Along one axis."""
    a, dtype = arguments(node), c.dtype(node)
    mode = "add" if "scatter_add" in str(node.target) else a.get("reduce")
    if a.get("include_self") is False or (mode is not None and mode not in _REDUCTIONS):
        raise c.unsupported(f"with reduce={mode!r} and include_self={a.get('include_self')} it is not supported")
    index = a["index"]
    shape = [c.axis_size(index, axis) for axis in range(c.rank(index))]
    values = _values(c, a["src"] if "src" in a else a["value"], shape, dtype)
    mode = "set" if mode is None else _REDUCTIONS[mode]
    if _is_tensor(c, a.get("src")):
        values = with_axis(c, a["src"], values)
    elif not c.rank(index):
        values = c.add("reshape", values, shape=[1])
    made = c.add("scatter", with_axis(c, a["self"]), with_axis(c, index), values, axis=a["dim"], mode=mode)
    return without_axis(c, made, node)


def _emit_along(c: StepBuilder, node: fx.Node) -> str:
    """Whole slices along one axis."""
    a, dtype, rank = arguments(node), c.dtype(node), c.rank(node)
    name = str(node.target)
    if a.get("alpha", 1) != 1:
        raise c.unsupported("alpha is not 1")
    values = _values(c, a["value"] if "fill" in name else a["source"], [], dtype)
    index, mode = in_dtype(c, a["index"], torch.int64), "add" if "add" in name else "set"
    return c.add("index_put", c.tensor(a["self"]), values, index, mode=mode, axis=a["dim"] % max(rank, 1))


def _emit_index_put(c: StepBuilder, node: fx.Node) -> str:
    a, dtype = arguments(node), c.dtype(node)
    given = list(a["indices"])
    axes = [axis for axis, index in enumerate(given) if index is not None]
    if any(c.dtype(given[axis]) == torch.bool for axis in axes):
        return _emit_masked(c, node, given, axes)
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise c.unsupported("indexed axes must be adjacent")
    indices = [in_dtype(c, given[axis], torch.int64) for axis in axes]
    values, mode = in_dtype(c, a["values"], dtype), "add" if a.get("accumulate") else "set"
    return c.add("index_put", c.tensor(node.args[0]), values, *indices, mode=mode, axis=axes[0])


def _emit_masked(c: StepBuilder, node: fx.Node, given: list[Any], axes: list[int]) -> str:
    """One number where a mask of the first axes says so."""
    a, dtype = arguments(node), c.dtype(node)
    if axes != [0] or c.found[a["values"]].numel() != 1 or a.get("accumulate"):
        raise c.unsupported("the number of values that a mask selects depends on the data: use torch.where")
    mask = str(c.tensor(given[0]))
    for _ in range(c.rank(node) - c.rank(given[0])):
        mask = c.add("unsqueeze", mask, axis=-1)
    e = Expression(c)
    value = c.add("reshape", in_dtype(c, a["values"], dtype), shape=[])
    return e.step(e.call("where", e.tensor(mask, torch.bool), e.tensor(value, dtype), e.term(node.args[0], dtype)))


def _emit_slice_scatter(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    begin, end = (d if a[k] is None else c.size(a[k]) for k, d in (("start", 0), ("end", LAST)))
    end = end if isinstance(end, str) else min(end, LAST)
    values = in_dtype(c, a["src"], c.dtype(node))
    return c.add("slice_scatter", c.tensor(a["self"]), values, axis=a["dim"], begin=begin, end=end, step=a["step"])


def _emit_select_scatter(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    if not isinstance(a["index"], int):
        raise c.unsupported("its index is not a constant")
    values = c.add("unsqueeze", in_dtype(c, a["src"], c.dtype(node)), axis=a["dim"])
    end = a["index"] + 1 or LAST
    size = c.axis_size(a["self"], a["dim"])
    left = c.number("subtract", size, end) if a["index"] >= 0 else c.number("add", size, a["index"])
    c.require(left, f"select_scatter: index {a['index']} is outside of axis {a['dim']}")
    return c.add("slice_scatter", c.tensor(a["self"]), values, axis=a["dim"], begin=a["index"], end=end, step=1)


def _emit_copy(c: StepBuilder, node: fx.Node) -> str:
    """The second tensor with the shape and dtype of the first."""
    x, values = node.args[:2]
    shape = [c.axis_size(x, axis) for axis in range(c.rank(x))]
    return c.add("expand", in_dtype(c, values, c.dtype(node)), shape=shape)


# ------------------------------------------------------------------------------------------------- steps as nodes again


def _restore_scatter(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, (x, index, values) = step.attributes, (r.tensor(name) for name in step.inputs)
    if a["mode"] == "set":
        return r.call(aten.scatter.src, x, a["axis"], index, values)
    if a["mode"] == "add":
        return r.call(aten.scatter_add.default, x, a["axis"], index, values)
    reduce = {"multiply": "prod", "maximum": "amax", "minimum": "amin"}[a["mode"]]
    return r.call(aten.scatter_reduce.two, x, a["axis"], index, values, reduce)


def _restore_slice_scatter(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    """What is written is repeated to the size of the slice, as steps do."""
    a, (x, values) = step.attributes, (r.tensor(name) for name in step.inputs)
    place = [r.size(a[k]) for k in ("axis", "begin", "end", "step")]
    part = r.call(aten.slice.Tensor, x, *place)
    values = values if r.shape(values) == r.shape(part) else r.call(aten.expand_as.default, values, part)
    return r.call(aten.slice_scatter.default, x, values, *place)


def _restore_index_put(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, (x, values, *indices) = step.attributes, (r.tensor(name) for name in step.inputs)
    if a["mode"] not in ("set", "add"):
        raise r.unsupported(f"index_put supports set and add, got {a['mode']!r}")
    return r.call(aten.index_put.default, x, [*[None] * a.get("axis", 0), *indices], values, a["mode"] == "add")


RECORDS = (
    Operator(
        "scatter",
        restores=restores(_restore_scatter, "scatter"),
        steps=steps(
            _emit_scatter, *(f"aten.scatter.{k}" for k in ("src", "value", "reduce", "value_reduce")),
            "aten.scatter_add.default", "aten.scatter_reduce.two",
        ),
    ),
    Operator(
        "index_add",
        steps=steps(
            _emit_along, "aten.index_add.default", "aten.index_copy.default",
            "aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor",
        ),
    ),
    Operator(
        "index_put", steps=steps(_emit_index_put, "aten.index_put.default", "aten._unsafe_index_put.default"),
        restores=restores(_restore_index_put, "index_put"),
    ),
    Operator(
        "slice_scatter", steps=steps(_emit_slice_scatter, "aten.slice_scatter.default"),
        restores=restores(_restore_slice_scatter, "slice_scatter"),
    ),
    Operator("select_scatter", steps=steps(_emit_select_scatter, "aten.select_scatter.default")),
    Operator("copy", steps=steps(_emit_copy, "aten.copy.default")),
)  # fmt: skip
