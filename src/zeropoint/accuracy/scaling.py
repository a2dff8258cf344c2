"""How hard large channels are divided before they are rounded, searched for each layer (SmoothQuant, AWQ).

A linear layer does not care how its input is split between activation and weight, ``x W' = (x / f) (W * f)'`` (see
graph/passes/equalize.py). With ``f = max|x|^a / max|W|^(1 - a)``, strength `a` moves what is hard to round from the
activation (a = 0) to the weight (a = 1). Each strength is tried on what the layer gets, with both rounded as they will
be, and the factors with the smallest error of the result are kept: those of the default pass are among them. Factors
are powers of two, which divide exactly, and at least 1: a channel that was quiet in calibration is not enlarged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.accuracy.graph_layers import fitting_inputs
from zeropoint.accuracy.layers import MEMORY, Change
from zeropoint.comparison.lockstep import Lockstep
from zeropoint.graph.passes.equalize import ChannelStatistics, integer_readers
from zeropoint.graph.passes.insert_observers import is_observer
from zeropoint.graph.provenance import origin
from zeropoint.graph.workflow import Prepared
from zeropoint.numerics.distance import decibels
from zeropoint.operators.node import arguments, parameter

_STRENGTHS = tuple(k / 10 for k in range(1, 10))
_STEPS = 255
_ROWS = 2048  # that factors are tried on, of all batches together


def search_scaling(prepared: Prepared, batches: Iterable[Any], memory: int = MEMORY) -> tuple[Change, ...]:
    """Search the best channel scaling for every input of linear layers in a calibrated model, in place.

    Args:
        prepared: a calibrated model from `prepare_graph` with ``equalize_channels=True``.
        batches: data to try factors on; uses as many as fit into `memory`.

    Returns:
        A change for each value, with the SQNR of the layers that read it for the default and the new factors.
    """
    graph, choices = prepared.graph_module, prepared.choices()
    batches = list(batches)
    walk = Lockstep(graph, fitting_inputs(graph, batches, memory))
    changes = []
    for node in graph.graph.nodes:
        walk.compute(node)
        watched = graph.get_submodule(str(node.target)) if is_observer(node) else None
        if not isinstance(watched, ChannelStatistics) or not watched.rows:
            continue
        readers = integer_readers(node, choices)
        weights = [_weight(graph, reader) for reader in readers]
        rows = torch.cat([x.reshape(-1, x.shape[-1]) for x in walk.values[node]]).float()
        default = watched.factors(weights)
        tried = {"unchanged": default, "none": torch.ones_like(default)}
        tried |= {f"strength {a}": _factors(watched, weights, a) for a in _STRENGTHS}
        ends = rows.amin(0), rows.amax(0)
        rows = rows[:: max(1, len(rows) // _ROWS)]
        results = [rows @ weight.mT for weight in weights]
        errors = {name: _error(rows, ends, weights, results, factors) for name, factors in tried.items()}
        best = min(errors, key=lambda name: (errors[name], name != "unchanged"))
        watched.chosen = tried[best]
        signal = sum(float(result.square().sum()) for result in results)
        before, after = decibels(signal, errors["unchanged"]), decibels(signal, errors[best])
        changes.append(Change(str(node.target), origin(node).path, "scaling", best, before, after))
    return tuple(changes)


def _weight(graph: fx.GraphModule, layer: fx.Node) -> Tensor:
    found = parameter(graph, arguments(layer)["weight"])
    assert found is not None
    return found.detach()


def _factors(watched: ChannelStatistics, weights: list[Tensor], strength: float) -> Tensor:
    largest = torch.maximum(watched.low.abs(), watched.high.abs())
    tiny = torch.finfo(torch.float32).tiny
    weight = torch.stack([w.abs().amax(0) for w in weights]).amax(0)
    factors = largest.clamp_min(tiny) ** strength / weight.clamp_min(tiny) ** (1 - strength)
    return torch.exp2(torch.round(torch.log2(factors / factors.median()))).clamp_min(1.0)


def _error(
    rows: Tensor, ends: tuple[Tensor, Tensor], weights: list[Tensor], results: list[Tensor], factors: Tensor
) -> float:
    """The squared error of the layers' results with activation and weights rounded to 8 bits."""
    low, high = (ends[0] / factors).min().clamp(max=0), (ends[1] / factors).max().clamp(min=0)
    step = ((high - low) / _STEPS).clamp_min(torch.finfo(torch.float32).tiny)
    rounded = (rows / factors / step).round() * step
    error = 0.0
    for weight, result in zip(weights, results):
        scaled = weight * factors
        steps = (scaled.abs().amax(1, keepdim=True) * 2 / _STEPS).clamp_min(torch.finfo(torch.float32).tiny)
        error += float((rounded @ ((scaled / steps).round() * steps).mT - result).square().sum())
    return error
