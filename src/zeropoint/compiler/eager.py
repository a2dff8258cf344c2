"""Models of eager mode as the graph that the compiler takes."""

from __future__ import annotations

from typing import Any

from torch import fx, nn

from zeropoint.graph.frontends.dynamic_shapes import ALL
from zeropoint.graph.frontends.export import capture
from zeropoint.graph.lowering.integer import lower
from zeropoint.graph.passes.canonicalize import rewrite, write_nothing
from zeropoint.graph.passes.fold_constants import fold_constants
from zeropoint.graph.passes.unwrap_tensors import unwrap_tensors
from zeropoint.operators import STEPS
from zeropoint.operators.node import operator_key

_QUANTIZED = ("zeropoint.nn.quantized.", "zeropoint.nn.intrinsic.quantized.")


def is_quantized_module(model: Any) -> bool:
    """Whether a model has modules that `convert` or `quantize_dynamic` made."""
    return isinstance(model, nn.Module) and any(type(m).__module__.startswith(_QUANTIZED) for m in model.modules())


def graph_of_eager(model: nn.Module, example_inputs: tuple[Any, ...]) -> fx.GraphModule:
    """The operators that a model of eager mode calls for such inputs, on plain integers and floats, sizes free.

    Raises:
        CaptureError: if torch.export cannot follow the model.
        NotImplementedError: if it takes or gives quantized tensors.
    """
    graph = capture(model, example_inputs, dynamic_shapes=ALL)
    unwrap_tensors(graph)
    return on_plain_tensors(graph)


def on_plain_tensors(graph: fx.GraphModule) -> fx.GraphModule:
    """A captured graph with operators that the compiler knows; those on floats are zeropoint's where it has them."""
    fold_constants(graph)
    rewrite(write_nothing(graph), lambda node: f"aten.{operator_key(node)}" not in STEPS)
    return lower(graph, {})
