"""Values that come from either branch of an ``if`` as integers, with one scale for both."""

from __future__ import annotations

from typing import Any

from torch import fx

from zeropoint.graph.passes.annotate import Choice, Precision, State
from zeropoint.graph.provenance import origin
from zeropoint.operators import Output


def join(state: State, node: fx.Node) -> Choice | None:
    """The choice for what an ``if`` gives: integers, if both branches give them and can have the same scale.

    Either both only pass on the same value, or both compute one: then it is watched where the branches meet, so that a
    branch that calibration does not take has a scale too.
    """
    ends = node.meta["ends"]
    values: list[Any] = [end.args[place] for end, place in ends]
    if any(not isinstance(value, fx.Node) or value not in state.quantized for value in values):
        return None
    roots = [_root(state, value) for value in values]
    if all(root is roots[0] for root in roots):
        return Choice(Precision.JOINED, inputs=(roots[0].name,))
    choices = [state.choices[root] for root in roots]
    for root, choice, (end, _) in zip(roots, choices, ends):
        scope = origin(end).scope
        if not _can_share(choice) or origin(root).scope[: len(scope)] != scope:
            return None
    if len({str(choice.qconfig.activation().dtype) for choice in choices}) > 1:
        return None
    for root, choice in zip(roots, choices):
        choice.result = node.name
        for inner in state.choices.values():  # of branches within a branch
            if inner.result == root.name:
                inner.result = node.name
    return Choice(Precision.JOINED, qconfig=choices[0].qconfig)


def _root(state: State, value: fx.Node) -> fx.Node:
    """Where the scale of a value comes from."""
    choice = state.choices[value]
    if choice.precision is Precision.JOINED and choice.inputs:
        return next(node for node in state.choices if node.name == choice.inputs[0])
    if choice.precision is Precision.FUSED or (choice.precision is Precision.PASSED and choice.operator is None):
        source: Any = value.args[0]
        return _root(state, source)
    return value


def _can_share(choice: Choice) -> bool:
    """Whether the scale of a result is its own to choose."""
    if choice.result is not None:
        return False
    if choice.precision is Precision.JOINED:
        return True
    return choice.precision is Precision.STATIC and choice.operator.output is Output.OWN
