"""Batch norm into the layer before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx, nn

from zeropoint.graph.passes.canonicalize import COPIES, SHAPES
from zeropoint.graph.passes.nodes import has_value
from zeropoint.nn.qat.trained import folded
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import arguments, aten_name, parameter


@dataclass(frozen=True)
class Folded:
    """What was folded into a layer, in its ``meta["folded"]``: paths of parameters, and the batch norm's numbers."""

    weight: str
    bias: str | None
    batch_norm: tuple[str | None, ...]  # weight, bias, running_mean, running_var
    eps: float
    momentum: float
    groups: int  # of a transposed convolution, else 0
    origin: Any
    transposed: str | None  # the parameter of the model that `weight` is the transpose of


def add_parameter(graph: fx.GraphModule, like: str, value: torch.Tensor, before: fx.Node) -> fx.Node:
    """A node for a new tensor of the graph, named after `like`."""
    name = like.replace(".", "_")
    while hasattr(graph, name):
        name += "_"
    if value.is_floating_point():
        setattr(graph, name, nn.Parameter(value.detach(), requires_grad=False))
    else:
        graph.register_buffer(name, value)
    with graph.graph.inserting_before(before):
        return graph.graph.get_attr(name)


def fold_batch_norm(graph: fx.GraphModule, *, moved: bool = False) -> int:
    """Fold every batch norm that follows a layer and nothing else reads; how many there were.

    Args:
        moved: those too before which the axes of the layer's result are moved or joined. They cannot be unfolded.
    """
    count = 0
    for node in list(graph.graph.nodes):
        if aten_name(node) != "batch_norm.default":
            continue
        a = arguments(node)
        layer: Any = a["input"]
        if moved and aten_name(layer) in _MOVES:
            layer = _layer_before_moves(layer)
        record = BY_ATEN.get(aten_name(layer) or "")
        if record is None or not record.folds_batch_norm or len(layer.users) != 1:
            continue
        if a["training"] or a["running_mean"] is None or isinstance(arguments(layer).get("padding"), str):
            continue
        is_next = layer is a["input"]
        if record.name == "linear" and is_next and not _has_channels_last(layer):
            continue
        names = ("weight", "bias", "running_mean", "running_var")
        gamma, beta, mean, var = (parameter(graph, a[k]) for k in names)
        la = arguments(layer)
        weight, bias = parameter(graph, la["weight"]), parameter(graph, la["bias"])
        if weight is None or mean is None or var is None or (bias is None) != (la["bias"] is None):
            continue
        norm = SimpleNamespace(running_mean=mean, running_var=var, eps=a["eps"], weight=gamma, bias=beta)
        groups = la["groups"] if record.weight_axis == 1 else 0
        with torch.no_grad():
            new_weight, new_bias = folded(weight, bias, norm, groups)
        path = str(la["weight"].target)
        paths = tuple(_path(a[k]) for k in names)
        origin = node.meta.get("origin")
        if is_next:
            shared = la["weight"].meta.get("transposed")
            layer.meta["folded"] = Folded(
                path, _path(la["bias"]), paths, a["eps"], a["momentum"], groups, origin, shared
            )
        w = add_parameter(graph, path + "_folded", new_weight, layer)
        b = add_parameter(graph, path.removesuffix("weight") + "bias_folded", new_bias, layer)
        layer.args = (layer.args[0], w, b, *layer.args[3:])
        node.replace_all_uses_with(a["input"])
        graph.graph.erase_node(node)
        count += 1
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return count


def _path(node: fx.Node | None) -> str | None:
    return None if node is None else str(node.target)


def _has_channels_last(linear: fx.Node) -> bool:
    """Whether the second axis, which a batch norm normalizes, counts the outputs of a linear layer."""
    value = linear.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.dim() == 2


_MOVES = SHAPES | COPIES | {"transpose.int", "permute.default"}


def _layer_before_moves(node: Any) -> Any:
    """The layer whose output channels are the second axis of what its result becomes by moves; else `node`."""
    at, axis = node, 1
    while aten_name(at) in _MOVES and len(at.users) == 1 and has_value(at) and has_value(at.args[0]):
        found = _axis_before(at, axis)
        if found is None:
            return node
        at, axis = at.args[0], found
    record = BY_ATEN.get(aten_name(at) or "")
    if record is None or not record.folds_batch_norm or not has_value(at):
        return node
    rank, spatial = at.meta["val"].dim(), 0 if record.name == "linear" else int(record.name[-2])
    return at if axis == rank - 1 - spatial else node


def _axis_before(node: fx.Node, axis: int) -> int | None:
    """Which axis of what is moved an axis of the result is; None if none is it alone."""
    before, after = node.args[0].meta["val"].shape, node.meta["val"].shape
    a, rank = arguments(node), len(before)
    if aten_name(node) == "transpose.int":
        first, second = a["dim0"] % rank, a["dim1"] % rank
        return {first: second, second: first}.get(axis, axis)
    if aten_name(node) == "permute.default":
        return a["dims"][axis] % rank
    for place in range(rank):
        # As text: to compare free sizes would bind them.
        if str(before[place]) == str(after[axis]) and _count(before[place + 1 :]) == _count(after[axis + 1 :]):
            return place
    return None


def _count(sizes: Any) -> str:
    return str(math.prod(sizes))
