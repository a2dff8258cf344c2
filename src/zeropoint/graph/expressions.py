"""Expressions of one tensor: element-wise operators that read it, numbers, and each other.

``x * sigmoid(x)`` and ``x * clamp(x + 3, 0, 6) / 6`` are functions of `x`. Rounded at their end only, they lose nothing
on the way, and in a program they are one table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import aten_name, packet_name, parameter

ARITHMETIC = ("add", "sub", "mul", "div")


def expressions_in(graph: fx.GraphModule) -> set[fx.Node]:
    """The operators of all expressions that would round on the way.

    On integers, sums and products with numbers, bounds and copies change the scale or nothing: they need no expression.
    """
    read: dict[fx.Node, fx.Node] = {}  # the tensor that an expression is of, by each of its operators
    for node in graph.graph.nodes:
        if _is_elementwise(node) and not _is_part_of_layer(node, read):
            sources = {read.get(part, part) for part in _tensors(graph, node)}
            if len(sources) == 1 and _shape(node) == _shape(*sources):
                (read[node],) = sources
    found: set[fx.Node] = set()
    for end in (node for node in read if any(user not in read for user in node.users)):
        parts = before(end, read.__contains__)
        if sum(_roundings(graph, part) for part in parts) > 1:
            found |= parts
    return found


def before(end: fx.Node, is_part: Callable[[fx.Node], bool]) -> set[fx.Node]:
    """The operators of an expression that its end needs, the end among them."""
    found, waiting = {end}, [end]
    while waiting:
        new = {part for part in waiting.pop().all_input_nodes if is_part(part)} - found
        found |= new
        waiting += new
    return found


def _tensors(graph: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    """What an operator reads but for numbers."""
    return [part for part in node.all_input_nodes if not _is_number(graph, part)]


def _roundings(graph: fx.GraphModule, node: fx.Node) -> int:
    """How often an operator rounds on integers, with what it needs to put two values together."""
    record = BY_ATEN.get(aten_name(node) or "")
    if record is not None and record.keeps_scale:
        return 0
    if len(_tensors(graph, node)) > 1:
        return 2
    is_arithmetic = packet_name(node) in ARITHMETIC
    return 0 if is_arithmetic and not any(isinstance(part, fx.Node) for part in node.args[1:]) else 1


def _is_elementwise(node: fx.Node) -> bool:
    is_pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    value = node.meta.get("val")
    return is_pointwise and isinstance(value, Tensor) and value.dtype in (torch.float32, torch.bool)


def _is_part_of_layer(node: fx.Node, read: dict[fx.Node, fx.Node]) -> bool:
    """A ReLU behind a layer or a sum of two tensors, which rounds once anyway."""
    before = node.args[0] if node.args else None
    record = BY_ATEN.get(aten_name(before) or "") if isinstance(before, fx.Node) else None
    return aten_name(node) == "relu.default" and record is not None and record.relu and before not in read


def _is_number(graph: fx.GraphModule, node: Any) -> bool:
    value = parameter(graph, node)
    return value is not None and value.numel() == 1


def _shape(node: fx.Node) -> Any:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, Tensor) else None
