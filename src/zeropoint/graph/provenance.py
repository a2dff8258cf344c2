"""Where nodes come from: the call of the model that a node was captured from, and which value of the float graph a
node of a quantized graph holds. Both stay with a node from capture to program, and when a graph is copied or saved.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from zeropoint.operators.node import overload_key

ORIGIN, IDENTITY, REPRESENTED = "origin", "identity", "represented"  # keys of a node's meta
KEPT = (ORIGIN, IDENTITY, REPRESENTED)
STAYS_FLOAT = "stays_float"  # key of a node's meta, too: why it is left in float
GIVEN_OUT = "given_out"  # likewise: a layer whose result the model returns, which is not rounded
FINDS_RANGES = "finds_ranges"  # likewise: a layer in a static model that takes a range from each input when it runs
EXPRESSION = "expression"  # likewise: part of an expression of one tensor (graph/expressions.py)


@dataclass(frozen=True)
class Origin:
    """The module that a node came from: its dotted path and its class.

    Attributes:
        scope: the blocks of control flow that the node is in, from the outermost; what is made in one is seen in those
            within it. Graphs of torch.export have none.
        call: the ATen operator that the model called, before passes rewrote it.
        place: how many calls of that operator the module made before.
        module_place: how many modules of its class the module around it called before.
    """

    path: str
    kind: type | None
    scope: tuple[int, ...] = ()
    call: str = field(default="", kw_only=True)
    place: int = field(default=0, kw_only=True)
    module_place: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class Identity:
    """A value of the float graph, by what the model called, so that another capture of the model has it again.

    Attributes:
        path: of the module that made the call; of a parameter, its own.
        call: the ATen operator that was called, "input" or "parameter".
        place: how many calls of that operator the module made before.
        part: which of the nodes it is that passes made of the call.
        position: how many calls stand before it in its graph, by which values of modules that have been renamed are
            found.
        name: what the node was called.
    """

    path: str
    call: str
    place: int = 0
    part: str = ""
    position: int = field(default=-1, compare=False)
    name: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.call in ("input", "parameter"):
            return f"{self.call} {self.name!r}"
        return f"operator {self.name!r}" + (f" in module {self.path!r}" if self.path else "")

    def within(self, part: str) -> Identity:
        """The identity of a part of this value, if a pass takes what computes it apart."""
        return replace(self, part=f"{self.part}[{part}]", name=f"{self.name}[{part}]")


@dataclass(frozen=True)
class Represented:
    """A value of the float graph, with scale and zero point if it is held as integers.

    `factors`: what the channels, along the last axis, were divided by before they were rounded (see equalize.py).
    """

    value: Identity
    scale: float | None = None
    zero_point: int = 0
    dtype: torch.dtype | None = None
    factors: torch.Tensor | None = field(default=None, compare=False)


def origin(node: fx.Node) -> Origin:
    """Where a node came from."""
    return node.meta.get(ORIGIN, Origin("", None))


def represented(node: fx.Node) -> Represented | None:
    """What a node of a quantized graph holds, if it is a value of the float graph."""
    return node.meta.get(REPRESENTED)


def identity(node: fx.Node) -> Identity:
    """Which value of the float graph a node is; nodes that passes added later are known by their names alone."""
    return node.meta.get(IDENTITY, Identity("", "", part=node.name, name=node.name))


def identify(graph: fx.GraphModule) -> None:
    """Give every node of a float graph its identity."""
    counts: Counter[tuple[str, str, int, str]] = Counter()
    position = 0
    for node in graph.graph.nodes:
        at = origin(node)
        known = (at.path, at.call, at.place)
        if node.op == "placeholder":
            known = ("", "input", 0)
        elif node.op == "get_attr":
            known = (str(node.target), "parameter", 0)
        operator = _operator(node)
        key = (*known, operator)
        counts[key] += 1
        node.meta[IDENTITY] = Identity(*known, f"{operator} {counts[key] - 1}", position, node.name)
        position += node.op == "call_function"


def has_identities(graph: fx.GraphModule) -> bool:
    """Whether a graph is a float graph whose nodes have identities, not something that is to be captured first."""
    return any(IDENTITY in node.meta for node in graph.graph.nodes)


def _operator(node: fx.Node) -> str:
    if node.op != "call_function":
        return ""
    target = node.target
    return overload_key(target) if hasattr(target, "_schema") else getattr(target, "__name__", str(target))


class Values:
    """The values of a float graph, to be found by their identities in another capture of its model."""

    def __init__(self, graph: fx.GraphModule) -> None:
        nodes = list(graph.graph.nodes)
        self._nodes = {identity(node): node for node in nodes}
        self._paths = {value.path for value in self._nodes}
        self._positions = {_role(value): node for value, node in self._nodes.items()}

    def find(self, value: Identity) -> fx.Node | None:
        """The node that is `value`.

        If there is no module of that name, it is the node at the same position, if that is the same operator.
        """
        if value in self._nodes:
            return self._nodes[value]
        return None if value.path in self._paths else self._positions.get(_role(value))


def _role(value: Identity) -> tuple[Any, ...]:
    return value.position, value.call, value.part
