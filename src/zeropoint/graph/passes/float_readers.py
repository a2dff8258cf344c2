"""Values that only float operators read: rounding them costs accuracy and gains nothing.

Sums, products and joined tensors stay in float there. The filters of a spectrum, convolutions of floats whose results
are squared, take a range from each input when they run, and give float32: spectra span many orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import fx

from zeropoint.graph.expressions import ARITHMETIC
from zeropoint.graph.passes.annotate import in_tables, plan
from zeropoint.graph.passes.qconfig_rules import has_own_rule
from zeropoint.graph.provenance import EXPRESSION, FINDS_RANGES, STAYS_FLOAT
from zeropoint.operators.choice import Choice, Precision, is_float, tensor_arguments
from zeropoint.operators.node import only_reads_shape, packet_name
from zeropoint.qconfig_mapping import QConfigMapping

_WHY = "only float operators read it"
_CHEAP = (*ARITHMETIC, "cat")
_Choices = dict[fx.Node, Choice]


def mark_float_readers(graph: fx.GraphModule, mapping: QConfigMapping) -> None:
    """Write at such nodes what becomes of them, but for those that the mapping has a rule of its own for."""
    choices = plan(graph, mapping)
    static = [
        n
        for n, c in choices.items()
        if c.precision is Precision.STATIC and c.relu is None and not has_own_rule(mapping, n)
    ]
    cheap = [node for node in static if choices[node].operator.name in _CHEAP]
    filters = {node for node in static if _is_filter(choices[node])}
    squares = {node for node in graph.graph.nodes if _is_square(node)}

    def leads_to_squares(node: fx.Node, rest: set[fx.Node]) -> bool:
        source = _source(node, choices)
        of_floats = node not in filters or source in rest or not _is_quantized(source, choices)
        return of_floats and all(reader in squares or reader in rest for reader in _readers(node, choices))

    filters &= _largest(
        [node for node in static if node in filters or choices[node].operator.name in _CHEAP], leads_to_squares
    )
    floats = {node for node, choice in choices.items() if choice.precision is Precision.FLOAT} - in_tables(choices)

    def is_read_as_float(node: fx.Node, rest: set[fx.Node]) -> bool:
        return all(r in floats or r in filters or r in rest for r in _readers(node, choices))

    for node in filters:
        node.meta[FINDS_RANGES] = True
    for node in _largest(cheap, is_read_as_float):
        node.meta[STAYS_FLOAT] = _WHY


def _largest(nodes: list[fx.Node], belongs: Callable[[fx.Node, set[fx.Node]], bool]) -> set[fx.Node]:
    """The largest part of some nodes, in the order of the graph, whose members all belong to it, next to the rest."""
    rest, before = set(nodes), -1
    while len(rest) != before:
        before = len(rest)
        for node in reversed(nodes):
            if node in rest and not belongs(node, rest):
                rest.remove(node)
    return rest


def _is_filter(choice: Choice) -> bool:
    return choice.operator.name.startswith("conv") and "transpose" not in choice.operator.name


def _is_square(node: fx.Node) -> bool:
    if EXPRESSION in node.meta:
        return False
    packet = packet_name(node)
    is_power = packet == "pow" and node.args[1] == 2
    return packet in ("square", "linalg_vector_norm") or is_power or (packet == "mul" and node.args[0] is node.args[1])


def _hands_on(node: fx.Node, choices: _Choices) -> bool:
    """Whether a node gives the values that it takes, as reshapes do."""
    is_plain = node not in choices or choices[node].precision is Precision.PASSED
    return node.op == "call_function" and is_plain and is_float(node)


def _readers(node: fx.Node, choices: _Choices) -> Iterator[fx.Node]:
    """What computes with a value, or returns it."""
    for user in node.users:
        if only_reads_shape(user):
            continue
        if _hands_on(user, choices):
            yield from _readers(user, choices)
        else:
            yield user


def _source(node: fx.Node, choices: _Choices) -> fx.Node:
    """What computed the first tensor that a node takes."""
    found = next(tensor_arguments(node))
    while _hands_on(found, choices) and any(tensor_arguments(found)):
        found = next(tensor_arguments(found))
    return found


def _is_quantized(node: fx.Node, choices: _Choices) -> bool:
    return node in choices and choices[node].precision is not Precision.FLOAT
