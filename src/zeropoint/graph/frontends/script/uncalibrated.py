"""What calibration did not reach stays float: branches that were never taken, loops that never ran."""

from __future__ import annotations

from typing import Any

from torch import fx

from zeropoint.graph.passes.annotate import Choice, Precision, is_float, watched
from zeropoint.graph.passes.insert_observers import is_observer
from zeropoint.graph.provenance import origin
from zeropoint.nn.quantized.storage import has_observed

UNCALIBRATED = "calibration did not reach it"
SHARED = "calibration did not reach it: it uses the scale of the other branch"


def drop_uncalibrated(view: fx.GraphModule, choices: dict[fx.Node, Choice]) -> None:
    """Take observers without data out of `view`, and what needs them out of `choices`."""
    watches = [node for node in view.graph.nodes if is_observer(node)]
    uncalibrated = {node for node in watches if not has_observed(view.get_submodule(str(node.target)))}
    never = {origin(node).scope for node in uncalibrated} - {()}  # blocks that did not run

    def did_not_run(node: fx.Node) -> bool:
        scope = origin(node).scope
        return any(scope[: len(block)] == block for block in never)

    for node in uncalibrated:
        source: Any = node.args[0]
        node.replace_all_uses_with(source)
        view.graph.erase_node(node)
    by_name = {node.name: node for node in view.graph.nodes}
    scaled: set[fx.Node] = {node for node in watches if node not in uncalibrated}

    def is_watched(node: fx.Node) -> bool:
        return any(user in scaled for user in watched(node, choices, by_name).users)

    for node in list(view.graph.nodes):
        choice = choices.get(node)
        if choice is None:
            continue
        if choice.precision is Precision.STATIC:
            reads = [node.args[0]] if len(choice.inputs) == 1 else list(node.all_input_nodes)
            reads = [value for value in reads if is_float(value) and value.op != "get_attr"]
            last = by_name[choice.relu or node.name]
            if is_watched(node) and scaled.issuperset(reads) and not did_not_run(node):
                scaled.add(last)
                if choice.result and choice.operator.is_layer and not has_observed(choice.qconfig.weight()):
                    choice.reason = SHARED
                continue
            choices[node] = Choice(Precision.FLOAT, UNCALIBRATED, choice.operator)
            if choice.relu:
                del choices[last]
        elif choice.precision is Precision.JOINED:
            sources = [by_name[choice.inputs[0]]] if choice.inputs else [e.args[i] for e, i in node.meta["ends"]]
            if scaled.issuperset(sources) and (choice.inputs or is_watched(node)):
                scaled.add(node)
            else:
                del choices[node]
        elif choice.precision is Precision.PASSED:
            if node.args[0] in scaled:
                scaled.add(node)
            else:
                del choices[node]
