"""Converted graphs for capture: scales and zero points as numbers, which torch.export does not read from buffers."""

from __future__ import annotations

import copy
from typing import Any

from torch import fx

from zeropoint.fx.reference import is_dequantize, is_dynamic_quantize, is_quantize

__all__ = ["is_converted", "with_numbers"]


def is_converted(model: Any) -> bool:
    """Whether a model is a graph on quantized tensors, as `convert_fx` gives it."""
    return isinstance(model, fx.GraphModule) and any(
        is_quantize(node) or is_dynamic_quantize(node) or is_dequantize(node) for node in model.graph.nodes
    )


def with_numbers(model: fx.GraphModule) -> fx.GraphModule:
    """A copy of a converted graph that has numbers where it read scalars from buffers."""
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


def _is_number(node: fx.Node) -> bool:
    return "_scale_" in str(node.target) or "_zero_point_" in str(node.target)
