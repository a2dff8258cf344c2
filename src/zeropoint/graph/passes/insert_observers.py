"""Observers into a graph, where a plan wants scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from zeropoint.graph.passes.annotate import Choice, Way
from zeropoint.observers import (
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)
from zeropoint.operators import Output

__all__ = ["OBSERVER", "insert_observers", "is_observer"]

OBSERVER = "activation_post_process_"
_FIXED = {
    Output.UNIT: default_fixed_qparams_range_0to1_observer,
    Output.SYMMETRIC: default_fixed_qparams_range_neg1to1_observer,
}


def is_observer(node: Any) -> bool:
    """Whether a node is a call of one of the observers that `insert_observers` put into its graph."""
    return isinstance(node, fx.Node) and node.op == "call_module" and str(node.target).startswith(OBSERVER)


def insert_observers(
    graph: fx.GraphModule,
    choices: dict[fx.Node, Choice],
    wrap: Callable[[Any], Any] = lambda observer: observer,
    *,
    first: int = 0,
) -> None:
    """Watch every value that needs a scale: inputs of integer operators and their results. A value has one observer.

    Observers are numbered from `first` on.
    """
    observers: dict[fx.Node, fx.Node] = {}
    has_scale: set[fx.Node] = set()
    count = first

    def observe(value: fx.Node, made: Any) -> None:
        nonlocal count
        name = f"{OBSERVER}{count}"
        count += 1
        graph.add_submodule(name, wrap(made))
        users = list(value.users)
        with graph.graph.inserting_after(value):
            node = graph.graph.call_module(name, (value,))
        node.meta.update({k: value.meta[k] for k in ("val", "origin") if k in value.meta})
        for user in users:
            user.replace_input_with(value, node)
        observers[value] = node
        has_scale.add(node)

    by_name = {node.name: node for node in graph.graph.nodes}
    for node in list(graph.graph.nodes):
        choice = choices.get(node)
        if choice is None:
            continue
        if choice.way is Way.STATIC:
            for value in (by_name[name] for name in choice.inputs):
                if value not in observers and value not in has_scale:
                    observe(value, choice.qconfig.activation())
            last = by_name[choice.relu] if choice.relu else node
            if last not in observers and not choice.to_float and choice.result is None:
                fixed = _FIXED.get(choice.operator.output) if choice.operator else None
                observe(last, choice.qconfig.activation() if fixed is None else fixed())
            has_scale.add(last)
        elif choice.way is Way.JOINED and choice.qconfig is not None and choice.result is None:
            observe(node, choice.qconfig.activation())
        elif choice.way in (Way.PASSED, Way.JOINED):
            has_scale.add(node)
    graph.graph.lint()
    graph.recompile()
