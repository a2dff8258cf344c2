"""Which nodes of a graph become integers, and why the others do not."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from zeropoint.graph.expressions import before
from zeropoint.graph.passes.nodes import fixed_size, has_value
from zeropoint.graph.passes.qconfig_rules import qconfig_of, stays_float
from zeropoint.graph.provenance import EXPRESSION, FINDS_RANGES, GIVEN_OUT, STAYS_FLOAT
from zeropoint.operators import BY_ATEN, Operator
from zeropoint.operators.choice import Choice, Precision, State, is_float, is_static, tensor_arguments
from zeropoint.operators.embedding import PADDED, bags_alone, table_bits
from zeropoint.operators.node import arguments, aten_name, operator_key
from zeropoint.qconfig import QConfig, default_dynamic_qconfig
from zeropoint.qconfig_mapping import QConfigMapping

__all__ = [
    "PADDED",
    "Choice",
    "State",
    "Precision",
    "choose",
    "in_tables",
    "is_float",
    "is_static",
    "operator_name",
    "plan",
    "skip_rounding",
    "table_bits",
    "watched",
]

WRITTEN = "it reads or returns a tensor that is modified in place"


def plan(
    graph: fx.GraphModule,
    mapping: QConfigMapping,
    *,
    alone: bool = False,
    join: Callable[[State, fx.Node], Choice | None] | None = None,
) -> dict[fx.Node, Choice]:
    """A choice for every node that computes something.

    Args:
        alone: quantize functions with parameters of their own (norms, hardswish, ...) even if their inputs are float.
        join: the choice for a value that comes from one of two branches.
    """
    state = State(graph, mapping, alone)
    for node in graph.graph.nodes:
        if node.op == "call_function" and node not in state.choices:
            choice = join(state, node) if join is not None and "ends" in node.meta else choose(state, node)
            if choice is None:
                continue
            state.choices[node] = choice
            choice.to_float = GIVEN_OUT in node.meta and choice.precision is Precision.STATIC and choice.relu is None
            if choice.to_float:
                continue
            if (
                choice.precision in (Precision.STATIC, Precision.PASSED, Precision.JOINED) or choice.rounded
            ) and is_float(node):
                state.quantized.add(node)
            if choice.relu is not None:
                relu = next(user for user in node.users if user.name == choice.relu)
                state.choices[relu] = Choice(Precision.FUSED)
                if choice.precision is Precision.STATIC:
                    state.quantized.add(relu)
    return state.choices


def watched(node: fx.Node, choices: dict[fx.Node, Choice], by_name: dict[str, fx.Node]) -> fx.Node:
    """The value whose observer gives the scale of a node's result: itself, its ReLU, or one where branches meet."""
    choice = choices.get(node)
    if choice is None:
        return node
    if choice.result is not None:
        return watched(by_name[choice.result], choices, by_name)
    return by_name[choice.relu] if choice.relu else node


def skip_rounding(choices: dict[fx.Node, Choice]) -> None:
    """Let linear layers between float operators hand on float32: rounding their results would only cost accuracy.

    Those whose results a model returns do so already, if a policy says so.
    """
    tabled = in_tables(choices)
    for node, choice in choices.items():
        is_linear = choice.precision is Precision.STATIC and choice.relu is None and choice.operator.name == "linear"
        if is_linear and node.users and not choice.to_float:
            read_by = [None if user in tabled else choices.get(user) for user in node.users]
            choice.to_float = all(c is not None and c.precision is Precision.FLOAT for c in read_by)


def in_tables(choices: dict[fx.Node, Choice]) -> set[fx.Node]:
    """What belongs to expressions of quantized tensors, which are tables in programs."""
    ends = (node for node, choice in choices.items() if choice.rounded)
    return set().union(*(before(end, lambda part: EXPRESSION in part.meta) for end in ends))


def choose(state: State, node: fx.Node) -> Choice | None:
    """The choice for one node, from those before it; None if it computes nothing."""
    name = operator_key(node)
    if node.target is operator.getitem:
        of_bags = state.choices.get(node.args[0])
        bags = of_bags is not None and of_bags.operator is not None and of_bags.operator.name == "embedding_bag"
        if bags and bags_alone(node.args[0]):
            return Choice(Precision.FUSED)
        return Choice(Precision.PASSED) if node.args[0] in state.quantized else None
    if name is None:
        return None
    found = BY_ATEN.get(name)
    if EXPRESSION in node.meta and _is_of_integers(state, node):
        return _in_expression(state, node, found)
    if found is not None and found.keeps_scale:
        return _keep_scale(state, node, found)
    if name.startswith("zeropoint.read_state"):  # computes nothing
        return None
    if found is None or found.annotate is None:
        computes = is_float(node) and any(is_float(t) for t in tensor_arguments(node))
        return Choice(Precision.FLOAT, "no recipe") if computes else None
    qconfig = _qconfig(state, node, found)
    if qconfig is None:
        return Choice(Precision.FLOAT, "qconfig None", found)
    if STAYS_FLOAT in node.meta:
        return Choice(Precision.FLOAT, node.meta[STAYS_FLOAT], found)
    if FINDS_RANGES in node.meta:
        qconfig = QConfig(default_dynamic_qconfig.activation, qconfig.weight)
    if any("written" in part.meta for part in (node, *node.all_input_nodes)):
        return Choice(Precision.FLOAT, WRITTEN, found)
    if any(has_value(t) and 0 in map(fixed_size, t.meta["val"].shape) for t in tensor_arguments(node)):
        return Choice(Precision.FLOAT, "it takes a tensor without elements, which has no range", found)
    choice = found.annotate(state, node, found, qconfig)
    other = _other_floats(node, choice.precision)
    if other is not None:
        return Choice(Precision.FLOAT, f"it runs in {other}: call model.float() first", found)
    return choice


def _is_of_integers(state: State, node: fx.Node) -> bool:
    """Whether all that a part of an expression reads comes from a quantized tensor."""
    tensors = [t for t in tensor_arguments(node) if t.op != "get_attr"]
    return all(t in state.quantized or t in state.tabled for t in tensors)


def _in_expression(state: State, node: fx.Node, found: Operator | None) -> Choice | None:
    """Float32; the end of an expression gets a scale, if an operator on integers may read it. None for comparisons."""
    state.tabled.add(node)
    if not is_float(node):
        return None
    qconfig = qconfig_of(state.mapping, node, () if found is None else found.object_types)
    if qconfig is None or not is_static(qconfig.activation()):
        return Choice(Precision.FLOAT, "qconfig None" if qconfig is None else "no dynamic version", found)
    read_by = [BY_ATEN.get(operator_key(user) or "") for user in node.users if EXPRESSION not in user.meta]
    rounded = any(r is not None and (r.keeps_scale or r.annotate is not None) for r in read_by)
    return Choice(Precision.FLOAT, _IN_EXPRESSION, found, qconfig, rounded=rounded)


_IN_EXPRESSION = "part of a function of one tensor, which is rounded only at its end"


# What quantizes takes these floats; what finds ranges when it runs takes float32 only.
_TAKEN = {
    Precision.STATIC: (torch.float32, torch.float16, torch.bfloat16),
    Precision.DYNAMIC: (torch.float32,),
}


def _other_floats(node: fx.Node, precision: Precision) -> str | None:
    """The dtype of an input that no operator on integers takes; None if there is none."""
    for value in (read.meta.get("val") for read in node.all_input_nodes):
        is_other = isinstance(value, torch.Tensor) and value.is_floating_point() and precision in _TAKEN
        if is_other and value.dtype not in _TAKEN[precision]:
            return str(value.dtype).removeprefix("torch.")
    return None


def _keep_scale(state: State, node: fx.Node, found: Operator) -> Choice | None:
    if node.args[0] not in state.quantized:
        return None
    if "written" in node.meta or "written" in node.args[0].meta:
        return Choice(Precision.FLOAT, WRITTEN)
    if stays_float(state.mapping, node):
        return Choice(Precision.FLOAT, "qconfig None")
    if STAYS_FLOAT in node.meta:
        return Choice(Precision.FLOAT, node.meta[STAYS_FLOAT])
    if found.integers is None:
        return Choice(Precision.PASSED)
    a = arguments(node)
    computed = [k for k, v in a.items() if isinstance(v, fx.Node) and v is not node.args[0]]
    if computed:
        return Choice(Precision.FLOAT, f"its {computed[0]} is not a constant")
    reason = found.refuses(a) if found.refuses is not None else ""
    return Choice(Precision.FLOAT, reason) if reason else Choice(Precision.PASSED)


def _qconfig(state: State, node: fx.Node, found: Operator) -> Any:
    return qconfig_of(state.mapping, node, found.object_types)


def operator_name(node: fx.Node, choice: Choice) -> str:
    """What a summary calls a node."""
    return choice.operator.name if choice.operator else (aten_name(node) or str(node.target)).split(".")[0]
