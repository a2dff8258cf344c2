"""The range of each activation, chosen by what it costs the layers that read it.

From one histogram of all values seen: the whole range, the range with the least squared error, that with the least
change of the distribution, two that leave a few values out, and some that end at a part of the largest. None is best
everywhere: large values that a layer's weights look for must not be cut off, others only take steps away. So each range
is tried on the results of the layers that read the value, and the best is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.accuracy.graph_layers import fitting_inputs
from zeropoint.accuracy.layers import MEMORY, Change
from zeropoint.comparison.lockstep import Lockstep
from zeropoint.graph.passes.annotate import Choice, Precision
from zeropoint.graph.passes.equalize import ChannelStatistics
from zeropoint.graph.passes.insert_observers import is_observer
from zeropoint.graph.provenance import origin
from zeropoint.graph.to_int8 import call_of
from zeropoint.graph.workflow import Prepared
from zeropoint.nn.quantized.storage import found_qparams, has_observed
from zeropoint.numerics.distance import decibels
from zeropoint.observers import (
    EntropyObserver,
    FixedQParamsObserver,
    MinMaxObserver,
    MSEObserver,
    PercentileObserver,
    StreamingHistogramObserver,
)
from zeropoint.operators.node import arguments, parameter

_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "all values": (StreamingHistogramObserver, {}),
    "least squared error": (MSEObserver, {}),
    "99.99% of the values": (PercentileObserver, {"percentile": 99.99}),
    "99.9% of the values": (PercentileObserver, {"percentile": 99.9}),
    "least divergence": (EntropyObserver, {}),
}
_PARTS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.25, 0.125, 0.0625)  # of the largest value
_NOW = "unchanged"


def choose_ranges(prepared: Prepared, batches: Iterable[Any], memory: int = MEMORY) -> tuple[Change, ...]:
    """Choose a better range for every activation of a calibrated model, in place.

    Args:
        prepared: a calibrated model from `prepare_graph`.
        batches: all of them are used to count values; as many as fit into `memory` are used to try ranges.
        memory: bytes for the values of all batches at one place.

    Returns:
        A change for each observer, with the SQNR of the layers that read its value (or of the value) for the old and
        the new range.

    Example:
        >>> import zeropoint
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> batches = [torch.randn(16, 4) for _ in range(4)]
        >>> mapping = zeropoint.get_default_qconfig_mapping("native")
        >>> prepared = zeropoint.prepare_graph(model, mapping, (batches[0],))
        >>> _ = [prepared(x) for x in batches]
        >>> all(change.after >= change.before for change in choose_ranges(prepared, batches))
        True
    """
    graph, choices = prepared.graph_module, prepared.choices()
    batches = list(batches)
    if not batches:
        raise ValueError("choose_ranges: batches is empty: pass at least one batch")
    names = dict.fromkeys(str(node.target) for node in graph.graph.nodes if is_observer(node))
    observers = {name: graph.get_submodule(name) for name in names}
    watched = {name: observer for name, observer in observers.items() if _has_a_range(observer)}
    ranges = _candidates(prepared, watched, batches)
    errors = {name: dict.fromkeys(candidates, 0.0) for name, candidates in ranges.items()}
    signal = dict.fromkeys(ranges, 0.0)
    walk = Lockstep(graph, fitting_inputs(graph, batches, memory))
    for node in graph.graph.nodes:
        walk.compute(node)
        if is_observer(node) and str(node.target) in ranges:
            name = str(node.target)
            judge = _Judge(walk, node, choices)
            signal[name] += judge.signal
            for kind, (low, high) in ranges[name].items():
                errors[name][kind] += judge.error(_observer_of(watched[name], low, high))
    return tuple(
        _decide(graph, name, watched[name], ranges[name], errors[name], signal[name])
        for name in ranges
        if math.isfinite(errors[name][_NOW])
    )


def _has_a_range(observer: Any) -> bool:
    plain = not isinstance(observer, (FixedQParamsObserver, ChannelStatistics))
    return plain and hasattr(observer, "min_val") and has_observed(observer) and "per_tensor" in str(observer.qscheme)


def _candidates(prepared: Prepared, watched: dict[str, Any], batches: list[Any]) -> dict[str, dict[str, Any]]:
    """For each observer, ranges by their names: those of one histogram, and its own."""
    graph = prepared.graph_module
    counted = {name: _like(StreamingHistogramObserver, observer) for name, observer in watched.items()}
    try:
        for name, histogram in counted.items():
            setattr(graph, name, histogram)
        with torch.no_grad():
            for batch in batches:
                args, kwargs = call_of(batch)
                prepared(*args, **kwargs)
    finally:
        for name, observer in watched.items():
            setattr(graph, name, observer)
    found: dict[str, dict[str, Any]] = {}
    for name, histogram in counted.items():
        if not has_observed(histogram):
            continue
        found[name] = {_NOW: _range_of(watched[name])}
        for kind, (observer, options) in _KINDS.items():
            made = _like(observer, watched[name], **options)
            for buffer in ("histogram", "min_val", "max_val"):
                setattr(made, buffer, getattr(histogram, buffer))
            found[name][kind] = tuple(float(end) for end in made._kept_range())
        low, high = found[name]["all values"]
        for part in _PARTS:
            largest = part * max(-low, high)
            found[name][f"up to {part:g} of the largest"] = max(low, -largest), min(high, largest)
    return found


def _like(kind: Any, observer: Any, **options: Any) -> Any:
    limits = {"quant_min": observer.quant_min, "quant_max": observer.quant_max}
    return kind(dtype=observer.dtype, qscheme=observer.qscheme, eps=float(observer.eps), **limits, **options)


def _range_of(observer: Any) -> tuple[float, float]:
    """The range that an observer's parameters stand for."""
    kept = observer._kept_range() if hasattr(observer, "_kept_range") else (observer.min_val, observer.max_val)
    return float(kept[0]), float(kept[1])


def _observer_of(like: Any, low: float, high: float) -> MinMaxObserver:
    made: MinMaxObserver = _like(MinMaxObserver, like)
    made(torch.tensor([low, high]))
    return made


class _Judge:
    """What the layers that read an observed value give; for other readers, the value itself."""

    def __init__(self, walk: Lockstep, node: fx.Node, choices: dict[fx.Node, Choice]) -> None:
        self._walk, self._node, self._choices = walk, node, choices
        self._values = [v for v in walk.values[node] if isinstance(v, Tensor)]
        self._wanted = self._results(self._values)
        self.signal = sum(float(y.double().square().sum()) for y in self._wanted)

    def error(self, observer: Any) -> float:
        """The squared error of the results, if the value is rounded as an observer says."""
        scale, zero_point = (float(part) for part in found_qparams(observer))
        low, high = observer.quant_min, observer.quant_max
        rounded = [((x / scale).round().add(zero_point).clamp(low, high) - zero_point) * scale for x in self._values]
        return sum(float((y - w).double().square().sum()) for y, w in zip(self._results(rounded), self._wanted))

    def _results(self, values: list[Tensor]) -> list[Tensor]:
        if len(values) != self._walk.batches:
            return values
        return self._through(self._node, values) or values

    def _through(self, node: fx.Node, values: list[Tensor]) -> list[Tensor]:
        """The results of layers that read a value, by way of operators that hand it on."""
        found: list[Tensor] = []
        for user in node.users:
            choice = self._choices.get(user)
            others = [n for n in user.all_input_nodes if n is not node]
            if choice is None or any(n.op != "get_attr" for n in others):
                continue
            known = {node: values} | {n: [parameter(self._walk.graph, n)] * len(values) for n in others}
            if choice.precision is Precision.PASSED:
                found += self._through(user, self._walk.results(user, known))
            elif is_observer(user):
                found += self._through(user, values)
            elif choice.precision is Precision.STATIC and "weight" in arguments(user):
                results = self._walk.results(user, known)
                found += [y.relu() for y in results] if choice.relu else results
        return found


def _decide(
    graph: fx.GraphModule, name: str, observer: Any, ranges: dict[str, Any], errors: dict[str, float], signal: float
) -> Change:
    best = min(errors, key=lambda kind: (errors[kind], kind != _NOW))
    if best != _NOW:
        setattr(graph, name, _observer_of(observer, *ranges[best]))
    node = next(node for node in graph.graph.nodes if is_observer(node) and node.target == name)
    before, after = (decibels(signal, errors[kind]) for kind in (_NOW, best))
    return Change(name, origin(node).path, "ranges", best, before, after)
