"""TorchScript as the graph that the compiler takes."""

from __future__ import annotations

from typing import Any

from torch import fx
from torch.fx import traceback

from zeropoint.engine.steps import ROWS, Unsupported
from zeropoint.graph.fx.capture import CaptureError, capture
from zeropoint.graph.fx.lower import lower
from zeropoint.graph.fx.plain import rewrite, write_nothing
from zeropoint.graph.script.interpret import LINE, NotStraight, interpreted

__all__ = ["graph_of"]

_WAYS_OUT = (
    "Programs are straight lines: quantize the Python model with zeropoint.to_int8 instead, or take this out of forward"
)


def graph_of(model: Any, example_inputs: tuple[Any, ...]) -> fx.GraphModule:
    """The operators that a ScriptModule calls for such inputs, sizes free; those on floats are ours where we have them.

    Raises:
        Unsupported: if what it calls depends on data or on sizes, or if it changes while it runs.
    """
    try:
        with traceback.preserve_node_meta():
            graph = capture(interpreted("compile", model), example_inputs)
    except (NotStraight, ValueError) as error:
        cause = _cause(error)
        if cause is None and not isinstance(error, CaptureError):
            raise
        raise Unsupported(f"compile: {cause or error}. {_WAYS_OUT}") from error
    for node in graph.graph.nodes:
        line = (node.meta.get("custom") or {}).get(LINE)
        if line:
            node.meta["line"] = line
    rewrite(write_nothing(graph), lambda name: f"aten.{name}" not in ROWS)
    return lower(graph, {})


def _cause(error: BaseException | None) -> NotStraight | None:
    while error is not None and not isinstance(error, NotStraight):
        error = error.__cause__ or error.__context__
    return error
