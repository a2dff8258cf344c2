"""What a model leaves float32, and tensors that are made from numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from zeropoint.engine.steps.table import dtype_name, row
from zeropoint.graph.fx.plain import arguments

if TYPE_CHECKING:
    from zeropoint.engine.compiler import Compiler


_OPERATIONS = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide"}


@row(*(f"aten.{name}.{kind}" for name in _OPERATIONS for kind in ("Tensor", "Scalar")))
def _float_binary(c: Compiler, node: fx.Node) -> str:
    a, b = node.args[:2]
    if any(isinstance(t, fx.Node) and getattr(c.found[t], "dtype", None) != torch.float32 for t in (a, b)):
        raise c.unsupported("it is a step on float32 only")
    if arguments(node).get("alpha", 1) != 1:
        raise c.unsupported("there is no step for it with alpha")
    operation = _OPERATIONS[str(node.target).split(".")[1]]
    if isinstance(b, fx.Node):
        return c.add("float_binary", c.tensor(a), c.tensor(b), operation=operation)
    return c.add("float_binary", c.tensor(a), operation=operation, number=_finite(c, b))


@row("aten.linalg_vector_norm.default")
def _vector_norm(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    axes = [axis % c.rank(node.args[0]) for axis in a["dim"] or []]
    if a["ord"] != 2 or axes != [c.rank(node.args[0]) - 1] or c.dtype(node) != torch.float32:
        raise c.unsupported("it is a step for norms of order 2 over the last axis of float32 only")
    return c.add("float_norm", c.tensor(node.args[0]), keepdim=bool(a["keepdim"]))


def clamped(c: Compiler, node: fx.Node) -> str:
    """Floats between two bounds, of which one may be missing."""
    a = arguments(node)
    low, high = 0.0 if "relu" in str(node.target) else a.get("min"), a.get("max")
    bounds = {"low": None if low == -math.inf else low, "high": None if high == math.inf else high}
    return c.add(
        "float_clamp", c.tensor(node.args[0]), **{k: _finite(c, v) for k, v in bounds.items() if v is not None}
    )


def _finite(c: Compiler, number: Any) -> float:
    if not isinstance(number, (int, float)) or not math.isfinite(number):
        raise c.unsupported(f"{number} is no finite number")
    return float(number)


@row("aten.zeros.default", "aten.ones.default", "aten.full.default")
def _full(c: Compiler, node: fx.Node) -> str:
    """Mostly the states that a recurrent layer begins with."""
    a = arguments(node)
    value = a["fill_value"] if "fill_value" in a else int("ones" in str(node.target))
    dtype = c.dtype(node)
    value = _finite(c, value) if dtype.is_floating_point else int(value)
    return c.add("full", shape=c.sizes(a["size"]), value=value, dtype=dtype_name(dtype))


@row("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def _arange(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(node) != torch.int64:
        raise c.unsupported(f"it is a step on int64 only, not on {dtype_name(c.dtype(node))}")
    begin, end, step = (c.size(a.get(k, default)) for k, default in (("start", 0), ("end", 0), ("step", 1)))
    return c.add("arange", begin=begin, end=end, step=step)
