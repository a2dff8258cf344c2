"""A graph run node by node on several batches at once: at every place, what all batches have there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from zeropoint.comparison.graph_pairs import evaluate
from zeropoint.graph.passes.insert_observers import is_observer


class Lockstep:
    """A graph that is run on several batches at once. A value is dropped when nothing needs it any more.

    Observers of a graph only hand on what they get.
    """

    def __init__(self, graph: fx.GraphModule, inputs: list[list[Any]], kept: Iterable[fx.Node] = ()) -> None:
        self.graph, self.batches = graph, len(inputs)
        self.values: dict[fx.Node, list[Any]] = {}
        self._kept = set(kept)
        self._given = [iter(given) for given in inputs]
        self._left = {node: len(node.users) for node in graph.graph.nodes}
        self._to_come = iter(list(graph.graph.nodes))

    def compute(self, node: fx.Node) -> None:
        """The value of the next node, in every batch."""
        if is_observer(node):
            self.values[node] = self.values[node.args[0]]
        else:
            self.values[node] = self.results(node)
        for used in node.all_input_nodes:
            self._left[used] -= 1
            if self._left[used] == 0 and used not in self._kept:
                del self.values[used]
        if self._left[node] == 0 and node not in self._kept:
            del self.values[node]

    def results(self, node: fx.Node, instead: dict[fx.Node, list[Any]] | None = None) -> list[Any]:
        """What a node gives in every batch, with other values than the computed ones for some nodes."""
        known = self.values if instead is None else {**self.values, **instead}
        with torch.no_grad():
            return [
                evaluate(self.graph, node, {n: known[n][i] for n in node.all_input_nodes}, given)
                for i, given in enumerate(self._given)
            ]

    def until(self, wanted: fx.Node) -> list[Any]:
        """The values of a node that is `kept`, which is not asked for again."""
        while wanted not in self.values:
            self.compute(next(self._to_come))
        self._kept.discard(wanted)
        found = self.values[wanted]
        if self._left[wanted] == 0:
            del self.values[wanted]
        return found

    def held_bytes(self) -> int:
        """Of all values that are held now, those of parameters left out."""
        return sum(
            leaf.numel() * leaf.element_size()
            for node, values in self.values.items()
            if node.op != "get_attr"
            for leaf in pytree.tree_leaves(values)
            if isinstance(leaf, Tensor)
        )


def most_bytes(graph: fx.GraphModule, given: list[Any]) -> int:
    """The most that the values of one batch take at one place."""
    walk, most = Lockstep(graph, [given]), 0
    for node in graph.graph.nodes:
        walk.compute(node)
        most = max(most, walk.held_bytes())
    return most
