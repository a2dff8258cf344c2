"""Signs, which zeros have too, exponents, and extremes that leave out NaN."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call, has_value

aten, ours = torch.ops.aten, torch.ops.zeropoint


def _is_negative(graph: fx.Graph, node: fx.Node, x: fx.Node) -> fx.Node:
    """Whether the bit of the sign is set, of numbers."""
    below = call(graph, node, aten.lt.Scalar, x, 0)
    zero = call(graph, node, aten.eq.Scalar, x, 0)
    inverse = call(graph, node, aten.lt.Scalar, call(graph, node, aten.reciprocal.default, x), 0)
    return call(graph, node, aten.logical_or.default, below, call(graph, node, aten.logical_and.default, zero, inverse))


def _are_floats(*nodes: Any) -> bool:
    return all(isinstance(x, fx.Node) and has_value(x) and x.meta["val"].is_floating_point() for x in nodes)


def _sign_bit(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    return (
        _is_negative(graph, node, a["self"])
        if _are_floats(a["self"])
        else call(graph, node, aten.lt.Scalar, a["self"], 0)
    )


def _mantissa_and_exponent(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``frexp``: two results, which who reads them gets from two calls."""
    if any(user.target is not operator.getitem for user in node.users) or not _are_floats(a["self"]):
        return None
    first = call(graph, node, ours.float_unary.default, a["self"], "mantissa")
    second = call(
        graph, node, aten.to.dtype, call(graph, node, ours.float_unary.default, a["self"], "exponent"), torch.int32
    )
    for user in list(node.users):
        user.replace_all_uses_with((first, second)[user.args[1]])
        graph.erase_node(user)
    return first


def _without_nan(extreme: Any) -> Any:
    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
        """``fmin`` and ``fmax``: of two numbers, of which one is NaN, the other."""
        x, y = a["self"], a["other"]
        if not _are_floats(x, y):
            return None
        found = call(graph, node, extreme, x, y)
        for number, other in ((x, y), (y, x)):
            found = call(graph, node, aten.where.self, call(graph, node, aten.isnan.default, number), other, found)
        return found

    return made


SIGNS: dict[str, Any] = {
    "frexp.Tensor": _mantissa_and_exponent,
    "signbit.default": _sign_bit,
    "fmin.default": _without_nan(aten.minimum.default),
    "fmax.default": _without_nan(aten.maximum.default),
}
