"""Layers of two graphs that correspond: both are walked from the results backwards, one layer at a time."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.nn import functional as F

from zeropoint.compat.fx.backends import get_native_backend_config
from zeropoint.compat.fx.patterns import by_length
from zeropoint.compat.numeric_suite.graph.related import base_name_of, related_sets, related_types, unmatchable
from zeropoint.fake_quant import FakeQuantizeBase
from zeropoint.observers import ObserverBase
from zeropoint.operators import layer_records


class GraphMatchingException(Exception):
    """Two graphs do not have the same layers in the same order."""


class Subgraph(NamedTuple):
    """Nodes of a graph that are one layer, in a chain: a layer, its ReLU, the observer of both."""

    start_node: fx.Node
    end_node: fx.Node
    base_op_node: fx.Node


class _Relation(enum.Enum):
    EQUAL = "the same call"
    UNKNOWN = "the same call, which is in no set"
    RELATED = "calls of one set"
    NONE = "calls that have nothing to do with each other"


def called(gm: nn.Module, node: fx.Node) -> Any:
    """What a node calls: a function, the type of a module, or the name of a method."""
    return type(gm.get_submodule(str(node.target))) if node.op == "call_module" else node.target


# -------------------------------------------------------------------------------------------------------------- layers


@functools.cache
def _chains() -> tuple[tuple[tuple[Any, ...], int], ...]:
    """Calls that are one layer, the last first, and the place of the one that counts, from the first."""
    found: list[tuple[tuple[Any, ...], int]] = []
    for pattern in by_length(get_native_backend_config()):
        chain = _flat(pattern)
        if chain is None:
            continue
        if len(chain) > 1:
            found.append((chain, 0))
        found += [((kind, *chain), 0) for kind in (ObserverBase, FakeQuantizeBase)]
    half = (("to", torch.float16), F.relu, F.linear, "dequantize")
    others: list[tuple[tuple[Any, ...], int]] = [(half, 1)]
    convolutions = (record for record in layer_records(transposed=False) if record.name != "linear")
    others += [(f.parts[::-1], 0) for record in convolutions for f in record.fusions if f.folds]
    for chain, base in others:
        found += [(chain, base), ((ObserverBase, *chain), base), ((FakeQuantizeBase, *chain), base)]
    return tuple(sorted(found, key=lambda entry: -len(entry[0])))


def _flat(pattern: Any) -> tuple[Any, ...] | None:
    """A pattern as a chain, the last call first; None for one that branches."""
    if not isinstance(pattern, tuple):
        return (pattern,)
    if len(pattern) == 2 and isinstance(pattern[1], tuple):
        return (pattern[0], *pattern[1]) if len(pattern[1]) == 2 and not isinstance(pattern[1][1], tuple) else None
    return pattern if len(pattern) == 2 else None


def _is_call(gm: nn.Module, node: fx.Node, call: Any) -> bool:
    if node.op == "call_module":
        return isinstance(call, type) and isinstance(gm.get_submodule(str(node.target)), call)
    if node.op == "call_function":
        return not isinstance(call, (str, type, tuple)) and node.target == call
    if node.op == "call_method":
        if isinstance(call, tuple):
            return node.target == call[0] and len(node.args) > 1 and node.args[1] == call[1]
        return isinstance(call, str) and node.target == call
    return False


def _chain_before(gm: nn.Module, end: fx.Node, chain: tuple[Any, ...], seen: set[fx.Node]) -> list[fx.Node] | None:
    """The nodes of a chain that ends here, the last first."""
    nodes: list[fx.Node] = []
    node: Any = end
    for call in chain:
        if not isinstance(node, fx.Node) or node in seen or not _is_call(gm, node, call):
            return None
        nodes.append(node)
        if not node.args or not isinstance(node.args[0], fx.Node):
            return None
        node = node.args[0]
    return nodes


def layers(gm: fx.GraphModule, excluded: dict[str, set[Any]]) -> Iterator[Subgraph]:
    """The layers of a graph, from its results backwards."""
    stack: list[fx.Node] = [node for node in gm.graph.nodes if node.op == "output"]
    seen: set[fx.Node] = set()
    while stack:
        end = stack.pop()
        if end in seen:
            continue
        nodes, base = [end], end
        for chain, place in _chains():
            found = _chain_before(gm, end, chain, seen)
            if found is not None:
                nodes, base = found, found[len(found) - 1 - place]
                break
        seen.update(nodes)
        stack += nodes[-1].all_input_nodes
        if _is_matchable(gm, base, excluded):
            yield Subgraph(nodes[-1], end, base)


def _is_matchable(gm: nn.Module, node: fx.Node, excluded: dict[str, set[Any]]) -> bool:
    if node.op == "call_function":
        return node.target not in excluded["funs_unmatchable"]
    if node.op == "call_module":
        return not isinstance(gm.get_submodule(str(node.target)), tuple(excluded["mods_unmatchable"]))
    return node.op == "call_method" and node.target not in excluded["meths_unmatchable"]


# --------------------------------------------------------------------------------------------------------------- pairs


def _relation(a: Subgraph, gm_a: nn.Module, b: Subgraph, gm_b: nn.Module, related: set[tuple[Any, Any]]) -> _Relation:
    one, other = a.base_op_node, b.base_op_node
    if (one.op == "call_module") != (other.op == "call_module"):
        return _Relation.NONE
    pair = called(gm_a, one), called(gm_b, other)
    if pair not in related:
        return _Relation.UNKNOWN if pair[0] == pair[1] else _Relation.NONE
    is_fused = (a.base_op_node is a.start_node) == (b.base_op_node is b.start_node)
    return _Relation.EQUAL if pair[0] == pair[1] and is_fused else _Relation.RELATED


def matching_subgraphs(
    gm_a: fx.GraphModule,
    gm_b: fx.GraphModule,
    base_name_to_sets_of_related_ops: dict[str, set[Any]] | None = None,
    unmatchable_types_map: dict[str, set[Any]] | None = None,
) -> dict[str, tuple[Subgraph, Subgraph]]:
    """Name -> the layer of each graph, in the order of the graphs.

    Raises:
        GraphMatchingException: if the graphs have other layers, or not as many.
    """
    sets = related_sets() if base_name_to_sets_of_related_ops is None else base_name_to_sets_of_related_ops
    excluded = unmatchable() if unmatchable_types_map is None else unmatchable_types_map
    related = related_types(sets)
    from_a, from_b = layers(gm_a, excluded), layers(gm_b, excluded)
    found: dict[str, tuple[Subgraph, Subgraph]] = {}
    while True:
        a, b = next(from_a, None), next(from_b, None)
        if a is None and b is None:
            return dict(reversed(found.items()))
        if a is None or b is None:
            missing, there = ("first", b) if a is None else ("second", a)
            raise GraphMatchingException(
                f"the graphs do not match: the {missing} graph has no layer for {there} of the other"
            )
        relation = _relation(a, gm_a, b, gm_b, related)
        if relation is _Relation.NONE:
            raise GraphMatchingException(
                f"{a.base_op_node.name}, a call of {called(gm_a, a.base_op_node)}, and {b.base_op_node.name}, one of"
                f" {called(gm_b, b.base_op_node)}, stand at the same place and are not related"
            )
        if relation is not _Relation.UNKNOWN:
            found[_free_name(f"base_op_{base_name_of(sets, called(gm_b, b.base_op_node))}", found)] = (a, b)


def _free_name(base: str, taken: dict[str, Any]) -> str:
    return next(name for i in range(len(taken) + 1) if (name := f"{base}_{i}") not in taken)
