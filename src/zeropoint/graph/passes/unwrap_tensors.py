"""Tensors that wrap others, such as QTensor, taken apart: the graph on the tensors inside.

A captured graph calls operators on QTensors where a model does, as scripts of the old stack do. Each such call is
traced alone, at the level where QTensor has already called the operators on its integers, and put in its own place.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.passes.insert_traced import insert_traced


def unwrap_tensors(graph: fx.GraphModule) -> None:
    """Let `graph` compute on plain tensors where it computes on tensors that wrap some; in place.

    Raises:
        NotImplementedError: if such a tensor is an input or a result of the graph.
    """
    inner: dict[fx.Node, list[fx.Node]] = {}  # of a node that gives such a tensor, the nodes that give its parts
    for node in list(graph.graph.nodes):
        if not any(map(_is_wrapper, (node, *node.all_input_nodes))):
            continue
        if node.op != "call_function":
            what = "an input" if node.op == "placeholder" else "a result"
            raise NotImplementedError(f"{what} of the model is a quantized tensor: quantize and dequantize inside it")
        _trace_inside(graph, node, inner)
    for node in reversed(list(graph.graph.nodes)):
        if node in inner or (not node.users and any(n in inner for n in node.all_input_nodes)):
            graph.graph.erase_node(node)
    graph.recompile()


def _is_wrapper(node: fx.Node) -> bool:
    return internals.is_wrapper(node.meta.get("val"))


def _trace_inside(graph: fx.GraphModule, node: fx.Node, inner: dict[fx.Node, list[fx.Node]]) -> None:
    """Put what `node` calls on the tensors inside before it."""
    reads = list(dict.fromkeys(node.all_input_nodes))
    given = [part for read in reads for part in inner.get(read, [read])]

    def call(*parts: Any) -> Any:
        left, values = list(parts), {}
        for read in reads:
            count = len(inner.get(read, [read]))
            taken, left = left[:count], left[count:]
            values[read] = internals.wrap(read.meta["val"], taken) if read in inner else taken[0]
        args, kwargs = internals.map_nodes((node.args, node.kwargs), values.__getitem__)
        result = node.target(*args, **kwargs)
        return internals.inner_tensors(result) if internals.is_wrapper(result) else result

    traced = internals.trace(call, [part.meta["val"] for part in given])
    results = insert_traced(graph, node, traced, given)
    if _is_wrapper(node):
        inner[node] = list(results)
    elif isinstance(node.meta.get("val"), Tensor):
        node.replace_all_uses_with(results)
        graph.graph.erase_node(node)
