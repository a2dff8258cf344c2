"""The matrices of recurrent layers: each multiplies what its layer gets, or what it gave a step before.

What a matrix gives is not seen outside of its layer. So its rows come from the float layer, run on what the quantized
one gets, and errors are those of the whole node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.accuracy.layers import TunableLayer
from zeropoint.accuracy.operation import Operation
from zeropoint.comparison.lockstep import Lockstep
from zeropoint.comparison.pairs import first_tensor
from zeropoint.graph.provenance import origin
from zeropoint.operators.node import arguments, parameter

_OF_CELL = ("w_ih", "w_hh")


def is_recurrent(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node of a quantized graph is an LSTM, GRU or RNN, or one step of them, with integer weights."""
    if node.op != "call_function" or "zeropoint.quantized_" not in str(node.target):
        return False
    stored = _columns(node)[0]
    found = parameter(graph, stored[0]) if stored else None
    return found is not None and found.dtype == torch.int8


class RecurrentMatrix(TunableLayer):
    """One of the weights of a recurrent node; it multiplies `inputs`, and `wanted` is what the whole node gives."""

    gives_wanted = False

    def __init__(
        self, walk: Lockstep, node: fx.Node, place: int, weight: Tensor, rows: list[Tensor], wanted: list[Tensor]
    ) -> None:
        self._walk, self._node = walk, node
        self._stored, self._scale, self._zero_point = (column[place] for column in _columns(node))
        self.name, self.path = f"{node.name}_{place}", origin(node).path
        self.operation = Operation()
        self.weight, self.inputs, self.wanted = weight.detach().float(), rows, wanted
        self.scale, self.zero_point = (self._numbers(at) for at in (self._scale, self._zero_point))
        integers = self.integers
        self.low, self.high = int(integers.min()), int(integers.max())

    def _numbers(self, at: fx.Node) -> Tensor:
        found = parameter(self._walk.graph, at)
        assert found is not None
        return found.float().reshape(-1, 1)

    @property
    def integers(self) -> Tensor:
        found = parameter(self._walk.graph, self._stored)
        assert found is not None
        return found.to(torch.int32)

    @property
    def bias(self) -> Tensor | None:
        return None

    def store(self, integers: Tensor) -> None:
        value = integers.to(torch.int8)
        self._walk.graph.register_buffer(str(self._stored.target), value)
        self._walk.values[self._stored] = [value] * self._walk.batches

    def store_bias(self, bias: Tensor) -> None:
        raise NotImplementedError("bias correction of recurrent layers is not supported")

    def run(self) -> list[Tensor]:
        return [_first(value) for value in self._walk.results(self._node)]


def recurrent_matrices(
    walk: Lockstep, node: fx.Node, floats: fx.GraphModule, source: fx.Node, wanted: list[Any]
) -> Iterator[RecurrentMatrix]:
    """The matrices of a recurrent node, in the order in which they compute.

    Args:
        walk: the quantized graph, run up to `node`.
        source: the node of the float graph that `node` stands for.
        wanted: what `source` gives in each batch.
    """
    a: dict[str, Any] = arguments(source)
    if _is_cell(node):
        yield from _cell_matrices(walk, node, floats, source, wanted)
        return
    each, directions = (4 if a["has_biases"] else 2), (2 if a["bidirectional"] else 1)
    given: list[Tensor] = list(walk.values[node.args[0]])
    states = _states(walk, node)
    right = [_first(value) for value in wanted]
    place = 0
    for layer in range(a["num_layers"]):
        first = layer * directions
        params = [parameter(floats, p) for p in a["params"][first * each : (first + directions) * each]]
        results = []
        before: list[list[Tensor]] = [[] for _ in range(directions)]
        with torch.no_grad():
            for x, state in zip(given, states):
                own = [s[first : first + directions] for s in state]
                options = (a["has_biases"], 1, 0.0, False, a["bidirectional"], a["batch_first"])
                hx: Any = own if len(own) > 1 else own[0]
                target: Any = source.target
                y = target(x, hx, params, *options)[0]
                results.append(y)
                for direction in range(directions):
                    before[direction].append(
                        _step_before(y, own[0][direction], direction, directions, a["batch_first"])
                    )
        for direction in range(directions):
            weights: list[Any] = params[direction * each : direction * each + 2]
            for weight, rows in zip(weights, (given, before[direction])):
                yield RecurrentMatrix(walk, node, place, weight, rows, right)
                place += 1
        given = results


def _cell_matrices(
    walk: Lockstep, node: fx.Node, floats: fx.GraphModule, source: fx.Node, wanted: list[Any]
) -> Iterator[RecurrentMatrix]:
    """The two matrices of one step: one multiplies its input, the other its hidden state."""
    a, right = arguments(source), [_first(value) for value in wanted]
    rows = list(walk.values[node.args[0]]), [state[0] for state in _states(walk, node)]
    for place, given in enumerate(rows):
        weight = parameter(floats, a[_OF_CELL[place]])
        assert weight is not None
        yield RecurrentMatrix(walk, node, place, weight, given, right)


def _step_before(y: Tensor, initial: Tensor, direction: int, directions: int, batch_first: bool) -> Tensor:
    """What a direction gave a step before each, in the layout of `y`; at its beginning, the initial state."""
    along = y.transpose(0, 1) if batch_first else y  # (time, batch, outputs)
    own = along.chunk(directions, -1)[direction]
    if direction:
        own = own.flip(0)
    rows = torch.cat([initial[None], own[:-1]])
    return rows.transpose(0, 1) if batch_first else rows


def _states(walk: Lockstep, node: fx.Node) -> list[list[Tensor]]:
    """The initial states in each batch: of an LSTM two tensors, else one."""
    hx: Any = node.args[1]
    nodes = hx if isinstance(hx, (list, tuple)) else [hx]
    return [[walk.values[n][i] for n in nodes] for i in range(walk.batches)]


def _is_cell(node: fx.Node) -> bool:
    return "w_ih" in arguments(node)


def _columns(node: fx.Node) -> tuple[Any, Any, Any]:
    """Nodes of all weights of a recurrent node, of their scales and of their zero points; nothing for other nodes."""
    a: dict[str, Any] = arguments(node)
    if "w_ih" in a:
        weights, scales, zero_points = ([a[w + part] for w in _OF_CELL] for part in ("", "_scale", "_zero_point"))
        return weights, scales, zero_points
    return tuple(a.get(name) or [] for name in ("weights", "weight_scales", "weight_zero_points"))  # type: ignore[return-value]


def _first(value: Any) -> Tensor:
    found = first_tensor(value)
    assert found is not None
    return found
