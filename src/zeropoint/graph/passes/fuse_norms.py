"""Norms that a model spells in parts, as one operator each.

``x * rsqrt(mean(x^2) + eps) * weight`` is an RMSNorm, and of ``x - mean(x)`` it is a LayerNorm. One by one, these parts
would be rounded where their values span many orders of magnitude; as one operator, a norm is computed in float.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from zeropoint.graph import torch_internals as internals
from zeropoint.operators.node import arguments, aten_name, packet_name, parameter

aten = torch.ops.aten
_VARIANCES = ("var.dim", "var.correction")


class _Norm(NamedTuple):
    """What a node computes: `source` divided by its root mean square, or its standard deviation if it is `centred`."""

    source: fx.Node
    eps: float
    centred: bool


def fuse_norms(graph: fx.GraphModule) -> int:
    """Put one call in the place of each norm over the last axis, in place; how many."""
    found = 0
    for node in list(graph.graph.nodes):
        norm = _norm(node)
        channels = None if norm is None else _channels(norm.source)
        if norm is not None and channels is not None:
            _replace(graph, node, norm, channels)
            found += 1
    if found:
        graph.graph.eliminate_dead_code()
        graph.recompile()
    return found


def _same(node: Any) -> Any:
    """What a node hands on as it is."""
    while packet_name(node) in ("alias", "detach", "clone", "contiguous") or (
        packet_name(node) == "mul" and node.args[1] == 1
    ):
        node = node.args[0]
    return node


def _norm(node: fx.Node) -> _Norm | None:
    """The norm that a product or a quotient is the last part of."""
    if (
        packet_name(node) not in ("mul", "div")
        or len(node.args) < 2
        or arguments(node).get("rounding_mode") is not None
    ):
        return None
    a, b = (_same(part) for part in node.args[:2])
    pairs = [(a, _under_root(b, "div" if packet_name(node) == "div" else "mul"))]
    if packet_name(node) == "mul":
        pairs.append((b, _under_root(a, "mul")))
    for value, under in pairs:
        if isinstance(value, fx.Node) and under is not None:
            norm = _of_variance(value, under)
            if norm is not None:
                return norm
    return None


def _under_root(node: Any, how: str) -> fx.Node | None:
    """What stands under the root that a value is divided by, or multiplied by the inverse of."""
    packet = packet_name(node)
    if how == "div":
        if packet == "sqrt" or (packet == "pow" and node.args[1] == 0.5):
            return _same(node.args[0])
        return None
    if packet == "rsqrt" or (packet == "pow" and node.args[1] == -0.5):
        return _same(node.args[0])
    if packet == "reciprocal":
        return _under_root(_same(node.args[0]), "div")
    if packet == "div" and node.args[0] == 1:
        return _under_root(_same(node.args[1]), "div")
    return None


def _of_variance(value: fx.Node, under: fx.Node) -> _Norm | None:
    """The norm of `value`, if `under` is its mean square and a number."""
    if packet_name(under) != "add" or isinstance(under.args[1], fx.Node) or arguments(under).get("alpha", 1) != 1:
        return None
    eps, mean = float(under.args[1]), _same(under.args[0])
    centre = _centred(value)
    if aten_name(mean) in _VARIANCES and centre is not None:
        a = arguments(mean)
        biased = a.get("unbiased") is False or a.get("correction") == 0
        is_whole = biased and a["keepdim"] and _is_last(a["dim"], mean.args[0])
        return _Norm(centre, eps, True) if is_whole and _same(mean.args[0]) is centre else None
    square = _averaged(mean)
    base = _squared(square) if square is not None else None
    if base is None or not (base is value or (centre is not None and _centred(base) is centre)):
        return None
    return _Norm(value, eps, False) if centre is None else _Norm(centre, eps, True)


def _averaged(mean: Any) -> fx.Node | None:
    """What a node is the mean of, over the last axis, which stays."""
    if aten_name(mean) != "mean.dim":
        return None
    a = arguments(mean)
    whole = a["keepdim"] and a["dtype"] in (None, torch.float32) and _is_last(a["dim"], mean.args[0])
    return _same(mean.args[0]) if whole else None


def _is_last(dim: Any, node: Any) -> bool:
    value = node.meta.get("val")
    axes = list(dim) if isinstance(dim, (list, tuple)) else [dim]
    return isinstance(value, Tensor) and axes in ([-1], [value.dim() - 1])


def _squared(node: fx.Node) -> Any:
    packet = packet_name(node)
    if packet == "square" or (packet == "pow" and node.args[1] == 2):
        return _same(node.args[0])
    if packet == "mul" and node.args[0] is node.args[1]:
        return _same(node.args[0])
    return None


def _centred(value: fx.Node) -> fx.Node | None:
    """``x`` of ``x - mean(x)``."""
    if aten_name(value) != "sub.Tensor" or arguments(value)["alpha"] != 1:
        return None
    x, mean = (_same(part) for part in value.args[:2])
    return x if isinstance(x, fx.Node) and _averaged(mean) is x else None


def _channels(source: fx.Node) -> int | None:
    """How many values a norm is over, if that is a number and they are float32."""
    value = source.meta.get("val")
    if not isinstance(value, Tensor) or value.dtype != torch.float32 or not value.dim():
        return None
    size = value.shape[-1]
    return None if internals.is_free(size) else int(size)


def _replace(graph: fx.GraphModule, node: fx.Node, norm: _Norm, channels: int) -> None:
    last, weight = _followed(graph, node, "mul.Tensor", channels)
    bias = None
    if norm.centred:
        last, bias = _followed(graph, last, "add.Tensor", channels)
    shape = [channels]
    with graph.graph.inserting_before(last):
        if norm.centred:
            made = graph.graph.call_function(aten.layer_norm.default, (norm.source, shape, weight, bias, norm.eps))
        else:
            made = graph.graph.call_function(aten.rms_norm.default, (norm.source, shape, weight, norm.eps))
    made.meta.update({key: last.meta[key] for key in ("val", "origin") if key in last.meta})
    last.replace_all_uses_with(made)


def _followed(graph: fx.GraphModule, node: fx.Node, name: str, channels: int) -> tuple[fx.Node, fx.Node | None]:
    """The product or sum with a parameter for each channel that alone reads a node, and that; or the node itself."""
    last = node
    while len(last.users) == 1 and _same(user := next(iter(last.users))) is node and user is not node:
        last = user
    user = next(iter(last.users)) if len(last.users) == 1 else None
    if user is None or aten_name(user) != name or arguments(user).get("alpha", 1) != 1:
        return node, None
    other = user.args[1] if user.args[0] is last else user.args[0]
    value = parameter(graph, other)
    if value is None or tuple(value.shape) != (channels,) or value.dtype != torch.float32:
        return node, None
    return user, other
