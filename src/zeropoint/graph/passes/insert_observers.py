"""Observers into a graph, where a plan wants scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import fx

from zeropoint.graph.passes.annotate import Choice, Precision
from zeropoint.observers import (
    FixedQParamsObserver,
    WidenedHistogramObserver,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)
from zeropoint.operators import BY_ATEN, Output
from zeropoint.operators.choice import tensor_arguments
from zeropoint.operators.node import aten_name
from zeropoint.operators.record import Effect

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
    share: bool = True,
) -> None:
    """Watch every value that needs a scale: inputs of integer operators and their results. A value has one observer.

    Args:
        wrap: makes the module that is called in the graph from an observer.
        first: observers are numbered from here on.
        share: give values that are put together, and their result, one observer, so that integers are only copied; and
            let what is cut off, or chosen from, be seen before and after, so that a histogram knows which values are
            left, and that an error in these is an error in the result.
    """
    wanted = _wanted(choices, {node.name: node for node in graph.graph.nodes})
    if share:
        _watch_what_is_left(choices, wanted)
        _share(choices, wanted)
    watch(graph, wanted, wrap, first=first)


def watch(
    graph: fx.GraphModule,
    wanted: Mapping[fx.Node, Any],
    wrap: Callable[[Any], Any] = lambda observer: observer,
    *,
    first: int = 0,
) -> None:
    """Let every reader of these values read what an observer gives, which is a call of a module; see above."""
    names: dict[int, str] = {}
    for value, observer in wanted.items():
        if id(observer) not in names:
            names[id(observer)] = f"{OBSERVER}{first + len(names)}"
            graph.add_submodule(names[id(observer)], wrap(observer))
        users = list(value.users)
        with graph.graph.inserting_after(value):
            node = graph.graph.call_module(names[id(observer)], (value,))
        node.meta.update({k: value.meta[k] for k in ("val", "origin") if k in value.meta})
        for user in users:
            user.replace_input_with(value, node)
    graph.graph.lint()
    graph.recompile()


def _wanted(choices: dict[fx.Node, Choice], by_name: dict[str, fx.Node]) -> dict[fx.Node, Any]:
    """The values that need a scale of their own, each with a new observer."""
    wanted: dict[fx.Node, Any] = {}
    has_scale: set[fx.Node] = set()
    for node in by_name.values():
        choice = choices.get(node)
        if choice is None:
            continue
        if choice.rounded:
            wanted[node] = choice.qconfig.activation()
            has_scale.add(node)
        elif choice.precision is Precision.STATIC:
            for value in (by_name[name] for name in choice.inputs):
                if value not in wanted and value not in has_scale:
                    wanted[value] = _observer(value, choice)
            last = by_name[choice.relu] if choice.relu else node
            if last not in wanted and not choice.to_float and choice.result is None:
                fixed = _FIXED.get(choice.operator.output) if choice.operator else None
                wanted[last] = choice.qconfig.activation() if fixed is None else fixed()
            if not choice.to_float:
                has_scale.add(last)
        elif choice.precision is Precision.JOINED and choice.qconfig is not None and choice.result is None:
            wanted[node] = choice.qconfig.activation()
        elif choice.precision in (Precision.PASSED, Precision.JOINED):
            has_scale.add(node)
    return wanted


def _observer(value: fx.Node, choice: Choice) -> Any:
    """A new observer; one of a parameter sees all its values, so that there are no others to leave room for."""
    new = choice.qconfig.activation
    observer = new()
    is_known = value.op == "get_attr" and isinstance(observer, WidenedHistogramObserver) and hasattr(new, "with_args")
    return new.with_args(many=0)() if is_known else observer


def _watch_what_is_left(choices: dict[fx.Node, Choice], wanted: dict[fx.Node, Any]) -> None:
    for node, choice in choices.items():
        record = BY_ATEN.get(aten_name(node) or "")
        leaves_some = record is not None and record.effect in (Effect.BOUNDS, Effect.CHOOSES)
        if choice.precision is Precision.PASSED and leaves_some and node not in wanted:
            source = _source(node, choices, wanted)
            if source is not None:
                wanted[node] = wanted[source]


def _share(choices: dict[fx.Node, Choice], wanted: dict[fx.Node, Any]) -> None:
    """One observer for all inputs of operators that put them together, and for the result.

    Inputs whose parameters are fixed, or that another kind of observer watches, keep theirs.
    """
    for node, choice in choices.items():
        if (
            choice.precision is not Precision.STATIC
            or choice.operator is None
            or choice.operator.effect is not Effect.JOINS
        ):
            continue
        result = next(user for user in node.users if user.name == choice.relu) if choice.relu else node
        sources = [_source(value, choices, wanted) for value in tensor_arguments(node)]
        shared = wanted[result]
        alike = [wanted[s] for s in sources if s is not None and _are_alike(wanted[s], shared)]
        for value, observer in wanted.items():
            if any(observer is other for other in alike):
                wanted[value] = shared


def _source(node: fx.Node, choices: dict[fx.Node, Choice], wanted: dict[fx.Node, Any]) -> fx.Node | None:
    """The value whose observer gives the scale of a node; None if that is computed from another."""
    at: Any = node
    while at not in wanted:
        choice = choices.get(at)
        if choice is None or choice.precision is not Precision.PASSED or choice.operator is not None:
            return None
        at = at.args[0]
    return at


def _are_alike(observer: Any, other: Any) -> bool:
    """Whether two new observers would find the same, if they saw the same."""
    settings = ("dtype", "qscheme", "quant_min", "quant_max", "reduce_range", "averaging_constant")
    fixed = any(isinstance(o, FixedQParamsObserver) for o in (observer, other))
    return (
        not fixed
        and type(observer) is type(other)
        and all(getattr(observer, name, None) == getattr(other, name, None) for name in settings)
    )
