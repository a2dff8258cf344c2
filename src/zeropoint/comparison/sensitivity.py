"""What each layer costs in the end: the model with one layer quantized, and with more and more of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from zeropoint.comparison.layers import finite
from zeropoint.comparison.pairs import first_tensor
from zeropoint.comparison.script_layers import ScriptLayers
from zeropoint.described import described
from zeropoint.graph.passes.annotate import Choice, Precision
from zeropoint.graph.provenance import origin
from zeropoint.graph.to_int8 import calibrate, call_of, evaluated, prepare_int8
from zeropoint.graph.workflow import Prepared, convert_layers, equalized
from zeropoint.html_table import html_table
from zeropoint.numerics.distance import Distance
from zeropoint.progress import shown
from zeropoint.table import plain_table, rich_table

Metric = Callable[[nn.Module], float]


@dataclass(frozen=True)
class SensitivityRow:
    """One layer: the metric of the model with it alone quantized, and with it and every less sensitive one."""

    name: str
    path: str
    operator: str
    alone: float
    cumulative: float | None


@dataclass(frozen=True)
class Sensitivity:
    """The result of `sensitivity`. Prints as a table, the most sensitive layer first."""

    rows: tuple[SensitivityRow, ...]
    metric: str
    float_metric: float  # of the model in float

    def keep_in_float(self, lowest: float) -> tuple[str, ...]:
        """The layers to keep in float for a metric of at least `lowest`, according to the cumulative column."""
        below = [i for i, row in enumerate(self.rows) if row.cumulative is not None and row.cumulative < lowest]
        return tuple(row.path for row in self.rows[: max(below) + 1]) if below else ()

    def to_json(self) -> str:
        """All results as JSON. Infinite values are null."""
        return json.dumps(finite(asdict(self)))

    def _header(self) -> tuple[str, ...]:
        return ("layer", "operator", f"{self.metric}\nalone", f"{self.metric}\nwith all below")

    def table(self) -> list[tuple[str, ...]]:
        """The rows as text."""
        return [
            (r.path or "(model)", r.operator, f"{r.alone:.4g}", "" if r.cumulative is None else f"{r.cumulative:.4g}")
            for r in self.rows
        ]

    def _last(self) -> str:
        return f"in float: {self.metric} {self.float_metric:.4g}"

    def __str__(self) -> str:
        return "\n".join([plain_table(self._header(), self.table()), self._last()])

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(rich_table(self._header(), self.table()), self._last())

    def _repr_html_(self) -> str:
        return html_table(self._header(), self.table(), self._last())


def sensitivity(
    model: nn.Module,
    data: Iterable[Any],
    metric: str | Metric = "sqnr",
    *,
    qconfig: Any = None,
    mode: str = "static",
    cumulative: bool = True,
    progress: bool = True,
    policy: Any = None,
) -> Sensitivity:
    """Quantize one layer at a time, then all layers cumulatively, and measure the whole model each time.

    Args:
        model: any module that `torch.export` can capture, or TorchScript, whose layers are its modules.
        data: batches for calibration and measurement. A batch is a tensor, a tuple of positional arguments, or a
            dictionary of keyword arguments.
        metric: "sqnr" (dB), "cosine" or "agreement" (of the largest output) with the float model on `data`, or a
            function that takes a model and returns a number. Larger is better.
        qconfig, mode, policy: as for `to_int8`.
        cumulative: also quantize the least sensitive layer, the two least sensitive layers, and so on.
        progress: show a progress bar on a terminal.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> found = sensitivity(model, [torch.randn(16, 4) for _ in range(4)])
        >>> sorted(row.path for row in found.rows)
        ['0', '2']
    """
    batches = list(data)
    if not batches:
        raise ValueError("sensitivity: data is empty: pass at least one batch")
    if isinstance(model, torch.jit.ScriptModule):
        script = ScriptLayers(model, batches, qconfig, mode)
        layers, with_layers = script.layers, script.with_layers
    else:
        prepared = _calibrated(model, batches, qconfig, mode, policy, progress)
        layers = [(n.name, origin(n).path, _operator(c)) for n, c in prepared.choices().items() if _is_layer(c)]
        with_layers = partial(convert_layers, prepared)
    measure = measure_of(model, batches, metric)
    title = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")
    with torch.no_grad():
        in_float = measure(model)
        alone = {name: measure(with_layers({name})) for name, _, _ in shown(layers, "one layer at a time", progress)}
        ranked = sorted(layers, key=lambda layer: alone[layer[0]])
        together: dict[str, float] = {}
        if cumulative:
            quantized: set[str] = set()
            for name, _, _ in shown(ranked[::-1], "more and more layers", progress):
                quantized.add(name)
                together[name] = measure(with_layers(quantized))
    rows = [SensitivityRow(n, path, operator, alone[n], together.get(n)) for n, path, operator in ranked]
    return Sensitivity(tuple(rows), title, in_float)


def _calibrated(model: nn.Module, batches: list[Any], qconfig: Any, mode: str, policy: Any, progress: bool) -> Prepared:
    model = evaluated(model)
    args, kwargs = call_of(batches[0])
    if kwargs:
        raise ValueError("sensitivity: the first batch must be a tensor or a tuple of arguments, got a dictionary")
    prepared, policy = prepare_int8(model, args, qconfig, mode, policy)
    if mode == "static":
        calibrate(prepared, batches, policy, progress)
    elif policy.recurrent_weights == "auto":
        prepared.choose_recurrent_weights(*args)
    return equalized(prepared)


def _is_layer(choice: Choice) -> bool:
    return choice.precision not in (Precision.FLOAT, Precision.PASSED, Precision.FUSED)


def _operator(choice: Choice) -> str:
    return str(choice.operator.name) + ("_relu" if choice.relu else "")


def measure_of(model: nn.Module, batches: list[Any], metric: str | Metric) -> Metric:
    """The metric as a function of a model."""
    if callable(metric):
        return metric
    if metric not in ("sqnr", "cosine", "agreement"):
        raise ValueError(f"metric must be sqnr, cosine, agreement or a function of a model, got {described(metric)}")
    calls = [call_of(batch) for batch in batches]
    with torch.no_grad():
        wanted = [first_tensor(model(*args, **kwargs)) for args, kwargs in calls]

    def measure(candidate: nn.Module) -> float:
        distance, same, count = Distance(), 0, 0
        for (args, kwargs), right in zip(calls, wanted):
            got = first_tensor(candidate(*args, **kwargs))
            assert right is not None
            assert got is not None
            distance.add(right, got)
            same += int((right.argmax(-1) == got.argmax(-1)).sum())
            count += right.argmax(-1).numel()
        if metric == "agreement":
            return same / count
        return distance.sqnr if metric == "sqnr" else distance.cosine

    return measure
