"""A ScriptModule as a graph of torch.export: a straight line of operators."""

from __future__ import annotations

from typing import Any

from torch import fx

from zeropoint import torch_versions
from zeropoint.graph.frontends.export import CaptureError, Origin, capture
from zeropoint.graph.frontends.script.interpret import LINE, MODULE, NotStraight, interpreted

__all__ = ["straight_graph"]


def straight_graph(name: str, model: Any, example_inputs: tuple[Any, ...]) -> fx.GraphModule:
    """The operators that a ScriptModule calls for such inputs, sizes free; `name` is who asks, for messages.

    Of each node ``meta["origin"]`` is the module that it came from, ``meta["line"]`` the line of code, if it is known.

    Raises:
        NotStraight: if what it calls depends on data or on sizes, or if it changes while it runs.
        ValueError: if it does not run on the example inputs.

    Example:
        >>> import torch
        >>> script = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).eval())
        >>> graph = straight_graph("example", script, (torch.ones(1, 2),))
        >>> [(node.name, node.meta["origin"].path) for node in graph.graph.nodes if node.op == "call_function"]
        [('linear', '0'), ('relu', '1')]
    """
    try:
        with torch_versions.keeping_annotations():
            graph = capture(interpreted(name, model), example_inputs)
    except ValueError as error:
        cause = _cause(error)
        if cause is not None:
            raise cause from error
        if isinstance(error, CaptureError):
            raise NotStraight(str(error)) from error
        raise
    for node in graph.graph.nodes:
        known = node.meta.get("custom") or {}
        if known.get(LINE):
            node.meta["line"] = known[LINE]
        if known.get(MODULE):
            node.meta["origin"] = Origin(known[MODULE], None)
    return graph


def _cause(error: BaseException | None) -> NotStraight | None:
    while error is not None and not isinstance(error, NotStraight):
        error = error.__cause__ or error.__context__
    return error
