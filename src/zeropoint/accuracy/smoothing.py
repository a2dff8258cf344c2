"""SmoothQuant for layers with dynamic ranges: divides the channels of an input, and searches how hard for each value.

Such a layer has a scale for each row (linear) or for the whole input (convolution), and a few large channels leave all
others few steps. ``x W' = (x / f) (W * f)'``, so with ``f = max|x|^a / max|W|^(1 - a)`` strength `a` moves what is hard
to round from the activation (a = 0) to the weight (a = 1). Each strength is tried on what the layers get, with both
rounded. The best on some batches is kept if it is better on those that were held out, too.

Layers with ranges of calibration have the same by `search_scaling`, where the division costs nothing. Here it is a
product with a constant in the float graph. Factors are powers of two: in float the model stays the same to the bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.accuracy.cross_layer import replace_parameter
from zeropoint.accuracy.graph_layers import fitting_inputs
from zeropoint.accuracy.layers import MEMORY, Change, held_out
from zeropoint.accuracy.operation import Operation
from zeropoint.comparison.lockstep import Lockstep
from zeropoint.graph.passes.fold_batch_norm import add_parameter
from zeropoint.graph.provenance import STAYS_FLOAT, origin
from zeropoint.numerics.distance import decibels
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import arguments, aten_name, parameter

_LAYERS = ("linear", "conv1d", "conv2d")
_STRENGTHS = tuple(k / 10 for k in range(2, 10))
_ROWS = 1024  # of all batches together, that a linear layer is tried on
_ROW_STEPS, _STEPS = 127, 255  # of what a row has on each side of zero; of a whole input, and of weights
_AS_IT_WAS = "unchanged"
_WHY = "it divides the channels of what a layer will round"


@dataclass(frozen=True)
class _Reader:
    node: fx.Node
    weight: Tensor
    operation: Operation


def smooth_layers(
    graph: fx.GraphModule,
    paths: Collection[str],
    batches: Iterable[Any],
    memory: int = MEMORY,
    *,
    found: dict[Any, Any] | None = None,
) -> tuple[Change, ...]:
    """Divide channels of what the layers at `paths` read, in a float graph, in place.

    Args:
        graph: of `zeropoint.graph.workflow.float_graph`, before it gets observers.
        paths: of the modules of linear layers and convolutions that will take the range of each call.
        batches: to try factors on, as many as fit into `memory`.
        found: the factors of earlier calls, for values that the same layers read; new ones are added.

    Returns:
        A change for each value that they read: SQNR of the layers, before and after, on what was held out.

    Example:
        >>> from torch import nn
        >>> from zeropoint.graph.workflow import float_graph
        >>> _ = torch.manual_seed(0)
        >>> model, x = nn.Sequential(nn.Linear(8, 4)).eval(), torch.randn(64, 8)
        >>> x[:, 0] *= 64  # a channel that is far larger than the others
        >>> model[0].weight.data[:, 0] /= 64
        >>> graph = float_graph(model, (x,))
        >>> [change] = smooth_layers(graph, ["0"], [x, x])
        >>> change.after > change.before, torch.equal(graph(x), model(x))
        (True, True)
    """
    batches, wanted = list(batches), _values(graph, paths)
    if not wanted or not batches:
        return ()
    known = _Factors({} if found is None else found)
    unknown = [value for value, readers in wanted.items() if known.of(value, readers) is None]
    if unknown:
        walk = Lockstep(graph, fitting_inputs(graph, batches, memory), unknown)
        for value in unknown:
            known.add(value, wanted[value], _search(value, wanted[value], walk.until(value)))
    changes = []
    for value, readers in wanted.items():
        result = known.of(value, readers)
        assert result is not None
        factors, change = result
        changes.append(change)
        if bool((factors != 1).any()):
            _divide(graph, value, readers, factors)
    graph.graph.lint()
    graph.recompile()
    return tuple(changes)


class _Factors:
    """The factors of values that were searched, by the layers that read them and their weights."""

    def __init__(self, found: dict[Any, Any]) -> None:
        self._found = found

    def of(self, value: fx.Node, readers: list[_Reader]) -> tuple[Tensor, Change] | None:
        for weights, result in self._found.get(self._key(value, readers), ()):
            if all(map(torch.equal, weights, (reader.weight for reader in readers))):
                return result
        return None

    def add(self, value: fx.Node, readers: list[_Reader], result: tuple[Tensor, Change]) -> None:
        entry = [reader.weight for reader in readers], result
        self._found.setdefault(self._key(value, readers), []).append(entry)

    @staticmethod
    def _key(value: fx.Node, readers: list[_Reader]) -> tuple[str, ...]:
        return value.name, *(reader.node.name for reader in readers)


def _values(graph: fx.GraphModule, paths: Collection[str]) -> dict[fx.Node, list[_Reader]]:
    """The values that layers at `paths` read, in the order of the graph, each with these layers."""
    found: dict[fx.Node, list[_Reader]] = {}
    for node in graph.graph.nodes:
        record = BY_ATEN.get(aten_name(node) or "")
        if record is None or record.name not in _LAYERS or origin(node).path not in paths:
            continue
        a = arguments(node)
        weight, value = parameter(graph, a["weight"]), a["input"]
        if weight is not None and int(a.get("groups", 1)) == 1 and isinstance(value, fx.Node):
            operation = Operation.of_arguments(a, weight.dim() - 2 if "stride" in a else 0, relu=False)
            found.setdefault(value, []).append(_Reader(node, weight.detach(), operation))
    order = {node: place for place, node in enumerate(graph.graph.nodes)}
    alike = {value: readers for value, readers in found.items() if len({r.operation.dims for r in readers}) == 1}
    return dict(sorted(alike.items(), key=lambda item: order[item[0]]))


def _search(value: fx.Node, readers: list[_Reader], given: list[Tensor]) -> tuple[Tensor, Change]:
    """The factors of a value's channels, all 1 if none are better."""
    axis = readers[0].operation.channel_axis
    held = held_out(len(given))
    fitted = _some([x for i, x in enumerate(given) if i not in held], axis)
    judged = _some([x for i, x in enumerate(given) if i in held] or given, axis)
    largest = torch.stack([x.movedim(axis, 0).flatten(1).abs().amax(1) for x in given]).amax(0)
    heaviest = torch.stack([r.weight.movedim(1, 0).flatten(1).abs().amax(1) for r in readers]).amax(0)
    tried = {_AS_IT_WAS: torch.ones_like(largest)}
    tried |= {f"strength {a}": _factors(largest, heaviest, a) for a in _STRENGTHS}
    errors = dict(zip(tried, _errors(readers, fitted, list(tried.values()))[0]))
    best = min(errors, key=lambda name: (errors[name], name != _AS_IT_WAS))
    (before, after), signal = _errors(readers, judged, [tried[_AS_IT_WAS], tried[best]])
    if after >= before:
        best, after = _AS_IT_WAS, before
    at = origin(readers[0].node).path
    return tried[best], Change(value.name, at, "smooth", best, decibels(signal, before), decibels(signal, after))


def _some(values: list[Tensor], axis: int) -> list[Tensor]:
    """All inputs of a convolution; of a linear layer, some rows, taken evenly, as one input."""
    if axis != -1:
        return values
    rows = torch.cat([x.reshape(-1, x.shape[-1]) for x in values])
    return [rows[:: max(1, len(rows) // _ROWS)]]


def _factors(largest: Tensor, heaviest: Tensor, strength: float) -> Tensor:
    """Powers of two; channels without values or without weights stay as they are, and do not count."""
    live = (largest > 0) & (heaviest > 0)
    if not bool(live.any()):
        return torch.ones_like(largest)
    tiny = torch.finfo(torch.float32).tiny
    factors = largest.clamp_min(tiny) ** strength / heaviest.clamp_min(tiny) ** (1 - strength)
    made = torch.exp2(torch.round(torch.log2(factors / factors[live].median())))
    return torch.where(live, made, torch.ones_like(made))


def _errors(readers: list[_Reader], values: list[Tensor], tried: list[Tensor]) -> tuple[list[float], float]:
    """Squared errors of all layers' results for each of some factors, with the divided value and the weights rounded to
    8 bits; and the signal."""
    axis = readers[0].operation.channel_axis
    wanted = [[r.operation(x, r.weight, None) for x in values] for r in readers]
    errors = [0.0] * len(tried)
    for k, factors in enumerate(tried):
        rounded = [_rounded(x / _along(factors, x.dim(), x.dim() + axis), axis) for x in values]
        for reader, right in zip(readers, wanted):
            weight = reader.weight * _along(factors, reader.weight.dim(), 1)
            steps = weight.flatten(1).abs().amax(1).mul(2 / _STEPS).clamp_min(torch.finfo(torch.float32).tiny)
            steps = _along(steps, weight.dim(), 0)
            weight = (weight / steps).round() * steps
            errors[k] += sum(
                float((reader.operation(x, weight, None) - y).square().sum()) for x, y in zip(rounded, right)
            )
    return errors, sum(float(y.square().sum()) for right in wanted for y in right)


def _rounded(x: Tensor, axis: int) -> Tensor:
    """As the layers round it: each row around zero, or for a convolution the whole from its least to its largest."""
    tiny = torch.finfo(torch.float32).tiny
    if axis == -1:
        step = (x.abs().amax(-1, True) / _ROW_STEPS).clamp_min(tiny)
        return (x / step).round() * step
    low = x.min().clamp(max=0)
    step = ((x.max().clamp(min=0) - low) / _STEPS).clamp_min(tiny)
    zero_point = (-low / step).round()
    return ((x / step).round().add(zero_point).clamp(0, _STEPS) - zero_point) * step


def _along(values: Tensor, dims: int, axis: int) -> Tensor:
    return values.reshape([-1 if d == axis else 1 for d in range(dims)])


def _divide(graph: fx.GraphModule, value: fx.Node, readers: list[_Reader], factors: Tensor) -> None:
    first, operation = readers[0].node, readers[0].operation
    shape = (-1, *[1] * operation.dims)
    inverse = add_parameter(graph, f"{value.name}_divided_by", (1 / factors).reshape(shape), first)
    with graph.graph.inserting_before(first):
        divided = graph.graph.call_function(torch.ops.aten.mul.Tensor, (value, inverse))
    divided.meta.update({key: value.meta[key] for key in ("val", "origin") if key in value.meta})
    divided.meta[STAYS_FLOAT] = _WHY
    for reader in readers:
        reader.node.update_arg(0, divided)
        replace_parameter(graph, reader.node, "weight", reader.weight * _along(factors, reader.weight.dim(), 1))
