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
from zeropoint.accuracy.smoothing import smooth_layers
from zeropoint.graph.frontends.script.evaluate import straight_graph
from zeropoint.graph.passes.pointwise_rows import rows_of_pointwise
from zeropoint.graph.passes.rounded_twice import round_twice
from zeropoint.graph.policy import Policy
from zeropoint.graph.provenance import STAYS_FLOAT, origin
from zeropoint.graph.to_int8 import calibrate, call_of, evaluated, policy_of
from zeropoint.graph.workflow import (
    Prepared,
    Quantized,
    convert_graph,
    equalized,
    float_graph,
    in_known_operators,
    prepare_captured,
)
from zeropoint.observers import default_per_channel_weight_observer, default_placeholder_observer
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import aten_name
from zeropoint.qconfig import (
    QConfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig_4bit,
    per_token_dynamic_qconfig,
)

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
class Job:
    """What an algorithm is given.

    Attributes:
        graph: in float.
        subject: what there is at the algorithm's stage.
        batches: to run on.
        dynamic: paths of the layers that take the range of each call.
        seconds: that are left.
        found: what the algorithm found for other recipes of the model, for it to take again and to add to.
    """

    graph: fx.GraphModule
    subject: Any
    batches: list[Any]
    dynamic: tuple[str, ...]
    seconds: float
    found: dict[Any, Any]


@dataclass(frozen=True)
class Algorithm:
    """A name, a stage and what is done to a job, which answers the changes."""

    name: str
    stage: Stage
    run: Callable[[Job], tuple[Change, ...]]
    for_dynamic: bool = False  # whether it is for layers that take the range of each call, and those alone
    last: bool = False  # whether it runs behind the others of its stage, as it makes up for what they leave
    refines: bool = False  # whether it takes time and gains little, so that a large loss is none for it
    slow: bool = False  # whether it takes far more time than the others


ALGORITHMS = (
    Algorithm("scaling", Stage.SCALES, lambda job: search_scaling(job.subject, job.batches), refines=True),
    Algorithm("equalize", Stage.FLOAT, lambda job: equalize_layers(job.graph, job.batches)),
    Algorithm("bias", Stage.INTEGERS, lambda job: correct_biases(job.graph, job.subject, job.batches), last=True),
    Algorithm("ranges", Stage.RANGES, lambda job: choose_ranges(job.subject, job.batches), refines=True),
    Algorithm(
        "smooth",
        Stage.FLOAT,
        lambda job: smooth_layers(job.graph, job.dynamic, job.batches, found=job.found),
        for_dynamic=True,
    ),
    Algorithm(
        "gptq",
        Stage.INTEGERS,
        lambda job: gptq(job.graph, job.subject, job.batches, job.seconds, found=job.found),
        slow=True,
    ),
    Algorithm(
        "adaround",
        Stage.INTEGERS,
        lambda job: adaround(job.graph, job.subject, job.batches, seconds=job.seconds),
        slow=True,
    ),
)
DYNAMIC, TWICE = "int8 dynamic", "int8 twice"

PRECISIONS: Mapping[str, QConfig | None] = {
    DYNAMIC: per_token_dynamic_qconfig,
    TWICE: per_token_dynamic_qconfig,  # of linear layers that `round_twice` makes two of
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
    precisions: tuple[tuple[str, str], ...] = ()  # path of a module, or of its PRODUCTS, and one of WAYS

    def __str__(self) -> str:
        others = [f"{path}: {precision}" for path, precision in self.precisions]
        shown = others if len(others) <= 3 else [f"{len(others)} layers in other precisions"]
        return "; ".join([", ".join(self.algorithms) or "plain", *shown])

    @property
    def dynamic(self) -> tuple[str, ...]:
        """Paths of the layers that take the range of each call."""
        return tuple(path for path, precision in self.precisions if precision == DYNAMIC)

    @property
    def is_slow(self) -> bool:
        """Whether one of its algorithms takes long."""
        return any(algorithm.slow for algorithm in ALGORITHMS if algorithm.name in self.algorithms)

    def with_algorithm(self, name: str) -> Recipe:
        """This recipe and one more algorithm."""
        return Recipe((*self.algorithms, name), self.precisions)


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
            raise ValueError("tune: calibration is empty: pass at least one batch")
        self.example = example_inputs
        self.graph = _captured(evaluated(model), example_inputs, dynamic_shapes).eval()
        self.policy = policy_of(self.graph, policy)
        self.inputs = [_positional(model, batch) for batch in self.batches]
        self._found: dict[str, dict[Any, Any]] = {algorithm.name: {} for algorithm in ALGORITHMS}

    def prepared(self, recipe: Recipe, graph: fx.GraphModule, count: int | None = None) -> Prepared:
        """`graph` with the observers of a recipe, calibrated on `count` batches or all; the graph is changed."""
        mapping = self.policy.mapping(None, "static")
        precisions = dict(recipe.precisions)
        for path, precision in recipe.precisions:
            if not path.endswith(PRODUCTS):
                mapping.set_module_name(path, PRECISIONS[precision])
        for path, nodes in products(graph).items():
            for node in nodes if precisions.get(path) == DYNAMIC else ():
                at, kind = origin(node), BY_ATEN[aten_name(node) or ""].functions[0]
                mapping.set_module_name_object_type_order(at.path, kind, at.place, PRECISIONS[DYNAMIC])
        self.policy.mark(graph, mapping)
        for path, nodes in products(graph).items():
            for node in nodes if precisions.get(path) == "float" else ():
                node.meta[STAYS_FLOAT] = _CHOSEN_WHY
        divided = self.policy.equalize or "scaling" in recipe.algorithms
        prepared = prepare_captured(graph, mapping, divided, (str(self.policy),), may_be_float=True)
        calibrate(prepared, self.inputs[:count], self.policy, progress=False)
        return prepared

    def calibrated(self, recipe: Recipe, count: int | None = None) -> tuple[fx.GraphModule, Prepared, list[Change]]:
        """What a recipe makes before there are integers: the float graph, the calibrated one, and the changes.

        Args:
            count: of batches to calibrate with; all by default.
        """
        graph = copy.deepcopy(self.graph)
        twice = [path for path, precision in recipe.precisions if precision == TWICE]
        rows_of_pointwise(graph, (*recipe.dynamic, *twice))
        round_twice(graph, twice)
        changes = self._run(recipe, Stage.FLOAT, graph, graph)
        prepared = self.prepared(recipe, copy.deepcopy(graph), count)
        changes += self._run(recipe, Stage.SCALES, graph, prepared)
        prepared = equalized(prepared)
        changes += self._run(recipe, Stage.RANGES, graph, prepared)
        return graph, prepared, changes

    def make(self, recipe: Recipe, seconds: float = math.inf) -> Result:
        """The model on integers of a recipe.

        Args:
            seconds: after which slow algorithms leave the layers to come as they are.
        """
        end = time.monotonic() + seconds
        graph, prepared, changes = self.calibrated(recipe)
        quantized = convert_graph(prepared)
        changes += self._run(recipe, Stage.INTEGERS, graph, quantized, end)
        return Result(quantized, graph, tuple(changes))

    def round(self, recipe: Recipe, graph: fx.GraphModule, quantized: Quantized, seconds: float) -> None:
        """Run what a recipe has for integers on a quantized graph, in place."""
        self._run(recipe, Stage.INTEGERS, graph, quantized, time.monotonic() + seconds)

    def _run(
        self, recipe: Recipe, stage: Stage, graph: fx.GraphModule, subject: Any, end: float = math.inf
    ) -> list[Change]:
        """Run the algorithms of one stage, in the order of the recipe; those that are `last` behind the others."""
        known = {algorithm.name: algorithm for algorithm in ALGORITHMS}
        changes: list[Change] = []
        for name in recipe.algorithms:
            if name not in known:
                raise ValueError(f"tune: unknown algorithm {name!r}; choose from {', '.join(known)}")
        for name in sorted(recipe.algorithms, key=lambda name: known[name].last):
            if known[name].stage is stage:
                left = end - time.monotonic()
                job = Job(graph, subject, self.inputs, recipe.dynamic, left, self._found[name])
                changes.extend(known[name].run(job))
        return changes


def _captured(model: nn.Module, example_inputs: Any, dynamic_shapes: Any) -> fx.GraphModule:
    """The float graph of a model; of TorchScript, if it is a straight line."""
    if not isinstance(model, torch.jit.ScriptModule):
        return float_graph(model, example_inputs, dynamic_shapes)
    args, kwargs = call_of(example_inputs)
    if kwargs:
        raise TypeError("tune: example_inputs of a TorchScript model must be a tuple, got a dictionary")
    return in_known_operators(straight_graph("tune", model, args))


def _positional(model: nn.Module, batch: Any) -> tuple[Any, ...]:
    """A batch as positional arguments, as graphs take it."""
    args, kwargs = call_of(batch)
    if not kwargs:
        return args
    bound = inspect.signature(model.forward).bind(*args, **kwargs)
    return (*bound.args, *bound.kwargs.values())
