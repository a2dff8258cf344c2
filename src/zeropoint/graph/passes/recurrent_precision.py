"""Layers of a recurrent network that eight bits would spoil, with float16 weights instead: found by trying.

Integers suit most recurrent layers, but not one whose input spans many orders of magnitude, as the power of a sound
does, or whose large weights leave no steps for the small ones. Each layer is run on what it gets in one batch, in float
and in 8 bits; one with more noise than a hundredth of its signal (20 dB) keeps half-precision weights.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph.passes.annotate import Choice, Way
from zeropoint.nn.quantized.storage import plain_parts, quantize_weight
from zeropoint.operators.node import arguments, parameter

__all__ = ["choose_recurrent_weights"]

aten, ours = torch.ops.aten, torch.ops.zeropoint
_LEAST = 20.0  # decibels


def choose_recurrent_weights(
    graph: fx.GraphModule, choices: dict[fx.Node, Choice], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[fx.Node, Choice]:
    """Try the recurrent layers of a graph that are to be 8 bits on one batch; `choices`, changed where they fail."""
    found = [n for n, c in choices.items() if c.way is Way.DYNAMIC and c.operator.weights == ("params",)]
    if not found:
        return choices
    seen = _calls(graph, found, args, kwargs)
    changed = dict(choices)
    for node in found:
        decibels = [] if node not in seen else _decibels(graph, node, choices[node], *seen[node])
        if decibels and min(decibels) < _LEAST:
            del changed[node]
            changed.update(_split(graph, node, choices[node], decibels))
    graph.graph.lint()
    graph.recompile()
    return changed


def _calls(graph: fx.GraphModule, nodes: list[fx.Node], args: Any, kwargs: Any) -> dict[fx.Node, tuple[Any, Any]]:
    """Input and states of each of `nodes` when the graph is run."""
    seen: dict[fx.Node, tuple[Any, Any]] = {}
    targets: dict[fx.Node, Any] = {node: node.target for node in nodes}

    def recording(node: fx.Node) -> Any:
        def call(x: Tensor, hx: Any, *rest: Any) -> Any:
            seen[node] = x, hx
            return targets[node](x, hx, *rest)

        return call

    try:
        for node in nodes:
            node.target = recording(node)
        graph.recompile()
        with torch.no_grad():
            graph(*args, **kwargs)
    finally:
        for node, target in targets.items():
            node.target = target
        graph.recompile()
    return seen


def _decibels(graph: fx.GraphModule, node: fx.Node, choice: Choice, x: Tensor, hx: Any) -> list[float]:
    """Signal to noise of each layer in 8 bits, on what the layers before it give in float."""
    run: Any = node.target
    a, found = arguments(node), []
    for layer in range(a["num_layers"]):
        params: list[Any] = [parameter(graph, p) for p in _layer_of(a, a["params"], layer)]
        states = [_layer_of(a, h, layer) for h in hx] if isinstance(hx, (list, tuple)) else _layer_of(a, hx, layer)
        with torch.no_grad():
            options = (1, 0.0, False, a["bidirectional"], a["batch_first"])
            y = run(x, states, params, a["has_biases"], *options)[0]
            step = 4 if a["has_biases"] else 2
            weights = zip(*(_quantized(w, choice) for i, w in enumerate(params) if i % step < 2))
            biases = [b for i, b in enumerate(params) if i % step >= 2]
            tried = getattr(ours, choice.operator.name).input(x, states, *map(list, weights), biases, *options, True)[0]
        noise, signal = float((tried - y).square().sum()), float(y.square().sum())
        found.append(math.inf if noise == 0 else 10 * math.log10(max(signal, 1e-30) / noise))
        x = y
    return found


def _quantized(weight: Tensor, choice: Choice) -> tuple[Tensor, Tensor, Tensor]:
    observer = choice.qconfig.weight()
    observer(weight)
    return plain_parts(quantize_weight(weight, observer))


def _layer_of(a: dict[str, Any], values: Any, layer: int) -> Any:
    """The part of a layer in parameters or states of a whole network."""
    size = (2 if a["bidirectional"] else 1) * (1 if isinstance(values, Tensor) else 4 if a["has_biases"] else 2)
    return values[layer * size : (layer + 1) * size]


def _split(graph: fx.GraphModule, node: fx.Node, choice: Choice, decibels: list[float]) -> dict[fx.Node, Choice]:
    """A node for each run of layers of one kind in the place of `node`, and what is chosen for them."""
    a, made, choices = arguments(node), [], {}
    directions, per_layer = (2 if a["bidirectional"] else 1), len(a["params"]) // a["num_layers"]
    x, several = a["input"], isinstance(a["hx"], (list, tuple))

    def call(target: Any, *rest: Any) -> fx.Node:
        new = graph.graph.call_function(target, rest)
        new.meta["origin"] = node.meta.get("origin")
        return new

    with graph.graph.inserting_before(node):
        for first, end in _runs([d < _LEAST for d in decibels]):
            rows = (0, first * directions, end * directions)
            parts = [call(aten.slice.Tensor, h, *rows) for h in (a["hx"] if several else [a["hx"]])]
            params = a["params"][first * per_layer : end * per_layer]
            options = (a["has_biases"], end - first, a["dropout"], a["train"], a["bidirectional"], a["batch_first"])
            layers = call(node.target, x, parts if several else parts[0], params, *options)
            worst = min(decibels[first:end])
            if worst < _LEAST:
                names = f"layer {first}" if end - first == 1 else f"layers {first} to {end - 1}"
                reason = f"{names}: 8 bits would leave a signal only {worst:.0f} dB above its noise"
                choices[layers] = Choice(Way.HALF, reason, choice.operator, choice.qconfig)
            else:
                choices[layers] = Choice(Way.DYNAMIC, "", choice.operator, choice.qconfig)
            made.append(layers)
            x = call(operator.getitem, layers, 0)
        outputs = [x]
        for i in range(1, 3 if several else 2):
            outputs.append(call(aten.cat.default, [call(operator.getitem, m, i) for m in made]))
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(outputs[user.args[1]])
        graph.graph.erase_node(user)
    graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    return choices


def _runs(kinds: list[bool]) -> list[tuple[int, int]]:
    """Where stretches of one kind begin and end."""
    bounds = [0, *(i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]), len(kinds)]
    return list(itertools.pairwise(bounds))
