"""Layers of a recurrent network that eight bits would spoil, with float16 weights instead: found by trying.

Integers suit most recurrent layers, but not one whose input spans many orders of magnitude, as the power of a sound
does, or whose large weights leave no steps for the small ones. Each layer is run on what it gets in one batch, in float
and in 8 bits; one with more noise than a hundredth of its signal (20 dB) keeps half-precision weights.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph.passes.annotate import Choice, Precision
from zeropoint.graph.provenance import Identity, identity
from zeropoint.nn.quantized.storage import plain_parts, quantize_weight
from zeropoint.numerics.distance import decibels
from zeropoint.operators.node import arguments, parameter
from zeropoint.operators.recurrent import has_ranges_of_rows, reduces_range

aten, ours = torch.ops.aten, torch.ops.zeropoint
_LEAST = 20.0  # decibels
Runs = tuple[tuple[int, int], ...]  # layers that stay together: the first of each run, and the one behind its last


def choose_recurrent_weights(
    graph: fx.GraphModule, choices: dict[fx.Node, Choice], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[fx.Node, Choice], dict[Identity, Runs]]:
    """Try the recurrent layers of a graph that are to be 8 bits on one batch.

    Returns:
        `choices`, changed where they fail, and the runs of layers that these nodes were split into.
    """
    found = [n for n, c in choices.items() if c.precision is Precision.DYNAMIC and c.operator.weights == ("params",)]
    splits: dict[Identity, Runs] = {}
    if not found:
        return choices, splits
    seen = _calls(graph, found, args, kwargs)
    changed = dict(choices)
    for node in found:
        decibels = [] if node not in seen else _decibels(graph, node, choices[node], *seen[node])
        if decibels and min(decibels) < _LEAST:
            del changed[node]
            splits[identity(node)] = runs = _runs([d < _LEAST for d in decibels])
            for layers, (first, end) in zip(split_layers(graph, node, runs), runs):
                changed[layers] = _choice_of_run(choices[node], first, end, min(decibels[first:end]))
    graph.graph.lint()
    graph.recompile()
    return changed, splits


def _choice_of_run(choice: Choice, first: int, end: int, worst: float) -> Choice:
    if worst >= _LEAST:
        return Choice(Precision.DYNAMIC, "", choice.operator, choice.qconfig)
    names = f"layer {first}" if end - first == 1 else f"layers {first} to {end - 1}"
    reason = f"{names}: 8 bits would leave a signal only {worst:.0f} dB above its noise"
    return Choice(Precision.HALF, reason, choice.operator, choice.qconfig)


_OWN = 7  # arguments behind input and states that all recurrent operators have


def _calls(graph: fx.GraphModule, nodes: list[fx.Node], args: Any, kwargs: Any) -> dict[fx.Node, tuple[Any, Any, Any]]:
    """Input, states and batch sizes of each of `nodes` when the graph is run."""
    seen: dict[fx.Node, tuple[Any, Any, Any]] = {}
    targets: dict[fx.Node, Any] = {node: node.target for node in nodes}

    def recording(node: fx.Node) -> Any:
        def call(x: Tensor, hx: Any, *rest: Any) -> Any:
            seen[node] = x, hx, rest[_OWN:]
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


def _decibels(graph: fx.GraphModule, node: fx.Node, choice: Choice, x: Tensor, hx: Any, sizes: Any) -> list[float]:
    """Signal to noise of each layer in 8 bits, on what the layers before it give in float."""
    run: Any = node.target
    a, found = arguments(node), []
    for layer in range(a["num_layers"]):
        params: list[Any] = [parameter(graph, p) for p in _layer_of(a, a["params"], layer)]
        states = [_layer_of(a, h, layer) for h in hx] if isinstance(hx, (list, tuple)) else _layer_of(a, hx, layer)
        with torch.no_grad():
            options = (1, 0.0, False, a["bidirectional"], a["batch_first"])
            y = run(x, states, params, a["has_biases"], *options, *sizes)[0]
            step = 4 if a["has_biases"] else 2
            weights = zip(*(_quantized(w, choice) for i, w in enumerate(params) if i % step < 2))
            biases = [b for i, b in enumerate(params) if i % step >= 2]
            op = getattr(ours, choice.operator.name).input
            ranges = reduces_range(choice), *(sizes or [None]), has_ranges_of_rows(choice)
            tried = op(x, states, *map(list, weights), biases, *options, *ranges)[0]
        noise, signal = float((tried - y).square().sum()), float(y.square().sum())
        found.append(decibels(signal, noise))
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


def split_layers(graph: fx.GraphModule, node: fx.Node, runs: Runs) -> list[fx.Node]:
    """A node for each run of layers in the place of a recurrent network, whose values are named after `node`."""
    a, made = arguments(node), []
    directions, per_layer = (2 if a["bidirectional"] else 1), len(a["params"]) // a["num_layers"]
    x, several = a["input"], isinstance(a["hx"], (list, tuple))

    def call(meant: str, target: Any, *rest: Any) -> fx.Node:
        new = graph.graph.call_function(target, rest)
        new.meta.update(origin=node.meta.get("origin"), identity=identity(node).within(meant))
        return new

    with graph.graph.inserting_before(node):
        for first, end in runs:
            rows, name = (0, first * directions, end * directions), f"{first}:{end}"
            states = enumerate(a["hx"] if several else [a["hx"]])
            parts = [call(f"{name} state {i}", aten.slice.Tensor, h, *rows) for i, h in states]
            params = a["params"][first * per_layer : end * per_layer]
            options = (a["has_biases"], end - first, a["dropout"], a["train"], a["bidirectional"], a["batch_first"])
            sizes = [a["batch_sizes"]] if "batch_sizes" in a else []
            made.append(call(name, node.target, x, parts if several else parts[0], params, *options, *sizes))
            x = call(f"{name} output", operator.getitem, made[-1], 0)
        outputs = [x]
        for i in range(1, 3 if several else 2):
            last = [call(f"{run} last {i}", operator.getitem, m, i) for run, m in enumerate(made)]
            outputs.append(call(f"last {i}", aten.cat.default, last))
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(outputs[user.args[1]])
        graph.graph.erase_node(user)
    graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return made


def _runs(kinds: list[bool]) -> Runs:
    """Where stretches of one kind begin and end."""
    bounds = [0, *(i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]), len(kinds)]
    return tuple(itertools.pairwise(bounds))
