"""Operators that no record knows, as the operators that PyTorch itself composes them of: losses, ``tensordot``, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.passes.compositions import COMPOSITIONS, FIXING, WITH_WEIGHTS
from zeropoint.graph.passes.insert_traced import take_apart
from zeropoint.graph.passes.nodes import has_value, producers
from zeropoint.operators import BY_ATEN, STEPS
from zeropoint.operators.node import arguments, operator_key, overload_key


def decompose_unknown(
    graph: fx.GraphModule, rewritten: dict[str, Any], write_nothing: Callable[[fx.GraphModule], fx.GraphModule]
) -> bool:
    """Take operators apart that are not known, where all of their parts are; whether any was.

    Known are those with a record or a step, and those that `rewritten` has another spelling for. Parts that write in
    place become others by `write_nothing`.
    """

    def is_known(name: str) -> bool:
        return name in BY_ATEN or name in rewritten or f"aten.{name}" in STEPS

    def is_unknown(node: fx.Node) -> bool:
        name = operator_key(node)
        return name is not None and not name.startswith(("sym_", "_assert", "zeropoint.")) and not is_known(name)

    nodes = [node for node in graph.graph.nodes if (is_unknown(node) or _is_composed(node)) and node.all_input_nodes]
    found = [node for node in nodes if all(map(has_value, (node, *node.all_input_nodes)))]
    if not found:
        return False
    every = internals.decompositions().items()
    table = {op: made for op, made in every if not op._schema.is_mutable and not is_known(overload_key(op))}

    def trace(call: Callable[..., Any], inputs: list[Any]) -> fx.GraphModule | None:
        return known_only(internals.trace_decomposed(call, inputs, table))

    def compose(name: str) -> Callable[..., fx.GraphModule | None]:
        def made(call: Callable[..., Any], inputs: list[Any]) -> fx.GraphModule | None:
            try:
                return known_only(internals.trace_composed(call, inputs, name in FIXING)) or trace(call, inputs)
            except internals.NotComposed:
                return None

        return made

    def known_only(traced: fx.GraphModule | None) -> fx.GraphModule | None:
        try:
            known = traced is not None and not any(map(is_unknown, write_nothing(traced).graph.nodes))
        except Exception:  # it writes to a part of a tensor that it has made: the operator stays as it is
            return None
        return traced if known else None

    taken = False
    for node in found:
        name = operator_key(node) or ""
        if _is_composed(node) and take_apart(graph, node, COMPOSITIONS[name], compose(name)):
            taken = True
        elif is_unknown(node) and (node.target in table or internals.is_composed(node.target)):
            taken |= take_apart(graph, node, table.get(node.target, node.target.decompose), trace)
    return taken


def _is_composed(node: fx.Node) -> bool:
    """Whether a call is one that we compose: of a layer only if its weights depend on the inputs, or it trains."""
    name = operator_key(node)
    if name not in COMPOSITIONS or any(map(_is_complex, (node, *node.all_input_nodes))):
        return False
    if name not in WITH_WEIGHTS or arguments(node).get("training"):
        return True
    return any(producers(value) is None for value in node.all_input_nodes[1:])


def _is_complex(node: fx.Node) -> bool:
    """Whether it gives complex numbers: compositions are of real ones."""
    return any(isinstance(value, Tensor) and value.is_complex() for value in internals.leaves(node.meta.get("val")))
