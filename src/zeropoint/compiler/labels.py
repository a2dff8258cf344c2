"""Names of values in a program: the module that a step came from, and what the step does, as ``layer1.0.conv``."""

from __future__ import annotations

from typing import Any

from torch import fx

from zeropoint.compiler.program_builder import ProgramBuilder, Size, Step, fresh_name
from zeropoint.graph.provenance import origin


def label_steps(builder: ProgramBuilder, graph: fx.GraphModule) -> dict[str, str]:
    """Rename what steps make, but for numbers, which attributes refer to.

    Returns:
        the name of the node for each of the new names.
    """
    paths = {node.name: at.path if (at := origin(node)) else "" for node in graph.graph.nodes}
    known = [*paths.values(), *(path for path, *_ in builder.operators)]  # a sum may have taken a layer's node
    modules = {path.replace(".", "_"): path for path in known}
    numbers = {name for step in builder.steps for name in step.reads() if isinstance(name, Size)}
    taken = {*builder.constants, *builder.state, *(i.name for i in builder.inputs), *numbers}
    new: dict[str, str] = {}
    for step in builder.steps:
        node = _node_of(step.outputs[0], paths) if step.outputs else None
        path = _of_weight(step, modules) or paths.get(node or "", "")
        label = f"{path}.{step.op}" if path else step.op
        for name in step.outputs:
            new[name] = name if name in numbers else fresh_name(label, taken)
    for step in builder.steps:
        step.inputs = [None if name is None else new.get(name, name) for name in step.inputs]
        step.outputs = [new[name] for name in step.outputs]
    builder.outputs = [new.get(name, name) for name in builder.outputs]
    for state in builder.state.values():
        state.next = new.get(state.next, state.next)
    return {label: _node_of(name, paths) or name for name, label in new.items()}


def _node_of(name: str, paths: dict[str, Any]) -> str | None:
    """The node whose name it is, or that with something behind it."""
    while name and name not in paths:
        name = name.rpartition("_")[0]
    return name or None


def _of_weight(step: Step, modules: dict[str, str]) -> str | None:
    """The module whose weight a step has: a sum that was folded into it is another module's."""
    weight = (step.inputs[1] if len(step.inputs) > 1 else None) or ""
    return modules.get(weight.rpartition("_weight")[0])  # what folding made of it has more behind that
