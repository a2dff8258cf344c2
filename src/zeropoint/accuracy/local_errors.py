"""What each layer alone adds to the error of a model's output, for all layers at once.

A quantized graph is run with what the float graph has at every place: each of its nodes gets the float values, rounded
where it takes integers, so what it gives differs from the float graph by its own error alone. One run gives the errors
of all layers. What such an error becomes at the output is found by putting the layer's result into the float graph and
computing again only what depends on it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from zeropoint.accuracy.graph_layers import split_alike
from zeropoint.comparison.graph_pairs import evaluate, floats_of
from zeropoint.comparison.lockstep import most_bytes
from zeropoint.comparison.pairs import first_tensor
from zeropoint.graph.provenance import Identity, Represented, Values, represented
from zeropoint.graph.workflow import Quantized


def fits(graph: fx.GraphModule, given: list[Any], memory: int) -> bool:
    """Whether all values of a graph can be held at once, and are the same in every run."""
    if any("_state" in str(node.target) for node in graph.graph.nodes):
        return False
    computed = sum(node.op == "call_function" for node in graph.graph.nodes)
    # Most values are no larger than the largest; a graph that holds few at a time may still have hundreds.
    return most_bytes(graph, given) * max(1, computed // 4) <= memory


class LocalErrors:
    """The errors of the layers of a quantized graph on one batch.

    Args:
        graph: in float, what `quantized` was made of.
        layers: the values that layers give, each with the name of the layer; several may have one name.
        given: the inputs of the graph.
    """

    def __init__(
        self, graph: fx.GraphModule, quantized: Quantized, layers: Mapping[Identity, str], given: list[Any]
    ) -> None:
        self._graph = graph = copy.deepcopy(graph) if quantized.splits else graph
        values = split_alike(graph, quantized)
        with torch.no_grad():
            self._floats = _run(graph, given)
            self._results = self._quantized_results(quantized.graph_module, layers, values, given)

    def _quantized_results(
        self, graph: fx.GraphModule, layers: Mapping[Identity, str], values: Values, given: list[Any]
    ) -> dict[str, list[tuple[fx.Node, Any]]]:
        """What each layer gives for the inputs that it has in float: the float nodes, and what they have instead."""
        found: dict[str, list[tuple[fx.Node, Any]]] = {}
        computed: dict[fx.Node, Any] = {}
        inputs, done = iter(given), set()
        for node in graph.graph.nodes:
            result = evaluate(graph, node, computed, inputs)
            held = represented(node)
            source = values.find(held.value) if held is not None and node.op == "call_function" else None
            if held is not None and source is not None:
                if held.value in layers and source not in done:
                    done.add(source)
                    found.setdefault(layers[held.value], []).append((source, floats_of(result, held)))
                result = _rounded(result, held, self._floats[source])
            computed[node] = result
        return found

    def names(self) -> Iterable[str]:
        """The layers that there are."""
        return self._results.keys()

    def power(self, name: str) -> float:
        """The squared error of what a layer gives."""
        return sum(_distance(result, self._floats[node]) for node, result in self._results[name])

    def at_output(self, name: str) -> float:
        """The squared error of the first output with the error of one layer in it."""
        wanted = first_tensor(self._floats[self._output])
        total = 0.0
        for node, result in self._results[name]:
            got = first_tensor(self._output_with(node, result))
            assert got is not None
            assert wanted is not None
            total += _distance(got, wanted)
        return total

    @property
    def signal(self) -> float:
        """The power of the first output."""
        wanted = first_tensor(self._floats[self._output])
        assert wanted is not None
        return float(wanted.double().square().sum())

    @property
    def _output(self) -> fx.Node:
        return next(node for node in self._graph.graph.nodes if node.op == "output")

    @torch.no_grad()
    def _output_with(self, changed: fx.Node, value: Any) -> Any:
        """The output, with another value for one node: what depends on it is computed again."""
        new = {changed: value}
        for node in self._graph.graph.nodes:
            if node is not changed and any(used in new for used in node.all_input_nodes):
                known = {used: new.get(used, self._floats[used]) for used in node.all_input_nodes}
                new[node] = evaluate(self._graph, node, known)
        return new.get(self._output, self._floats[self._output])


def _run(graph: fx.GraphModule, given: list[Any]) -> dict[fx.Node, Any]:
    values: dict[fx.Node, Any] = {}
    inputs = iter(given)
    for node in graph.graph.nodes:
        values[node] = evaluate(graph, node, values, inputs)
    return values


def _rounded(result: Any, held: Represented, wanted: Any) -> Any:
    """The float value in the form that a quantized graph has it in."""
    if isinstance(result, (list, tuple)):
        return type(result)(_rounded(part, held, right) for part, right in zip(result, wanted))
    if held.scale is None or not isinstance(result, Tensor) or result.is_floating_point():
        return wanted
    limits = torch.iinfo(result.dtype)
    x = wanted if held.factors is None else wanted / held.factors
    return (x / held.scale).round().add(held.zero_point).clamp(limits.min, limits.max).to(result.dtype)


def _distance(got: Any, wanted: Any) -> float:
    pairs = zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted))
    floats = (pair for pair in pairs if isinstance(pair[1], Tensor) and pair[1].is_floating_point())
    return sum(float((a.double() - b.double()).square().sum()) for a, b in floats)
