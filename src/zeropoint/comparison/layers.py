"""Which layers lose accuracy: a float model and its quantized form, layer by layer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sized
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.comparison.pairs import Layer, Pair, first_tensor, pairs_of
from zeropoint.graph.to_int8 import call_of
from zeropoint.html_table import Bar, html_table
from zeropoint.numerics.distance import Distance
from zeropoint.progress import shown
from zeropoint.table import plain_table, rich_table

HEADER = ("layer", "operator", "computed", "SQNR\ndB", "alone\ndB", "cosine", "clipped", "share of\nthe error", "why")
LOW = 35.0  # dB alone: a layer that has more needs no excuse
CLIPPED = 0.01  # more values than this at the ends of the range are a reason
WEIGHT_SQNR = 30.0  # dB: weights of 8 bits have more, unless outliers take the range
NARROW = 0.1  # nearly all values use less than this part of the range


@dataclass(frozen=True)
class LayerRow:
    """One layer.

    Attributes:
        sqnr: dB, the output compared with the float model. Includes the error of all layers before it.
        alone: dB, the output compared with the float layer on the same inputs. The error of this layer only.
        share: the part of the total error that this layer adds, relative to its signal.
        clipped: the fraction of values outside the range by more than one step.
        weight_sqnr: dB, the integer weight compared with the float weight, without the largest tenth of the weights,
            which can hide the noise in the others. None without such a weight.
        why: the likely cause and a fix, for layers with a large error.
    """

    name: str
    path: str
    operator: str
    computed: str
    sqnr: float
    alone: float
    cosine: float
    share: float
    clipped: float
    low: float
    high: float
    scale: float | None
    zero_point: int | None
    dtype: str
    weight_sqnr: float | None
    nbytes: int
    float_nbytes: int
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. Prints as a table, the layer with the largest error first."""

    rows: tuple[LayerRow, ...]  # ranked by share
    sqnr: float  # dB, of the output
    cosine: float
    batches: int
    order: tuple[str, ...] = field(default=(), repr=False)  # names, as the layers compute

    def in_order(self) -> tuple[LayerRow, ...]:
        """The rows in execution order."""
        place = {name: i for i, name in enumerate(self.order)}
        return tuple(sorted(self.rows, key=lambda row: place[row.name]))

    def to_json(self) -> str:
        """All results as JSON. Infinite values are null."""
        return json.dumps(finite(asdict(self)))

    def table(self) -> list[tuple[str, ...]]:
        """The rows as text, under `HEADER`."""
        return [
            (
                row.path or "(model)",
                row.operator,
                row.computed,
                f"{row.sqnr:.1f}",
                f"{row.alone:.1f}",
                f"{row.cosine:.4f}",
                f"{row.clipped:.2%}" if row.scale is not None else "",
                f"{row.share:.1%}",
                row.why.split(":")[0],
            )
            for row in self.rows
        ]

    def _output(self) -> str:
        return f"output: SQNR {self.sqnr:.1f} dB, cosine {self.cosine:.5f}, over {self.batches} batches"

    def __str__(self) -> str:
        lines = [plain_table(HEADER, self.table()), self._output()]
        return "\n".join(lines)

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(rich_table(HEADER, self.table()), self._output())

    def _repr_html_(self) -> str:
        most = max((row.share for row in self.rows), default=0.0) or 1.0
        rows = [(*cells[:7], Bar(cells[7], row.share / most), row.why) for row, cells in zip(self.rows, self.table())]
        return html_table(HEADER, rows, self._output())


class _Sums:
    """What is known about a layer so far."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.all, self.alone = Distance(), Distance()
        self.clipped = self.count = 0
        self.low, self.high = math.inf, -math.inf
        self.used: list[float] = []

    def add(self, pair: Pair) -> None:
        self.all.add(pair.wanted, pair.got)
        self.alone.add(pair.alone, pair.got)
        values = pair.wanted
        if values.numel():
            low, high = (float(v) for v in values.aminmax())
            if not (math.isfinite(low) and math.isfinite(high)):
                values = values[values.isfinite()]
                low, high = (float(v) for v in values.aminmax()) if values.numel() else (0.0, 0.0)
            self.low, self.high = min(self.low, low), max(self.high, high)
            self.used.append(_bulk(values) / max(high - low, 1e-30))
        if pair.integers is not None and self.layer.scale is not None:
            kind, zero_point = torch.iinfo(pair.integers.dtype), self.layer.zero_point or 0
            steps = pair.alone / self.layer.scale + zero_point
            self.clipped += int(((steps < kind.min - 1) | (steps > kind.max + 1)).sum())
            self.count += pair.got.numel()

    def row(self, total: float) -> LayerRow:
        layer = self.layer
        weight_sqnr = None
        if layer.weight is not None and layer.rounded_weight is not None:
            weight_sqnr = _weight_sqnr(layer.weight, layer.rounded_weight)
        clipped = self.clipped / self.count if self.count else 0.0
        return LayerRow(
            name=layer.name,
            path=layer.path,
            operator=layer.operator,
            computed=layer.computed,
            sqnr=self.all.sqnr,
            alone=self.alone.sqnr,
            cosine=self.all.cosine,
            share=_part(self.alone.relative, total),
            clipped=clipped,
            low=self.low,
            high=self.high,
            scale=layer.scale,
            zero_point=layer.zero_point,
            dtype=layer.dtype,
            weight_sqnr=weight_sqnr,
            nbytes=layer.nbytes,
            float_nbytes=layer.float_nbytes,
            why=_why(layer, clipped, weight_sqnr, min(self.used, default=1.0)) if self.alone.sqnr < LOW else "",
        )


def compare(
    float_model: nn.Module,
    quantized: nn.Module,
    data: Iterable[Any],
    *,
    progress: bool = True,
    watch: Callable[[Pair], None] | None = None,
) -> Comparison:
    """Compare a model with its quantized version, layer by layer.

    ``sqnr = 10 log10(sum x² / sum (x - q)²)``, with x from the float model and q from the quantized model, is the error
    accumulated up to a layer. With x from the *float layer on the quantized inputs*, it is `alone`, the error of that
    layer only. The share of a layer is its noise-to-signal ratio alone, divided by the sum over all layers.

    Args:
        float_model: the original model, in evaluation mode.
        quantized: its int8 version, from `to_int8`, `convert_graph`, `convert`, `quantize_dynamic` or `convert_jit`.
        data: batches. A batch is a tensor, a tuple of positional arguments, or a dictionary of keyword arguments.
        progress: show a progress bar on a terminal.
        watch: a function that is called with every pair of values, to collect more statistics.

    Raises:
        ValueError: without a batch, or if `quantized` was made from another model.
        NotImplementedError: for TorchScript with data-dependent control flow; use `compare_outputs` instead.

    Example:
        >>> import zeropoint
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> batches = [torch.randn(16, 4) for _ in range(4)]
        >>> quantized = zeropoint.to_int8(model, (batches[0],), batches, progress=False)
        >>> comparison = compare(model, quantized, batches)
        >>> sorted(row.operator for row in comparison.rows), comparison.sqnr > 20
        (['linear_relu', 'linear_to_float', 'quantize'], True)
    """
    batches = iter(data)
    first = next(batches, None)
    if first is None:
        raise ValueError("compare: data is empty: pass at least one batch")
    pairs = pairs_of(float_model, quantized, first)
    sums = {layer.name: _Sums(layer) for layer in pairs.layers()}
    output, count = Distance(), 0
    total = len(data) if isinstance(data, Sized) else None
    with torch.no_grad():
        for batch in shown(chain([first], batches), "comparing", progress, total):
            count += 1
            for pair in pairs.run(batch):
                if pair.layer.name == "output":
                    output.add(pair.wanted, pair.got)
                else:
                    sums[pair.layer.name].add(pair)
                if watch is not None:
                    watch(pair)
    seen = [s for s in sums.values() if s.all.count]
    errors = [s.alone.relative for s in seen]
    total_error = sum(e for e in errors if e < math.inf) if math.inf not in errors else math.inf
    rows = [s.row(total_error) for s in seen]
    ranked = sorted(rows, key=lambda row: (-row.share, row.sqnr))
    return Comparison(tuple(ranked), output.sqnr, output.cosine, count, tuple(row.name for row in rows))


def compare_outputs(float_model: Any, other: Any, data: Iterable[Any]) -> Distance:
    """How far the outputs of two models are apart; `other` may be anything that is called like the float model."""
    distance = Distance()
    with torch.no_grad():
        for batch in data:
            args, kwargs = call_of(batch)
            wanted, got = (first_tensor(model(*args, **kwargs)) for model in (float_model, other))
            if wanted is None or got is None:
                raise ValueError("the models return no tensors to compare: they must return at least one")
            distance.add(wanted, torch.as_tensor(got))
    return distance


def _part(error: float, total: float) -> float:
    if total == math.inf:
        return 1.0 if error == math.inf else 0.0
    return error / total if total > 0.0 else 0.0


def _bulk(values: Tensor) -> float:
    """The width of the middle 99.8% of the values, of a sample of them."""
    flat = values.detach().flatten()
    if flat.numel() == 0:
        return 0.0
    if flat.numel() > 10_000:
        flat = flat[:: flat.numel() // 10_000]
    low, high = torch.quantile(flat.float(), torch.tensor([0.001, 0.999])).tolist()
    return high - low


def _weight_sqnr(weight: Tensor, rounded: Tensor) -> float:
    size = weight.abs().flatten()
    most = size <= size.kthvalue(max(1, int(0.9 * size.numel()))).values
    distance = Distance()
    distance.add(weight.flatten()[most], rounded.flatten()[most])
    return distance.sqnr


def _why(layer: Layer, clipped: float, weight_sqnr: float | None, used: float) -> str:
    if layer.computed == "float32":
        return ""
    if clipped > CLIPPED:
        return f"{clipped:.1%} clipped: calibrate with more data, or with an observer that keeps the whole range"
    if weight_sqnr is not None and weight_sqnr < WEIGHT_SQNR:
        return f"outliers in the weight ({weight_sqnr:.0f} dB): use per-channel weights, or keep it in float"
    if layer.scale is not None and used < NARROW:
        return (
            f"outliers in the output (99.8% of the values use {used:.0%} of the range): use HistogramObserver or "
            "PercentileObserver, or keep it in float"
        )
    return ""


def finite(value: Any) -> Any:
    """`value` with None for what JSON cannot say: numbers that are infinite or none.

    Example:
        >>> finite({"a": (1.0, math.inf)})
        {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
