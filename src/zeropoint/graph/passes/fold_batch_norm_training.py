"""Batch norms in a graph that is trained: those that inference folds, with their factor inside the rounded weight.

`fold_batch_norm` leaves ``layer(x, folded weight, folded bias)``. For training that becomes

    training, momentum = statistics(None, num_batches_tracked)
    weight, bias, factor = fold(training, weight, bias, batch norm ...)
    y = normalize(layer(x, weight, bias), factor, bias, momentum, batch norm ...)

where, as in `zeropoint.nn.intrinsic.qat`, statistics that change let the layer run on ``weight * factor``, divide its
result by the factor again and normalize that by the batch; statistics that stand still give the folded layer.
"""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from zeropoint.graph.passes.fold_batch_norm import Folded
from zeropoint.nn.intrinsic.qat.batch_norm import FollowsBatches
from zeropoint.nn.qat.trained import folded, scaled
from zeropoint.operators.node import arguments, aten_name


class Statistics(FollowsBatches, nn.Module):
    """Whether a batch norm normalizes by the batch, and how much of the batch goes into its running statistics.

    Args:
        momentum: that part; None for the average over all batches.
    """

    def __init__(self, momentum: float | None) -> None:
        super().__init__()
        self.momentum = momentum
        self.freeze_bn = False

    def freeze_bn_stats(self) -> Statistics:
        """Keep the statistics as they are, in training too."""
        self.freeze_bn = True
        return self

    def update_bn_stats(self) -> Statistics:
        """Let the statistics follow the data again, in training."""
        self.freeze_bn = False
        return self

    def forward(self, x: Tensor | None, batches: Tensor | None) -> tuple[bool, float]:
        if not self.training or self.freeze_bn:
            return False, 0.0
        if x is not None and x.numel() == x.shape[1]:
            raise ValueError(f"a batch norm in training needs more than one value for each channel, got {x.shape}")
        if batches is not None:
            batches.add_(1)
        if self.momentum is None:
            return True, 0.0 if batches is None else 1.0 / float(batches)
        return True, self.momentum

    def extra_repr(self) -> str:
        return f"momentum={self.momentum}, freeze_bn={self.freeze_bn}"


def fold(
    training: bool,
    weight: Tensor,
    bias: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    groups: int,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Weight and bias for the layer, and in training the factor that its result is to be divided by."""
    if not training:
        norm = SimpleNamespace(running_mean=mean, running_var=var, eps=eps, weight=gamma, bias=beta)
        return *folded(weight, bias, norm, groups), None
    deviation = torch.sqrt(var + eps)
    factor = deviation.reciprocal() if gamma is None else gamma / deviation
    factor = torch.where(factor == 0, torch.ones_like(factor), factor)  # a batch norm that begins with zero can learn
    return scaled(weight, factor, groups), None, factor


def normalize(
    y: Tensor,
    factor: Tensor | None,
    bias: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> Tensor:
    """What batch norm makes of the layer's result; the result itself if batch norm is in the weight already."""
    if factor is None:
        return y
    channels = [1] * y.dim()
    channels[1] = -1
    y = y / factor.reshape(channels)
    if bias is not None:
        y = y + bias.reshape(channels)
    return F.batch_norm(y, mean, var, gamma, beta, True, momentum, eps)


def transposed(weight: Tensor) -> Tensor:
    """A matrix that the model multiplies with, as the weight of a linear layer."""
    return weight.t()


def train_batch_norms(graph: fx.GraphModule, model: nn.Module) -> None:
    """Let every batch norm of the graph of `model` follow the data in training, the folded ones in their layers."""
    for node in list(graph.graph.nodes):
        if "folded" in node.meta:
            _unfold(graph, model, node, node.meta.pop("folded"))
        elif aten_name(node) == "batch_norm.default":
            _train(graph, model, node)


def _train(graph: fx.GraphModule, model: nn.Module, node: fx.Node) -> None:
    """A batch norm of its own: by the batch in training."""
    a = arguments(node)
    if a["running_mean"] is None or a["training"]:
        return
    mean, origin = str(a["running_mean"].target), node.meta.get("origin")
    training, momentum = _statistics(graph, model, node, origin, a["momentum"], mean, a["input"])
    rest = (a["weight"], a["bias"], a["running_mean"], a["running_var"], training, momentum, a["eps"])
    node.args, node.kwargs = (a["input"], *rest, a["cudnn_enabled"]), {}


def _unfold(graph: fx.GraphModule, model: nn.Module, layer: fx.Node, was: Folded) -> None:
    constants = layer.args[1:3]
    training, momentum = _statistics(graph, model, layer, was.origin, was.momentum, str(was.batch_norm[2]), None)

    def attribute(path: str | None) -> fx.Node | None:
        return None if path is None else graph.graph.get_attr(path)

    with graph.graph.inserting_before(layer):
        weight, bias = attribute(was.transposed or was.weight), attribute(was.bias)
        if was.transposed is not None:
            weight = graph.graph.call_function(transposed, (weight,))
        norm = [attribute(path) for path in was.batch_norm]
        parts = graph.graph.call_function(fold, (training, weight, bias, *norm, was.eps, was.groups))
        new_weight, new_bias, factor = (graph.graph.call_function(operator.getitem, (parts, i)) for i in range(3))
    layer.args = (layer.args[0], new_weight, new_bias, *layer.args[3:])
    with graph.graph.inserting_after(layer):
        normalized = graph.graph.call_function(normalize, (layer, factor, bias, *norm, momentum, was.eps))
    normalized.meta.update({k: layer.meta[k] for k in ("val", "origin") if k in layer.meta})
    layer.replace_all_uses_with(normalized, lambda user: user is not normalized)
    for constant in constants:
        graph.graph.erase_node(constant)
        delattr(graph, str(constant.target))
    if was.transposed is not None:
        delattr(graph, was.weight)


def _statistics(
    graph: fx.GraphModule, model: nn.Module, before: fx.Node, origin: Any, momentum: float, mean: str, x: fx.Node | None
) -> tuple[fx.Node, fx.Node]:
    """Nodes for whether a batch norm is in training and for its momentum, as its module in `model` has it."""
    module: Any = model.get_submodule(origin.path) if origin is not None else None
    known = isinstance(module, nn.modules.batchnorm._BatchNorm)
    made = Statistics(module.momentum if known else momentum)
    if known and model.training and not module.training:
        made.freeze_bn_stats()
    place = mean.rpartition(".")[0]
    counter = f"{place}.num_batches_tracked".removeprefix(".")
    path = f"{place}.statistics".removeprefix(".")
    while _has(graph, path):
        path += "_"
    graph.add_submodule(path, made)
    with graph.graph.inserting_before(before):
        batches = graph.graph.get_attr(counter) if _has(graph, counter) else None
        both = graph.graph.call_module(path, (x, batches))
        training, following = (graph.graph.call_function(operator.getitem, (both, i)) for i in range(2))
    return training, following


def _has(graph: fx.GraphModule, path: str) -> bool:
    value: Any = graph
    for part in path.split("."):
        value = getattr(value, part, None)
        if value is None:
            return False
    return True
