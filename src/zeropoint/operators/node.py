"""Nodes of graphs: which operator one calls, with which arguments, and what is known of its value."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

_SHAPES = frozenset(("sym_size.int", "size.default", "size.int", "dim.default", "numel.default", "len.Tensor"))


class Unsized:
    """Stands in ``meta["val"]`` for a tensor, or a list of them, of which only the dtype is known."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point


def aten_name(node: object) -> str | None:
    """``conv2d.default`` for a call of ``aten.conv2d.default``, None for other nodes."""
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return None
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return f"{target._schema.name.removeprefix('aten::')}.{target._overloadname or 'default'}"
    return None


def packet_name(node: Any) -> str:
    """The name of an ATen operator without its overload; "" for whatever is none."""
    return (aten_name(node) or "").split(".")[0]


def operator_key(node: object) -> str | None:
    """What `registry.BY_ATEN` knows the operator of a call by: `aten_name`, or ``mine.wave.default``."""
    target = getattr(node, "target", None)
    if isinstance(node, fx.Node) and node.op == "call_function" and isinstance(target, torch._ops.OpOverload):
        return aten_name(node) or overload_key(target)
    return None


def overload_key(overload: Any) -> str:
    """``mine.wave.default`` for ``torch.ops.mine.wave.default``, ``relu.default`` for ATen's own."""
    namespace, name = overload._schema.name.split("::")
    key = f"{name}.{overload._overloadname or 'default'}"
    return key if namespace == "aten" else f"{namespace}.{key}"


def only_reads_shape(node: fx.Node) -> bool:
    """Whether a node asks for sizes and the like, which integers have as well as floats."""
    return aten_name(node) in _SHAPES or "reads_shape" in node.meta


def arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a call of an ATen operator by their names, defaults filled in."""
    schema = node.target._schema
    found = {}
    for i, argument in enumerate(schema.arguments):
        if i < len(node.args):
            found[argument.name] = node.args[i]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value
    return found


def each(value: Any, dims: int) -> list[int]:
    """A number for each dimension, as ATen's operators understand one for all."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * dims if len(values) == 1 else values


def parameter(graph: fx.GraphModule, node: Any) -> torch.Tensor | None:
    """The tensor that a `get_attr` node stands for; None for other nodes."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    value: Any = graph
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value
