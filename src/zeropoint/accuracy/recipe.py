"""From a model to integers by a recipe: which algorithms, and how each layer is computed.

An algorithm works at one of three stages, and the stages follow each other: on the float graph, on the calibrated one,
on the integers. `ALGORITHMS` lists all, the cheap ones first.
"""

from __future__ import annotations

import copy
import enum
import inspect
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from zeropoint.accuracy.adaround import adaround
from zeropoint.accuracy.bias_correction import correct_biases
from zeropoint.accuracy.cross_layer import equalize_layers
from zeropoint.accuracy.gptq import gptq
from zeropoint.accuracy.layers import Change
from zeropoint.accuracy.ranges import choose_ranges
from zeropoint.accuracy.scaling import search_scaling
from zeropoint.graph.frontends.script.evaluate import straight_graph
from zeropoint.graph.policy import STAYS_FLOAT, Policy
from zeropoint.graph.provenance import origin
from zeropoint.graph.quantize_fx import (
    Prepared,
    Quantized,
    convert_fx,
    equalized,
    float_graph,
    in_known_operators,
    prepare_graph,
)
from zeropoint.graph.to_int8 import calibrate, call_of, evaluated, policy_of
from zeropoint.observers import default_per_channel_weight_observer, default_placeholder_observer
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import aten_name
from zeropoint.qconfig import (
    QConfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig_4bit,
    per_token_dynamic_qconfig,
)

__all__ = ["ALGORITHMS", "PRODUCTS", "WAYS", "Algorithm", "Bench", "Recipe", "Result", "Stage", "products"]

PRODUCTS = ":products"  # behind the path of a module: its matrix products that have no weight, as those of attention
_CHOSEN_WHY = "a product that mixed precision leaves in float"


def products(graph: fx.GraphModule) -> dict[str, list[fx.Node]]:
    """Matrix products of two activations, by the name that recipes have for those of one module."""
    found: dict[str, list[fx.Node]] = {}
    for node in graph.graph.nodes:
        record = BY_ATEN.get(aten_name(node) or "")
        if record is not None and record.heavy and not record.weights:
            found.setdefault(origin(node).path + PRODUCTS, []).append(node)
    return found


class Stage(enum.Enum):
    """What an algorithm works on."""

    FLOAT = "float graph"
    SCALES = "calibrated, before channels are divided"
    RANGES = "calibrated"
    INTEGERS = "integers"


@dataclass(frozen=True)
class Algorithm:
    """A name, a stage and a function: of the float graph, what there is at its stage, batches, and the seconds that are
    left, to its changes."""

    name: str
    stage: Stage
    run: Callable[[fx.GraphModule, Any, list[Any], float], tuple[Change, ...]]


ALGORITHMS = (
    Algorithm("ranges", Stage.RANGES, lambda _, prepared, batches, __: choose_ranges(prepared, batches)),
    Algorithm("scaling", Stage.SCALES, lambda _, prepared, batches, __: search_scaling(prepared, batches)),
    Algorithm("equalize", Stage.FLOAT, lambda graph, _, batches, __: equalize_layers(graph, batches)),
    Algorithm("bias", Stage.INTEGERS, lambda graph, quantized, batches, _: correct_biases(graph, quantized, batches)),
    Algorithm("gptq", Stage.INTEGERS, lambda graph, quantized, batches, _: gptq(graph, quantized, batches)),
    Algorithm(
        "adaround",
        Stage.INTEGERS,
        lambda graph, quantized, batches, left: adaround(graph, quantized, batches, seconds=left),
    ),
)

WAYS: Mapping[str, QConfig | None] = {
    "int8 dynamic": per_token_dynamic_qconfig,
    "int8 weights": QConfig(default_placeholder_observer, default_per_channel_weight_observer),
    "int4 weights": float_qparams_weight_only_qconfig_4bit,
    "float16 weights": float16_dynamic_qconfig,
    "float": None,
}  # beside "int8", which is what the policy says


@dataclass(frozen=True)
class Recipe:
    """Algorithms by their names, and modules that are not computed in int8 with ranges of calibration.

    Example:
        >>> str(Recipe(("gptq",), (("head", "float"),)))
        'gptq; head: float'
    """

    algorithms: tuple[str, ...] = ()
    ways: tuple[tuple[str, str], ...] = ()  # path of a module, or of its PRODUCTS, and one of WAYS

    def __str__(self) -> str:
        others = [f"{path}: {way}" for path, way in self.ways]
        shown = others if len(others) <= 3 else [f"{len(others)} layers otherwise"]
        return "; ".join([", ".join(self.algorithms) or "plain", *shown])

    def with_algorithm(self, name: str) -> Recipe:
        """This recipe and one more algorithm."""
        return Recipe((*self.algorithms, name), self.ways)


@dataclass
class Result:
    """What a recipe gave: the model on integers, the float graph it stands for, and all changes."""

    quantized: Quantized
    graph: fx.GraphModule
    changes: tuple[Change, ...] = field(default=(), repr=False)


class Bench:
    """A captured model and batches, from which recipes make models on integers.

    Args:
        model: any module that torch.export can capture, or TorchScript that is a straight line.
        example_inputs: a tuple of what it is called with, or a dictionary of keywords.
        batches: for calibration and for the algorithms.
        policy: as for `to_int8`.
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Any,
        batches: Iterable[Any],
        policy: Policy | Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
    ) -> None:
        self.batches = list(batches)
        if not self.batches:
            raise ValueError("tune: calibration has no batch")
        self.example = example_inputs
        self.graph = _captured(evaluated(model), example_inputs, dynamic_shapes).eval()
        self.policy = policy_of(self.graph, policy)
        self.inputs = [_positional(model, batch) for batch in self.batches]

    def prepared(self, recipe: Recipe, graph: fx.GraphModule) -> Prepared:
        """`graph` with the observers of a recipe, calibrated; the graph is changed."""
        mapping = self.policy.mapping(None, "static")
        in_float = [path for path, way in recipe.ways if path.endswith(PRODUCTS) and way == "float"]
        for path, way in recipe.ways:
            if not path.endswith(PRODUCTS):
                mapping.set_module_name(path, WAYS[way])
        self.policy.mark(graph, mapping)
        for path, nodes in products(graph).items():
            for node in nodes if path in in_float else ():
                node.meta[STAYS_FLOAT] = _CHOSEN_WHY
        divided = self.policy.equalize or "scaling" in recipe.algorithms
        prepared = prepare_graph(graph, mapping, divided, (str(self.policy),), may_be_float=True)
        calibrate(prepared, self.inputs, self.policy, progress=False)
        return prepared

    def make(self, recipe: Recipe, seconds: float = math.inf) -> Result:
        """The model on integers of a recipe.

        Args:
            seconds: after which dear algorithms leave the layers to come as they are.
        """
        end = time.monotonic() + seconds
        wanted = {name: a for a in ALGORITHMS for name in recipe.algorithms if a.name == name}
        unknown = [name for name in recipe.algorithms if name not in wanted]
        if unknown:
            names = ", ".join(a.name for a in ALGORITHMS)
            raise ValueError(f"tune: there is no algorithm {unknown[0]!r}; there are {names}")
        changes: list[Change] = []
        graph = copy.deepcopy(self.graph)

        def run(stage: Stage, subject: Any) -> None:
            for name in recipe.algorithms:
                if wanted[name].stage is stage:
                    changes.extend(wanted[name].run(graph, subject, self.inputs, end - time.monotonic()))

        run(Stage.FLOAT, graph)
        prepared = self.prepared(recipe, copy.deepcopy(graph))
        run(Stage.SCALES, prepared)
        prepared = equalized(prepared)
        run(Stage.RANGES, prepared)
        quantized = convert_fx(prepared)
        run(Stage.INTEGERS, quantized)
        return Result(quantized, graph, tuple(changes))


def _captured(model: nn.Module, example_inputs: Any, dynamic_shapes: Any) -> fx.GraphModule:
    """The float graph of a model; of TorchScript, if it is a straight line."""
    if not isinstance(model, torch.jit.ScriptModule):
        return float_graph(model, example_inputs, dynamic_shapes)
    args, kwargs = call_of(example_inputs)
    if kwargs:
        raise TypeError("tune: TorchScript takes its example inputs as a tuple, got a dictionary")
    return in_known_operators(straight_graph("tune", model, args))


def _positional(model: nn.Module, batch: Any) -> tuple[Any, ...]:
    """A batch as positional arguments, as graphs take it."""
    args, kwargs = call_of(batch)
    if not kwargs:
        return args
    bound = inspect.signature(model.forward).bind(*args, **kwargs)
    return (*bound.args, *bound.kwargs.values())
