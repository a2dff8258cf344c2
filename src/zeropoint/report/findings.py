"""Everything that a report shows, gathered in one run over the data."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.comparison.layers import Comparison, compare
from zeropoint.comparison.pairs import Pair
from zeropoint.comparison.sensitivity import Sensitivity
from zeropoint.comparison.sizes import model_bytes
from zeropoint.comparison.timing import Step, float_and_deployed, program_times, step_times
from zeropoint.compiler import Unsupported, compile
from zeropoint.cpu import CpuInfo, cpu_info
from zeropoint.graph.frontends.script.saved_plan import summary
from zeropoint.graph.summary import Row
from zeropoint.graph.to_int8 import call_of
from zeropoint.graph.workflow import Quantized
from zeropoint.progress import during
from zeropoint.report.histograms import Histogram, activation_histogram, weight_histogram


@dataclass(frozen=True)
class Search:
    """What `zeropoint.tune` tried, as a table, and the points of its Pareto front: milliseconds, dB, and in words."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    result: str
    points: tuple[tuple[float, float, str], ...] = ()


@dataclass(frozen=True)
class Findings:
    """What is known about a quantized model."""

    title: str
    comparison: Comparison
    float_nbytes: int
    nbytes: int
    float_milliseconds: float
    milliseconds: float
    runs_as: str  # what was timed: the program, or the graph in PyTorch
    batch: str  # the shapes of the batch that was timed
    activations: dict[str, Histogram] = field(default_factory=dict)  # by the name of the layer
    weights: dict[str, Histogram] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    advice: tuple[str, ...] = ()
    operators: tuple[Row, ...] = ()
    sensitivity: Sensitivity | None = None
    search: Search | None = None
    cpu: CpuInfo | None = None
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def left_in_float(self) -> tuple[Row, ...]:
        """The operators that are not quantized."""
        return tuple(row for row in self.operators if row.precision == "float32")


def gather(
    float_model: nn.Module,
    quantized: nn.Module,
    data: Iterable[Any],
    *,
    title: str = "",
    sensitivity: Sensitivity | None = None,
    search: Search | None = None,
    timed: Any = None,
    seconds: float = 1.0,
    progress: bool = True,
) -> Findings:
    """Compare two models on the data, take histograms of the first batch, and time both.

    Args:
        title: of the report; the class of the model if it is empty.
        sensitivity: what `zeropoint.sensitivity` found, to be shown as well.
        search: what `zeropoint.tune` tried, to be shown as well.
        timed: the batch that both are timed on; by default the first one.
        seconds: to spend on timing.
    """
    batches = list(data)
    activations: dict[str, Histogram] = {}
    weights: dict[str, Histogram] = {}

    def watch(pair: Pair) -> None:
        name = pair.layer.name
        if name == "output" or name in activations:
            return
        activations[name] = activation_histogram(pair.layer, pair.wanted, pair.integers)
        found = weight_histogram(pair.layer)
        if found is not None:
            weights[name] = found

    comparison = compare(float_model, quantized, batches, progress=progress, watch=watch)
    timed = batches[0] if timed is None else timed
    args, kwargs = call_of(timed)
    with torch.inference_mode(), during("timing", progress):
        program = None if kwargs else _program(quantized, args)
        deployed = quantized if program is None else program
        float_ms, ms = float_and_deployed(float_model, deployed, timed, seconds)
        advice: tuple[str, ...] = ()
        if program is None:
            steps = step_times(quantized, timed)
        else:
            steps, advice = program_times(program, args, {row.name: row.path for row in comparison.rows})
    return Findings(
        title=title or type(float_model).__name__,
        comparison=comparison,
        float_nbytes=model_bytes(float_model),
        nbytes=model_bytes(quantized),
        float_milliseconds=float_ms,
        milliseconds=ms,
        batch=", ".join(_shape(v) for v in (*args, *kwargs.values())),
        activations=activations,
        weights=weights,
        runs_as="in PyTorch" if program is None else "as a program",
        steps=steps,
        advice=advice,
        operators=_operators(quantized, comparison),
        sensitivity=sensitivity,
        search=search,
        cpu=cpu_info(),
        versions=(
            ("zeropoint", metadata.version("zeropoint")),
            ("torch", torch.__version__),
            ("Python", platform.python_version()),
        ),
    )


def _program(quantized: nn.Module, args: tuple[Any, ...]) -> Any:
    """What is deployed: the program of a graph, unless a step is missing for it."""
    if not _is_graph(quantized):
        return None
    try:
        return compile(quantized, args)
    except Unsupported:
        return None


def _operators(quantized: nn.Module, comparison: Comparison) -> tuple[Row, ...]:
    """The rows of `summary()`; of a model without one, the layers that were compared."""
    if _is_graph(quantized):
        return summary(quantized).rows
    return tuple(Row(row.path, row.operator, row.computed) for row in comparison.in_order())


def _is_graph(quantized: nn.Module) -> bool:
    return isinstance(quantized, (Quantized, torch.jit.ScriptModule))


def _shape(value: Any) -> str:
    return "x".join(map(str, value.shape)) if isinstance(value, Tensor) else type(value).__name__
