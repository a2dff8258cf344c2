"""Mixed precision: how each layer is computed, so that the model is as quick as it can be within an error.

For every layer and every way to compute it (int8 with ranges of calibration, int8 with ranges of each call, int8 twice
(`round_twice`), weights of 8 or 4 bits or float16 alone, float; products of two activations, as in attention, have no
weights to round alone) two numbers are measured: the squared error of the model's output with that layer alone
quantized that way (`local_errors.py`), and the time of its steps in a program. Errors of layers that do not know of
each other add up, so the best choice for a given sum is a small integer program::

    minimize  sum(time[l, w] x[l, w])    with  sum(error[l, w] x[l, w]) <= limit,  one w for each l

which `scipy.optimize.milp` solves exactly. All limits together give the Pareto front, time against error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from zeropoint.accuracy.graph_layers import inputs_of
from zeropoint.accuracy.layers import MEMORY
from zeropoint.accuracy.local_errors import LocalErrors, fits
from zeropoint.accuracy.recipe import ALGORITHMS, DYNAMIC, PRECISIONS, PRODUCTS, TWICE, Bench, Recipe, Stage
from zeropoint.comparison.pairs import first_tensor
from zeropoint.compiler import Unsupported, compile
from zeropoint.graph.passes.annotate import Choice, Precision
from zeropoint.graph.provenance import Identity, identity, origin
from zeropoint.graph.workflow import Prepared, Quantized, convert_graph, convert_layers
from zeropoint.installation import install_command
from zeropoint.numerics.distance import decibels
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import aten_name
from zeropoint.progress import shown
from zeropoint.table import plain_table, rich_table

INT8 = "int8"
_CHOSEN = {
    INT8: Precision.STATIC,
    DYNAMIC: Precision.DYNAMIC,
    TWICE: Precision.DYNAMIC,
    "int8 weights": Precision.WEIGHT,
    "int4 weights": Precision.WEIGHT_4,
    "float16 weights": Precision.HALF,
}
_BATCHES = 2  # that errors are measured on, at most; one for more than so many layers
_MANY = 24
_WHOLE = (INT8, DYNAMIC, TWICE)  # on integers, activations too
_ALIKE = ("int4 weights", "float16 weights")  # whose errors are measured at the layer alone
_POINTS = 32  # limits that are tried, from the least error to the largest, but not below that by more than so much
_DECADES = 6
_RUNS = 10  # of each program: a step counts with its least time, as a busy machine only adds to it


@dataclass(frozen=True)
class Option:
    """One precision for a layer: the squared error that it adds to the output, its time in milliseconds, and its
    bytes.
    """

    path: str
    precision: str
    error: float
    milliseconds: float
    nbytes: int


@dataclass(frozen=True)
class Point:
    """A precision for every layer, with the total error, time and size."""

    precisions: tuple[tuple[str, str], ...]
    error: float
    milliseconds: float
    nbytes: int


@dataclass(frozen=True)
class Front:
    """The Pareto front: no point is both faster and more accurate than another. Prints as a table, the fastest
    first.
    """

    points: tuple[Point, ...]
    options: tuple[Option, ...]
    signal: float  # the power of the outputs, to which errors relate

    HEADER = ("int8", "dynamic", "twice", "weights", "4 bits", "float16", "float", "ms", "bytes", "SQNR\ndB")

    @classmethod
    def of(cls, options: Sequence[Option], signal: float) -> Front:
        """The front of all choices of one way for each layer."""
        return cls(_front(options), tuple(options), signal)

    def milliseconds(self, precisions: Sequence[tuple[str, str]]) -> float:
        """Of all layers, those that `ways` does not name in int8."""
        chosen = dict(precisions)
        return sum(o.milliseconds for o in self.options if o.precision == chosen.get(o.path, INT8))

    def sqnr(self, point: Point) -> float:
        """Of the output, in dB, if the errors of layers add up."""
        return decibels(self.signal, point.error)

    def table(self) -> list[tuple[str, ...]]:
        """A row for each point."""
        return [
            (
                *(str(sum(precision == w for _, precision in p.precisions)) for w in (INT8, *PRECISIONS)),
                f"{p.milliseconds:.3f}",
                f"{p.nbytes:,}",
                f"{self.sqnr(p):.1f}",
            )
            for p in self.points
        ]

    def described_points(self) -> tuple[tuple[float, float, str], ...]:
        """Milliseconds, dB, and in words which layers are computed how."""
        names = ("int8", *PRECISIONS)
        return tuple(
            (
                p.milliseconds,
                self.sqnr(p),
                ", ".join(f"{n} {w}" for w in names if (n := sum(v == w for _, v in p.precisions))),
            )
            for p in self.points
        )

    def __str__(self) -> str:
        return plain_table(self.HEADER, self.table())

    def __rich__(self) -> Any:
        return rich_table(self.HEADER, self.table())


def choose(options: Sequence[Option], limit: float) -> Point | None:
    """The fastest choice of one option per layer with a total error of at most `limit`; None if there is none.

    Raises:
        ModuleNotFoundError: without scipy.

    Example:
        >>> slow, quick = Option("a", "float", 0.0, 3.0, 4), Option("a", "int8", 1.0, 1.0, 1)
        >>> choose([slow, quick], 0.5).precisions, choose([slow, quick], 2.0).precisions
        ((('a', 'float'),), (('a', 'int8'),))
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"mixed precision needs scipy: {install_command('tune')}") from error
    import numpy as np

    paths = sorted({option.path for option in options})
    one = np.array([[option.path == path for option in options] for path in paths], dtype=float)
    errors = np.array([option.error for option in options])
    scale = max(limit, float(errors.max(initial=0.0)), 1e-300)  # sums near 1, as solvers like them
    # Bytes break ties between ways that are as quick.
    cost = np.array([option.milliseconds for option in options])
    size = np.array([option.nbytes for option in options], dtype=float)
    cost = cost + 1e-6 * cost.max(initial=1.0) * size / max(size.max(initial=1.0), 1.0)
    solved = milp(
        cost,
        integrality=np.ones(len(options)),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one, 1, 1),
            LinearConstraint(errors[None] / scale, -np.inf, limit / scale * (1 + 1e-9)),
        ],
    )
    if solved.x is None:
        return None
    taken = [option for option, x in zip(options, solved.x) if x > 0.5]
    return Point(
        tuple((option.path, option.precision) for option in taken),
        sum(option.error for option in taken),
        sum(option.milliseconds for option in taken),
        sum(option.nbytes for option in taken),
    )


def precision_front(
    bench: Bench,
    recipe: Recipe = Recipe(),  # noqa: B008
    progress: bool = True,
    *,
    known: Front | None = None,
    seconds: float = math.inf,
) -> Front:
    """Measure every layer in every precision, and find the Pareto front.

    Args:
        recipe: the other changes to the model. Of the algorithms that work on integers, only `gptq` is run.
        known: the front of the same recipe without `gptq`: times, and what `gptq` does not change, are taken from it.
        seconds: after which `gptq` leaves the layers to come as they are.
    """
    stages = {algorithm.name: algorithm.stage for algorithm in ALGORITHMS}
    algorithms = tuple(name for name in recipe.algorithms if stages[name] is not Stage.INTEGERS)
    end = time.monotonic() + seconds
    layers: list[str] = []
    measured = _Measured(bench)
    options: list[Option] = []
    before = {} if known is None else {(option.path, option.precision): option for option in known.options}
    for precision in shown((INT8, *PRECISIONS), "measuring each layer in each way", progress):
        if known is not None and precision not in _WHOLE:
            options += [option for option in known.options if option.precision == precision]
            continue
        precisions = () if precision == INT8 else tuple((path, precision) for path in layers if _has(path, precision))
        # Only layers in int8 have ranges that need all the data.
        graph, prepared, _ = bench.calibrated(Recipe(algorithms, precisions), None if precision == INT8 else 1)
        layers = layers or _layers(prepared)
        quantized = convert_graph(prepared)
        if "gptq" in recipe.algorithms and precision in _WHOLE:
            bench.round(Recipe(("gptq",), precisions), graph, quantized, end - time.monotonic())
        times, sizes = ({}, {}) if known is not None else (_times(bench, quantized), _sizes(quantized))
        chosen = _chosen(prepared, layers, precision)
        errors = dict.fromkeys(chosen, 0.0)
        if precision != "float":
            errors = measured.errors(precision, graph, prepared, quantized, chosen)
        for path, error in errors.items():
            at, nbytes = path.removesuffix(PRODUCTS), 0 if path.endswith(PRODUCTS) else sizes.get(path, 0)
            found = Option(path, precision, error, times.get(at, 0.0), nbytes)
            options.append(replace(before[path, precision], error=error) if (path, precision) in before else found)
    return Front.of(options, measured.signal)


class _Measured:
    """Squared errors of the output with one layer quantized, on one or two of the batches."""

    def __init__(self, bench: Bench) -> None:
        graph = bench.graph
        many = sum(BY_ATEN[name].heavy for node in graph.graph.nodes if (name := aten_name(node) or "") in BY_ATEN)
        count = 1 if many > _MANY else _BATCHES
        self._inputs = [inputs_of(graph, batch) for batch in bench.inputs[:: -(-len(bench.inputs) // count)]]
        self._in_parts = fits(graph, self._inputs[0], MEMORY)
        self._gains: dict[str, float] = {}  # of a layer's own error, on its way to the output
        with torch.no_grad():
            self._wanted = [first_tensor(graph(*given)) for given in self._inputs]
        self.signal = sum(float(y.double().square().sum()) for y in self._wanted if y is not None)

    def errors(
        self,
        precision: str,
        graph: fx.GraphModule,
        prepared: Prepared,
        quantized: Quantized,
        chosen: dict[str, set[str]],
    ) -> dict[str, float]:
        """Of each layer that a graph computes in a way."""
        if not self._in_parts:
            return {path: self._alone(convert_layers(prepared, names)) for path, names in chosen.items()}
        values: dict[Identity, str] = {}
        by_name = {node.name: node for node in prepared.graph_module.graph.nodes}
        choices = prepared.choices()
        for path, names in chosen.items():
            for node in (by_name[name] for name in names):
                relu = choices[node].relu
                values |= {identity(part): path for part in (node, *([by_name[relu]] if relu else []))}
        found, powers = dict.fromkeys(chosen, 0.0), dict.fromkeys(chosen, 0.0)
        for given in self._inputs:
            here = LocalErrors(graph, quantized, values, given)
            for path in here.names():
                power = here.power(path)
                powers[path] += power
                # Halves and 4 bits err as 8 bits do, only less or more: what becomes of it at the output is known.
                found[path] += power * self._gains[path] if self._is_known(path, precision) else here.at_output(path)
        for path in found:
            if found[path] > 0 and powers[path] > 0:
                self._gains[path] = found[path] / powers[path]
        return found

    def _is_known(self, path: str, precision: str) -> bool:
        return precision in _ALIKE and path in self._gains

    def _alone(self, quantized: Quantized) -> float:
        total = 0.0
        with torch.no_grad():
            for given, right in zip(self._inputs, self._wanted):
                got = first_tensor(quantized(*given))
                total += float((got.double() - right.double()).square().sum())  # type: ignore[union-attr]
        return total


def dynamic_layers(bench: Bench) -> tuple[tuple[str, str], ...]:
    """All layers that can compute their ranges at run time instead of using calibrated ones; still int8, slightly
    slower.
    """
    layers = [path for path in _layers(bench.calibrated(Recipe(), 1)[1]) if _has(path, DYNAMIC)]
    prepared = bench.calibrated(Recipe((), tuple((path, DYNAMIC) for path in layers)), 1)[1]
    return tuple((path, DYNAMIC) for path in _chosen(prepared, layers, DYNAMIC))


def _front(options: Sequence[Option]) -> tuple[Point, ...]:
    least = sum(min(o.error for o in options if o.path == p) for p in {o.path for o in options})
    most = sum(max(o.error for o in options if o.path == p) for p in {o.path for o in options})
    smallest = min((o.error for o in options if o.error > 0), default=1.0)
    high = math.log(max(most, smallest))
    low = max(math.log(max(least, smallest)), high - _DECADES * math.log(10))
    limits = [least, *(math.exp(low + (high - low) * k / (_POINTS - 1)) for k in range(_POINTS))]
    found = [point for limit in limits if (point := choose(options, limit)) is not None]
    best = {point.precisions: point for point in found}.values()
    return tuple(
        sorted(
            (p for p in best if not any(q.milliseconds < p.milliseconds and q.error < p.error for q in best)),
            key=lambda p: (p.milliseconds, p.error),
        )
    )


def _layers(prepared: Prepared) -> list[str]:
    """Paths of modules with weights or products that are chosen for integers, each once."""
    found = [
        _name(node, choice)
        for node, choice in prepared.choices().items()
        if choice.precision not in (Precision.FLOAT, Precision.PASSED)
    ]
    return [path for path in dict.fromkeys(found) if path]


def _name(node: fx.Node, choice: Choice) -> str:
    """What recipes call a layer: its path; that of the module around it for a product; nothing for what is no layer."""
    if choice.operator is None or not choice.operator.heavy:
        return ""
    return origin(node).path + ("" if choice.operator.weights else PRODUCTS)


def _has(path: str, precision: str) -> bool:
    """Whether a layer can be computed in a way: products of two activations have no weights to round alone."""
    return precision in (INT8, DYNAMIC, "float") or not path.endswith(PRODUCTS)


def _chosen(prepared: Prepared, layers: list[str], precision: str) -> dict[str, set[str]]:
    """The layers that are computed in a way, each with the names of its nodes; all of them for float."""
    if precision == "float":
        return {path: set() for path in layers}
    found: dict[str, set[str]] = {}
    for node, choice in prepared.choices().items():
        path = _name(node, choice)
        is_default = precision == INT8 and choice.precision is not Precision.FLOAT
        if precision == TWICE and choice.operator is not None and choice.operator.name != "linear":
            continue
        if path in layers and _has(path, precision) and (choice.precision is _CHOSEN[precision] or is_default):
            found.setdefault(path, set()).add(node.name)
    return found


def _times(bench: Bench, quantized: Quantized) -> dict[str, float]:
    """Milliseconds of the steps of each module, in a program; in PyTorch where a step is missing."""
    nodes = {node.name: node for node in quantized.graph_module.graph.nodes}
    spent: dict[str, float] = {}
    given = bench.inputs[0]
    try:
        program = compile(quantized, given)
        runs = [program.profile(*given, runs=0) for _ in range(_RUNS)]
        made_by = [nodes.get(program.nodes.get(row.name, "")) for row in runs[0]]
        least = [1e3 * min(row.seconds for row in step) for step in zip(*runs)]
        rows = [(_path_of_step(node, row.op), took) for node, row, took in zip(made_by, runs[0], least)]
    except Unsupported:
        from zeropoint.comparison.timing import step_times

        rows = [(step.path, step.milliseconds) for step in step_times(quantized, given, _RUNS)]
    for path, milliseconds in rows:
        spent[path] = spent.get(path, 0.0) + milliseconds
    return spent


def _path_of_step(node: fx.Node | None, operator: str) -> str:
    """The module of a step. Its name is that of its result, which may come from another module behind the operator.

    Forms of an operator, such as ``linear_to_float`` and ``conv2d_relu``, begin with the name of the step.
    """
    at = node
    while at is not None and at.op == "call_function":
        if ".".join(str(at.target).split(".")[1:]).startswith(operator):
            return origin(at).path
        before = [n for n in at.all_input_nodes if n.op != "get_attr"]
        at = before[0] if len(before) == 1 else None
    return "" if node is None else origin(node).path


def _sizes(quantized: Quantized) -> dict[str, int]:
    """Bytes of the constants of each module."""
    found: dict[str, int] = {}
    for node in quantized.graph_module.graph.nodes:
        if node.op != "call_function":
            continue
        for used in node.all_input_nodes:
            if used.op == "get_attr":
                value = quantized.graph_module
                for part in str(used.target).split("."):
                    value = getattr(value, part)
                path = origin(node).path
                found[path] = found.get(path, 0) + value.numel() * value.element_size()
    return found
