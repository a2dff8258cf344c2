"""Batch norm into the layer before it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx, nn

from zeropoint.nn.qat.trained import folded
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import arguments, aten_name, parameter

__all__ = ["Folded", "fold_batch_norm"]


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


def fold_batch_norm(graph: fx.GraphModule) -> int:
    """Fold every batch norm that follows a layer and nothing else reads; how many there were."""
    count = 0
    for node in list(graph.graph.nodes):
        if aten_name(node) != "batch_norm.default":
            continue
        a = arguments(node)
        layer: Any = a["input"]
        record = BY_ATEN.get(aten_name(layer) or "")
        if record is None or not record.folds_batch_norm or len(layer.users) != 1:
            continue
        if a["training"] or a["running_mean"] is None or isinstance(arguments(layer).get("padding"), str):
            continue
        if record.name == "linear" and not _has_channels_last(layer):
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
        layer.meta["folded"] = Folded(
            path, _path(la["bias"]), paths, a["eps"], a["momentum"], groups, origin, la["weight"].meta.get("transposed")
        )
        w = add_parameter(graph, path + "_folded", new_weight, layer)
        b = add_parameter(graph, path.removesuffix("weight") + "bias_folded", new_bias, layer)
        layer.args = (layer.args[0], w, b, *layer.args[3:])
        node.replace_all_uses_with(layer)
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
