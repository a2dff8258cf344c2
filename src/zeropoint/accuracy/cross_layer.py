"""Cross-layer equalization of whole graphs: ranges that differ from channel to channel are made alike, in float.

With a factor s for each channel between two layers, ``B(f(A(x)))`` is the same for ``A / s`` and ``B * s``, if f scales
with its input: ReLU, leaky ReLU, pools, means, nothing (Nagel et al., 2019, section 4.1). ``s = sqrt(range(A) /
range(B))`` makes both ranges equal, so that one scale for the values between, and one for each weight, lose less.
Depthwise layers are both: the second of one pair, the first of the next; the pairs of a chain are taken again until
nothing moves.

Then biases that are so high that a ReLU never cuts anything off are moved behind it (section 4.1.3): a channel whose
smallest value is c > 0 on the calibration data gets ``bias - c``, and the next layer's bias ``+ W c``.

The pairs of a model of eager mode are given by hand: `zeropoint.accuracy.equalize`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.accuracy.graph_layers import fitting_inputs
from zeropoint.accuracy.layers import MEMORY, Change
from zeropoint.comparison.lockstep import Lockstep
from zeropoint.graph.passes.fold_batch_norm import add_parameter
from zeropoint.graph.provenance import origin
from zeropoint.numerics.distance import decibels
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import arguments, aten_name, packet_name, parameter

_LAYERS = ("conv1d", "conv2d", "conv3d", "linear")
_CUTS = ("relu", "relu_", "dropout", "max_pool1d", "max_pool2d", "max_pool3d")
_SCALES = (*_CUTS, "leaky_relu", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
           "adaptive_avg_pool3d", "mean", "flatten", "view", "reshape", "squeeze")  # fmt: skip
_MERGES = ("flatten", "view", "reshape")
_ROUNDS = 40
_SETTLED = 1e-3  # of a factor: a thousandth of a range is less than a step of 8 bits
_STEPS = 255


@dataclass(frozen=True)
class LayerPair:
    """Two layers, and what is between them. Each channel of the first is `repeat` inputs of the second."""

    first: fx.Node
    second: fx.Node
    between: tuple[fx.Node, ...]
    repeat: int


def layer_pairs(graph: fx.GraphModule) -> tuple[LayerPair, ...]:
    """The pairs of layers of a float graph that can share factors for the channels between them."""
    return tuple(_pairs(graph))


def equalize_layers(graph: fx.GraphModule, batches: Iterable[Any], memory: int = MEMORY) -> tuple[Change, ...]:
    """Equalize the channel ranges of all pairs of layers in a float graph, and absorb high biases, in place. The float
    results change only by rounding errors.

    Args:
        graph: a graph from `zeropoint.graph.workflow.float_graph`, before observers are inserted.
        batches: data to find high biases and to measure; uses as many as fit into `memory`.

    Returns:
        A change for each pair, with the SQNR of the second layer's output with an 8-bit weight and input.
    """
    pairs = layer_pairs(graph)
    batches = list(batches)
    if not pairs or not batches:
        return ()
    inputs = fitting_inputs(graph, batches, memory)
    before, smallest = _measured(graph, pairs, inputs)
    with torch.no_grad():
        factors = _equalize(graph, pairs)
        absorbed = [_absorb(graph, pair, low / f) for pair, low, f in zip(pairs, smallest, factors)]
    graph.recompile()
    after, _ = _measured(graph, pairs, inputs)
    return tuple(
        Change(
            pair.second.name,
            origin(pair.second).path,
            "cross-layer equalization",
            f"{len(f)} channels divided by {float(f.min()):.2g} to {float(f.max()):.2g}"
            + (f", {moved} high biases absorbed" if moved else ""),
            *sqnr,
        )
        for pair, f, moved, *sqnr in zip(pairs, factors, absorbed, before, after)
    )


def _is_layer(graph: fx.GraphModule, node: fx.Node) -> bool:
    record = BY_ATEN.get(aten_name(node) or "")
    if record is None or record.name not in _LAYERS:
        return False
    a = arguments(node)
    return parameter(graph, a["weight"]) is not None and (a["bias"] is None or parameter(graph, a["bias"]) is not None)


def _pairs(graph: fx.GraphModule) -> Iterator[LayerPair]:
    for node in graph.graph.nodes:
        if node.op != "call_function" or not _is_layer(graph, node):
            continue
        at = node
        between: list[fx.Node] = []
        while len(at.users) == 1:
            user = next(iter(at.users))
            if user.op != "call_function" or user.args[:1] != (at,):
                break
            if _is_layer(graph, user):
                repeat = _repeat(graph, node, user, between)
                if repeat:
                    yield LayerPair(node, user, tuple(between), repeat)
                break
            if packet_name(user) not in _SCALES or not _keeps_channels(node, user):
                break
            between.append(user)
            at = user


def _keeps_channels(layer: fx.Node, node: fx.Node) -> bool:
    """Whether a function between two layers does the same to every channel, and leaves each whole."""
    name, given, got = packet_name(node), node.args[0].meta.get("val"), node.meta.get("val")
    if not isinstance(given, Tensor) or not isinstance(got, Tensor):
        return False
    if name in _MERGES:
        rest = 1
        for size in given.shape[2:]:
            rest = rest * size
        merged = given.dim() > 2 and got.dim() == 2 and str(got.shape[1]) == str(given.shape[1] * rest)
        return "stride" in arguments(layer) and (merged or given.shape == got.shape)
    if name in ("mean", "squeeze"):
        dims = node.args[1] if len(node.args) > 1 else None
        axes = [d % given.dim() for d in (dims if isinstance(dims, (list, tuple)) else [dims])] if dims else []
        return "stride" in arguments(layer) and bool(axes) and min(axes) > 1
    return not name.endswith(("pool1d", "pool2d", "pool3d")) or "stride" in arguments(layer)


def _repeat(graph: fx.GraphModule, first: fx.Node, second: fx.Node, between: list[fx.Node]) -> int:
    """How many inputs of the second layer a channel of the first is; 0 if they do not fit."""
    a, b = arguments(first), arguments(second)
    channels = _weight(graph, first).shape[0]
    taken = _weight(graph, second).shape[1] * int(b.get("groups", 1))
    if "stride" in b:
        return int("stride" in a and taken == channels)
    if "stride" not in a:
        return int(taken == channels)
    value = (between[-1] if between else first).meta.get("val")
    flat = isinstance(value, Tensor) and value.dim() == 2
    return taken // channels if flat and taken % channels == 0 else 0


def _weight(graph: fx.GraphModule, node: fx.Node) -> Tensor:
    found = parameter(graph, arguments(node)["weight"])
    assert found is not None
    return found.detach()


def _taken(graph: fx.GraphModule, pair: LayerPair) -> Tensor:
    """The weight of the second layer as ``(channels between, everything that reads one)``."""
    weight, groups = _weight(graph, pair.second), int(arguments(pair.second).get("groups", 1))
    by_input = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1).movedim(2, 1)
    return by_input.reshape(groups * weight.shape[1] // pair.repeat, -1)


def _equalize(graph: fx.GraphModule, pairs: tuple[LayerPair, ...]) -> list[Tensor]:
    """Scale the weights of all pairs until nothing moves; what the channels of each were divided by."""
    total = [torch.ones(_weight(graph, pair.first).shape[0]) for pair in pairs]
    for _ in range(_ROUNDS):
        moved = 0.0
        for k, pair in enumerate(pairs):
            given = _weight(graph, pair.first).flatten(1).abs().amax(1)
            taken = _taken(graph, pair).abs().amax(1)
            alive = (given > 0) & (taken > 0)
            s = torch.sqrt(given / taken).where(alive, torch.ones_like(given))
            _scale(graph, pair, s)
            total[k] = total[k] * s
            moved = max(moved, float((s - 1).abs().max()))
        if moved < _SETTLED:
            break
    return total


def _scale(graph: fx.GraphModule, pair: LayerPair, s: Tensor) -> None:
    first, second = _weight(graph, pair.first), _weight(graph, pair.second)
    bias = parameter(graph, arguments(pair.first)["bias"])
    replace_parameter(graph, pair.first, "weight", first / s.reshape(-1, *[1] * (first.dim() - 1)))
    if bias is not None:
        replace_parameter(graph, pair.first, "bias", bias.detach() / s)
    groups = int(arguments(pair.second).get("groups", 1))
    along = s.repeat_interleave(pair.repeat).reshape(groups, 1, second.shape[1])
    along = along.expand(groups, second.shape[0] // groups, second.shape[1]).reshape(second.shape[:2])
    replace_parameter(
        graph, pair.second, "weight", second * along.reshape(*second.shape[:2], *[1] * (second.dim() - 2))
    )


def _absorb(graph: fx.GraphModule, pair: LayerPair, smallest: Tensor) -> int:
    """Move what a ReLU never cuts off from the bias before it to the bias behind it; how many channels have such."""
    b = arguments(pair.second)
    padding = b.get("padding", 0)
    padded = any(padding) if isinstance(padding, (list, tuple)) else bool(padding)
    cuts = [node for node in pair.between if packet_name(node) in ("relu", "relu_")]
    plain = all(packet_name(node) in (*_CUTS, *_MERGES) for node in pair.between) and len(cuts) == 1
    pools = any("pool" in packet_name(node) and any(arguments(node).get("padding") or ()) for node in pair.between)
    high = smallest.clamp_min(0)
    if padded or pools or not plain or not bool((high > 0).any()):  # padding with zeros is not padding with c
        return 0
    bias = parameter(graph, arguments(pair.first)["bias"])
    if bias is None:
        return 0
    weight, groups = _weight(graph, pair.second), int(b.get("groups", 1))
    by_group = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1).sum(-1)
    moved = high.repeat_interleave(pair.repeat).reshape(groups, 1, -1)
    added = (by_group * moved).sum(-1).reshape(-1)
    second = parameter(graph, b["bias"])
    replace_parameter(graph, pair.first, "bias", bias.detach() - high)
    replace_parameter(graph, pair.second, "bias", added if second is None else second.detach() + added)
    return int((high > 0).sum())


def replace_parameter(graph: fx.GraphModule, node: fx.Node, name: str, value: Tensor) -> None:
    """Give a layer another parameter; the old one may be that of another layer too."""
    old: Any = arguments(node)[name]
    path = f"{node.name}_{name}" if old is None else str(old.target).removesuffix("_equalized")
    made = add_parameter(graph, f"{path}_equalized", value, node)
    names = [argument.name for argument in node.target._schema.arguments]
    place = names.index(name)
    node.args = (*node.args, *[None] * (place + 1 - len(node.args)))
    node.update_arg(place, made)
    if old is not None and not old.users:
        graph.graph.erase_node(old)
        if "_equalized" in str(old.target):
            delattr(graph, str(old.target))


def _measured(
    graph: fx.GraphModule, pairs: tuple[LayerPair, ...], inputs: list[list[Any]]
) -> tuple[list[float], list[Tensor]]:
    """For each pair, SQNR of the second layer with input and weight in 8 bits, and the smallest value of each channel
    that the first gives."""
    walk = Lockstep(graph, inputs)
    second, first = {pair.second: k for k, pair in enumerate(pairs)}, {pair.first: k for k, pair in enumerate(pairs)}
    sqnr, smallest = [0.0] * len(pairs), [torch.empty(0)] * len(pairs)
    for node in list(graph.graph.nodes):
        if node in second:
            sqnr[second[node]] = _sqnr(walk, node)
        walk.compute(node)
        if node in first:
            weight = _weight(graph, node)
            axis = -1 if "stride" not in arguments(node) else 1 - weight.dim()
            lows = [y.movedim(axis, 0).reshape(weight.shape[0], -1).amin(1) for y in walk.values[node]]
            smallest[first[node]] = torch.stack(lows).amin(0)
    return sqnr, smallest


def _sqnr(walk: Lockstep, node: fx.Node) -> float:
    given: Any = node.args[0]
    weight_node: Any = arguments(node)["weight"]
    values, weight = walk.values[given], _weight(walk.graph, node)
    low = min(0.0, *(float(x.min()) for x in values))
    high = max(0.0, *(float(x.max()) for x in values))
    step = max((high - low) / _STEPS, torch.finfo(torch.float32).tiny)
    steps = weight.abs().amax(tuple(range(1, weight.dim())), keepdim=True).mul(2 / _STEPS)
    steps = steps.clamp_min(torch.finfo(torch.float32).tiny)
    rounded = {
        given: [(x / step).round() * step for x in values],
        weight_node: [(weight / steps).round() * steps] * len(values),
    }
    wanted, got = walk.results(node), walk.results(node, rounded)
    noise = sum(float((y - w).double().square().sum()) for y, w in zip(got, wanted))
    return decibels(sum(float(w.double().square().sum()) for w in wanted), noise)
