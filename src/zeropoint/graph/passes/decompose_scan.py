"""Running log-sums along an axis of a fixed size: values joined with those 1, 2, 4, ... before them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call, fixed_size

aten = torch.ops.aten
Join = Callable[[fx.Graph, fx.Node, fx.Node, fx.Node], fx.Node]


def _scan(join: Join, neutral: float) -> Any:
    """A scan in as many rounds as the size has binary digits; `neutral` stands where nothing is before a value."""

    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
        value = a["self"].meta.get("val")
        wanted = a.get("dtype")
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or wanted not in (None, torch.float32):
            return None
        size = fixed_size(value.shape[a["dim"]]) if value.dim() else None
        if size is None:
            return None
        axis = a["dim"] % value.dim()
        result, distance = call(graph, node, aten.alias.default, a["self"]), 1
        while distance < size:
            before = call(graph, node, aten.slice.Tensor, result, axis, 0, size - distance)
            pads = [0, 0] * (value.dim() - axis - 1) + [distance, 0]
            before = call(graph, node, aten.constant_pad_nd.default, before, pads, neutral)
            result = join(graph, node, result, before)
            distance *= 2
        return result

    return made


def _log_sum(graph: fx.Graph, node: fx.Node, x: fx.Node, y: fx.Node) -> fx.Node:
    """``log(exp(x) + exp(y))`` as ``max + log1p(exp(-|x - y|))``, where equal infinities are not apart."""
    largest = call(graph, node, aten.maximum.default, x, y)
    apart = call(graph, node, aten.abs.default, call(graph, node, aten.sub.Tensor, x, y))
    apart = call(graph, node, aten.masked_fill.Scalar, apart, call(graph, node, aten.eq.Tensor, x, y), 0.0)
    less = call(graph, node, aten.exp.default, call(graph, node, aten.mul.Tensor, apart, -1.0))
    return call(graph, node, aten.add.Tensor, largest, call(graph, node, aten.log1p.default, less))


SCANS: dict[str, Any] = {
    "logcumsumexp.default": _scan(_log_sum, -math.inf),
}
