"""TorchScript as the graph that the compiler takes."""

from __future__ import annotations

from typing import Any

from torch import fx

from zeropoint.compiler.eager import on_plain_tensors
from zeropoint.compiler.errors import Unsupported
from zeropoint.graph.frontends.script.evaluate import NotStraight, straight_graph

_WAYS_OUT = (
    "Programs have no control flow: quantize the Python model with zeropoint.to_int8 instead, or move this code "
    "out of forward"
)


def graph_of(model: Any, example_inputs: tuple[Any, ...]) -> fx.GraphModule:
    """The operators that a ScriptModule calls for such inputs, sizes free; on floats zeropoint's where it has them.

    Raises:
        Unsupported: if what it calls depends on data or on sizes, or if it changes while it runs.
    """
    try:
        graph = straight_graph("compile", model, example_inputs)
    except NotStraight as error:
        raise Unsupported(f"compile: {error}. {_WAYS_OUT}") from error
    return on_plain_tensors(graph)
