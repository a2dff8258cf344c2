"""Converted graphs for capture: scales and zero points as numbers, which torch.export does not read from buffers."""

from __future__ import annotations

import copy
from typing import Any

from torch import fx

from zeropoint.compat.fx.reference import is_dequantize, is_dynamic_quantize, is_quantize


def with_numbers(model: Any) -> fx.GraphModule | None:
    """A copy of a graph on quantized tensors that has numbers where it read scalars from buffers; None of others."""
    is_graph = isinstance(model, fx.GraphModule)
    if not is_graph or not any(map(_is_about_quantized, model.graph.nodes)):
        return None
    made = copy.deepcopy(model)
    for node in list(made.graph.nodes):
        value = getattr(made, str(node.target), None) if node.op == "get_attr" and "." not in str(node.target) else None
        if getattr(value, "ndim", None) == 0 and _is_number(node):
            number = value.item()  # type: ignore[union-attr]
            for user in list(node.users):
                user.args = fx.map_arg(user.args, lambda n: number if n is node else n)  # noqa: B023
                user.kwargs = fx.map_arg(user.kwargs, lambda n: number if n is node else n)  # noqa: B023
            made.graph.erase_node(node)
    made.recompile()
    return made


def _is_about_quantized(node: fx.Node) -> bool:
    return is_quantize(node) or is_dynamic_quantize(node) or is_dequantize(node)


def _is_number(node: fx.Node) -> bool:
    return "_scale_" in str(node.target) or "_zero_point_" in str(node.target)
