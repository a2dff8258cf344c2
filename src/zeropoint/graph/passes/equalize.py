"""Equalization: channels of an activation that are far larger than the others, made smaller before they are rounded.

In a transformer a few channels behind a layer norm are tens of times larger than all others, and leave these only a few
of the 256 steps. A linear layer does not care how its input is split between activation and weight::

    x W' = (x / f) (W * f)'        f: a factor for each channel of x

So channels beyond a limit `t` are divided by ``f = 2 ^ ceil(log2(max |x| / t))``, and the columns of the weights that
read them are multiplied. Powers of two make both exact. The others keep ``f = 1``: to enlarge a channel because it was
quiet in calibration would cut off what it does later.

The limit is the one with the smallest expected squared error of the results, from what calibration saw. With steps `s`
of the activation and `s_j` of output j's weights, rounding errors being even over a step::

    e(t) = s^2 / 12 * sum((W * f)^2)  +  sum_c(mean((x_c / f_c)^2)) * sum_j(s_j^2 / 12)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn

from zeropoint.graph.passes.annotate import Choice, Precision, is_float
from zeropoint.graph.passes.fold_batch_norm import add_parameter
from zeropoint.graph.passes.insert_observers import OBSERVER, is_observer
from zeropoint.graph.provenance import Represented, identity
from zeropoint.observers import MinMaxObserver
from zeropoint.operators.node import arguments, parameter

aten, ours = torch.ops.aten, torch.ops.zeropoint
_STEPS = 255
_LIMITS_TRIED = 24  # from the largest range down, four in each halving
_USUAL = 3  # times the mean range of the channels: no limit below it, as there the next batch may have more


class ChannelStatistics(nn.Module):
    """An observer that keeps range and mean square of each channel (the last axis) beside what its own observer keeps.

    Example:
        >>> watched = ChannelStatistics(MinMaxObserver(), 2)
        >>> _ = watched(torch.tensor([[1.0, -3.0], [2.0, 4.0]]))
        >>> watched.low.tolist(), watched.high.tolist(), watched.mean_square.tolist()
        ([1.0, -3.0], [2.0, 4.0], [2.5, 12.5])
    """

    low: Tensor
    high: Tensor
    mean_square: Tensor
    rows: Tensor

    def __init__(self, post_process: nn.Module, channels: int) -> None:
        super().__init__()
        self.post_process = post_process
        self.register_buffer("low", torch.full((channels,), torch.inf))
        self.register_buffer("high", torch.full((channels,), -torch.inf))
        self.register_buffer("mean_square", torch.zeros(channels))
        self.register_buffer("rows", torch.tensor(0))
        self.chosen: Tensor | None = None  # factors that were searched for (zeropoint.accuracy.scaling)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.detach().reshape(-1, x.shape[-1]).float()
        if rows.shape[0]:
            self.rows += rows.shape[0]
            self.low.copy_(torch.minimum(self.low, rows.amin(0)))
            self.high.copy_(torch.maximum(self.high, rows.amax(0)))
            self.mean_square += (rows.square().mean(0) - self.mean_square) * (rows.shape[0] / int(self.rows))
        return self.post_process(x)

    def sync_statistics(self, group: Any) -> None:
        """Take over what all ranks of a process group saw (`zeropoint.distributed.sync_observers`)."""
        dist.all_reduce(self.low, dist.ReduceOp.MIN, group=group)
        dist.all_reduce(self.high, dist.ReduceOp.MAX, group=group)
        sums = self.mean_square.double() * self.rows
        dist.all_reduce(sums, group=group)
        dist.all_reduce(self.rows, group=group)
        self.mean_square.copy_(sums / self.rows.clamp_min(1))

    def factors(self, weights: list[Tensor]) -> Tensor:
        """What each channel is divided by, for linear layers with these weights ``(outputs, channels)``."""
        if self.chosen is not None:
            return self.chosen
        largest = torch.maximum(self.low.abs(), self.high.abs())
        top, usual = float(largest.max()), _USUAL * float(largest.mean())
        best, least = torch.ones_like(largest), float("inf")
        for k in range(_LIMITS_TRIED):
            limit = top * 2 ** (-k / 4)
            if k > 0 and limit < usual:
                break
            factors = torch.exp2(torch.ceil(torch.log2(largest.clamp_min(limit) / limit)))
            error = self._error(weights, factors)
            if error < least:
                best, least = factors, error
        return best

    def _error(self, weights: list[Tensor], factors: Tensor) -> float:
        low, high = (self.low / factors).min().clamp(max=0), (self.high / factors).max().clamp(min=0)
        step, power = float(high - low) / _STEPS, float((self.mean_square / factors.square()).sum())
        error = 0.0
        for weight in weights:
            scaled = weight * factors
            steps = scaled.abs().amax(1) * 2 / _STEPS
            error += step**2 * float(scaled.square().sum()) + power * float(steps.square().sum())
        return error / 12


def watch_channels(graph: fx.GraphModule, choices: dict[fx.Node, Choice]) -> None:
    """Let the observers of float values that only linear layers want as integers keep statistics of channels, too."""
    for node in graph.graph.nodes:
        if not is_observer(node) or not _is_made_of_floats(node.args[0], choices):
            continue
        readers = integer_readers(node, choices)
        if readers and all(_is_linear(reader, choices) for reader in readers):
            name = str(node.target)
            channels = parameter(graph, arguments(readers[0])["weight"]).shape[1]  # type: ignore[union-attr]
            setattr(graph, name, ChannelStatistics(graph.get_submodule(name), channels))


def equalize(graph: fx.GraphModule, choices: dict[fx.Node, Choice]) -> dict[fx.Node, Choice]:
    """Divide channels where that makes a calibrated graph more accurate; `choices`, with those for the new nodes."""
    choices = dict(choices)
    for node in list(graph.graph.nodes):
        watched = graph.get_submodule(str(node.target)) if is_observer(node) else None
        if not isinstance(watched, ChannelStatistics):
            continue
        setattr(graph, str(node.target), watched.post_process)
        readers = integer_readers(node, choices)
        weights: list[Any] = [parameter(graph, arguments(reader)["weight"]) for reader in readers]
        factors = watched.factors(weights) if watched.rows else torch.ones(1)
        if bool((factors == 1).all()):
            continue
        value = node.args[0]
        for other in [user for user in node.users if user not in readers]:
            other.replace_input_with(node, value)
        inverse = add_parameter(graph, f"{node.target}_channels", 1 / factors, node)
        with graph.graph.inserting_before(node):
            divided = graph.graph.call_function(aten.mul.Tensor, (value, inverse))
        divided.meta.update({k: value.meta[k] for k in ("val", "origin") if k in value.meta})
        node.args = (divided,)
        setattr(graph, str(node.target), _range_of(watched.low / factors, watched.high / factors, watched.post_process))
        for reader, weight in zip(readers, weights):
            path = f"{arguments(reader)['weight'].target}_equalized"
            reader.update_arg(1, add_parameter(graph, path, weight.detach() * factors, reader))
            choices[reader].inputs = (divided.name,)
    graph.graph.lint()
    graph.recompile()
    return choices


def divide_in_quantize(graph: fx.GraphModule) -> None:
    """``quantize_per_tensor(x * inverse)`` as ``quantize_per_channel(x)``: the division costs nothing then."""
    for node in list(graph.graph.nodes):
        if node.target is not ours.quantize_per_tensor.default:
            continue
        divided = node.args[0]
        inverse = divided.args[1] if divided.target is aten.mul.Tensor else None
        if not isinstance(inverse, fx.Node) or inverse.op != "get_attr" or not str(inverse.target).startswith(OBSERVER):
            continue
        scale, zero_point, *limits = node.args[1:]
        scales = torch.tensor(scale, dtype=torch.float32) / parameter(graph, inverse)
        name = str(inverse.target)
        graph.register_buffer(f"{name}_scale", scales)
        graph.register_buffer(f"{name}_zero_point", torch.full(scales.shape, zero_point))
        with graph.graph.inserting_before(node):
            stored = [graph.graph.get_attr(f"{name}_{part}") for part in ("scale", "zero_point")]
            axis = divided.meta["val"].dim() - 1
            made = graph.graph.call_function(
                ours.quantize_per_channel.default, (divided.args[0], *stored, axis, *limits)
            )
        made.meta["origin"] = node.meta.get("origin")
        factors = 1 / parameter(graph, inverse)  # type: ignore[operator]
        made.meta["represented"] = Represented(identity(divided.args[0]), scale, zero_point, limits[-1], factors)
        node.replace_all_uses_with(made)
        for old in (node, divided, inverse):
            graph.graph.erase_node(old)
        delattr(graph, name)
    graph.recompile()


def _range_of(low: Tensor, high: Tensor, like: Any) -> MinMaxObserver:
    made = MinMaxObserver(like.dtype, like.qscheme, quant_min=like.quant_min, quant_max=like.quant_max, eps=like.eps)
    made(torch.stack([low, high]))
    return made


def _is_made_of_floats(value: Any, choices: dict[fx.Node, Choice]) -> bool:
    choice = choices.get(value)
    return is_float(value) and (
        choice is None or choice.precision in (Precision.FLOAT, Precision.DYNAMIC, Precision.HALF)
    )


def integer_readers(observer: fx.Node, choices: dict[fx.Node, Choice]) -> list[fx.Node]:
    """Nodes that take an observed value as integers."""
    integer = (Precision.STATIC, Precision.PASSED, Precision.FUSED)
    return [user for user in observer.users if user in choices and choices[user].precision in integer]


def _is_linear(node: fx.Node, choices: dict[fx.Node, Choice]) -> bool:
    return choices[node].precision is Precision.STATIC and choices[node].operator.name == "linear"
