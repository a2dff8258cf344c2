"""Quantized graphs for `torch.jit.script`: what torch.export writes, as TorchScript reads it."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from zeropoint.graph import torch_internals as internals

__all__ = ["scriptable"]


def scriptable(model: fx.GraphModule) -> nn.Module:
    """The same graph in calls that TorchScript can compile, on the same parameters.

    Raises:
        NotImplementedError: if inputs or results are nested; TorchScript wants to know their types.
    """
    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in model.graph.nodes:
        if node.op == "output":
            made = [values[n] for n in node.args[0]]
            graph.output(_unnested(model, made))
        elif node.op == "call_module" and not node.users:
            continue  # says what is wrong with the sizes of inputs
        else:
            values[node] = graph.node_copy(node, lambda n: values[n])
            if internals.is_operator(values[node].target):
                values[node].target = _without_overload(values[node].target)
    return fx.GraphModule(model, graph)


def _without_overload(target: Any) -> Any:
    """TorchScript finds the overload by the arguments."""
    if target is torch.ops.aten.sym_size.int:
        return torch.ops.aten.size
    return getattr(getattr(torch.ops, target.namespace), target._schema.name.split("::")[1])


def _unnested(model: fx.GraphModule, results: list[fx.Node]) -> Any:
    """What the graph returns: one result, or a tuple."""
    inputs = [n for n in model.graph.nodes if n.op == "placeholder"]
    numbers = tuple(range(len(inputs)))
    if internals.input_nesting(model.graph, len(inputs)) not in (None, (numbers, {})):
        raise NotImplementedError(
            "torch.jit.script: the model takes nested or named inputs; give it tensors in order, or use torch.jit.trace"
        )
    nested = internals.output_nesting(model.graph, len(results))
    if nested == 0:
        return results[0]
    if nested != tuple(range(len(results))):
        raise NotImplementedError(
            f"torch.jit.script: the model returns {type(nested).__name__}, nested or not; only a tensor or a tuple of"
            " tensors can be scripted: use torch.jit.trace"
        )
    return tuple(results)
