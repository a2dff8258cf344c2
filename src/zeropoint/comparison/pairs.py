"""A float model and its quantized form, run side by side: every value that the quantized one computes, next to what it
should be.

Two values are right for a layer: what the float model has there, and what the float layer gives for the inputs that the
quantized one got (`alone`). The distance to the first is all that went wrong so far, the distance to the second is what
went wrong in this layer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from zeropoint.graph.graph_module import Graph
from zeropoint.graph.provenance import has_identities
from zeropoint.graph.workflow import Quantized


@dataclass(frozen=True)
class Layer:
    """One step of a quantized model that computes, with the parameters of its result."""

    name: str  # unique
    path: str  # of its module
    operator: str
    computed: str  # "int8", "int8 dynamic", ... or "float32"
    scale: float | None = None
    zero_point: int | None = None
    dtype: str = "float32"  # of the result
    weight: Tensor | None = None  # in float
    rounded_weight: Tensor | None = None  # what the integers of the weight stand for
    nbytes: int = 0  # of all its constants
    float_nbytes: int = 0


@dataclass(frozen=True)
class Pair:
    """The results of a layer on one batch."""

    layer: Layer
    wanted: Tensor  # in the float model
    alone: Tensor  # of the float layer, on the inputs that the quantized layer got
    got: Tensor  # in the quantized model, as floats
    integers: Tensor | None  # in the quantized model, if it holds integers


class Pairs(Protocol):
    """A float and a quantized model that can be run side by side."""

    def layers(self) -> tuple[Layer, ...]:
        """The layers, in the order in which they compute."""

    def run(self, batch: Any) -> Iterator[Pair]:
        """Run both on a batch: a pair for each layer, and one for the output, whose layer has the name "output"."""


OUTPUT = Layer("output", "", "output", "")


def first_tensor(value: Any) -> Tensor | None:
    """The first tensor of floats in what a model or a layer returned."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, dict) or hasattr(value, "values"):
        value = list(value.values())
    for part in value if isinstance(value, Iterable) else ():
        found = first_tensor(part)
        if found is not None:
            return found
    return None


def pairs_of(float_model: nn.Module, quantized: nn.Module, batch: Any) -> Pairs:
    """The pairs of a model and what `to_int8`, `convert_graph`, eager `convert` or `convert_jit` made of it.

    Args:
        batch: one to run on, from which the shapes are taken.
    """
    for name, model in (("float_model", float_model), ("quantized", quantized)):
        if not isinstance(model, nn.Module):
            raise TypeError(f"{name} must be a module, got {type(model).__name__}")
    from zeropoint.comparison.eager_pairs import EagerPairs
    from zeropoint.comparison.graph_pairs import GraphPairs
    from zeropoint.comparison.script_graphs import graphs_of

    if isinstance(quantized, torch.jit.ScriptModule):
        source, made = graphs_of(float_model, quantized, batch)
        return GraphPairs(float_model, made, batch, source)
    if isinstance(quantized, Quantized):
        known = isinstance(float_model, Graph) and has_identities(float_model)
        return GraphPairs(float_model, quantized, batch, copy.deepcopy(float_model) if known else None)
    return EagerPairs(float_model, quantized)
