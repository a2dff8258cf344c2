"""How much calibration data is enough: until the ranges stop moving."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from zeropoint.graph.passes.equalize import ChannelStatistics
from zeropoint.graph.passes.insert_observers import is_observer
from zeropoint.graph.policy import Policy
from zeropoint.graph.provenance import origin
from zeropoint.graph.state_buffers import reset_state
from zeropoint.graph.to_int8 import call_of, evaluated, prepare_int8
from zeropoint.nn.quantized.storage import found_qparams, has_observed
from zeropoint.table import plain_table, rich_table

_STILL = 0.02  # of a scale: 5 of 255 steps, which is less than rounding itself moves a value in most layers
_SLOWEST = 5  # layers that a table shows


@dataclass(frozen=True)
class CalibrationAdvice:
    """What `calibration_advice` found. Prints as a table and a sentence.

    Attributes:
        batches: after how many batches no range moved any more; None if some still did at the end.
        seen: how many batches there were.
        moved: after 1, 2, 4, ... batches, the largest change of a scale up to the end, as a part of the last one.
        slowest: the modules whose ranges settled last, each with the number of batches.
    """

    batches: int | None
    seen: int
    moved: tuple[tuple[int, float], ...]
    slowest: tuple[tuple[str, int], ...]

    HEADER = ("batches", "largest change of\na scale after them")

    def table(self) -> list[tuple[str, ...]]:
        """A row for each number of batches that was looked at."""
        return [(str(count), f"{moved:.1%}") for count, moved in self.moved]

    def _last(self) -> str:
        late = ", ".join(f"{path or '(input)'} ({count})" for path, count in self.slowest)
        if self.batches is None:
            return f"{self.seen} batches are not enough: the ranges are still changing. Last to change: {late}"
        return f"{self.batches} of {self.seen} batches are enough. Last to change: {late}"

    def __str__(self) -> str:
        return "\n".join([plain_table(self.HEADER, self.table()), self._last()])

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(rich_table(self.HEADER, self.table()), self._last())


def calibration_advice(
    model: nn.Module,
    example_inputs: Any,
    calibration: Iterable[Any],
    policy: Policy | Mapping[str, Any] | None = None,
) -> CalibrationAdvice:
    """Calibrate a model and report the number of batches after which its ranges stop changing.

    A range has settled when its scale stays within 2% of the final one. The function reads the data once and does not
    keep it. It can only conclude that at most half of the batches were enough, or that the model needs more: the last
    batches cannot show whether the ranges would change further.

    Raises:
        ValueError: without a batch.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 2)).eval()
        >>> batches = [torch.randn(8192, 4).clamp(-1, 1) for _ in range(16)]
        >>> advice = calibration_advice(model, (batches[0],), batches)
        >>> advice.seen, advice.batches <= 8
        (16, True)
    """
    prepared, _ = prepare_int8(evaluated(model), example_inputs, None, "static", _of_what_was_seen(policy))
    graph = prepared.graph_module
    history: list[tuple[int, dict[str, float]]] = []
    seen, wait = 0, 1
    with torch.no_grad():
        for batch in calibration:
            args, kwargs = call_of(batch)
            reset_state(graph)
            prepared(*args, **kwargs)
            seen += 1
            if seen == wait:
                history.append((seen, _scales(graph)))
                wait = max(seen + 1, math.ceil(seen * math.sqrt(2)))
    if not seen:
        raise ValueError("calibration_advice: calibration is empty: pass at least one batch")
    last = _scales(graph)
    moved = tuple((count, max((_change(at, last, name) for name in last), default=0.0)) for count, at in history)
    settled = {name: _settled(history, last, name, seen) for name in last}
    paths = {str(node.target): origin(node).path for node in graph.graph.nodes if is_observer(node)}
    slowest = sorted(settled, key=lambda name: -settled[name])[:_SLOWEST]
    enough = max(settled.values(), default=1)
    return CalibrationAdvice(
        enough if enough <= seen / 2 else None, seen, moved, tuple((paths[name], settled[name]) for name in slowest)
    )


def _of_what_was_seen(policy: Policy | Mapping[str, Any] | None) -> Policy | dict[str, Any]:
    """The policy, without room for values that may still come."""
    if isinstance(policy, Policy):
        return replace(policy, widen_ranges=False)
    return {**(policy or {}), "widen_ranges": False}


def _scales(graph: Any) -> dict[str, float]:
    found = {}
    for node in graph.graph.nodes:
        if is_observer(node):
            observer = graph.get_submodule(str(node.target))
            observer = observer.post_process if isinstance(observer, ChannelStatistics) else observer
            if has_observed(observer):
                found[str(node.target)] = float(found_qparams(observer)[0])
    return found


def _change(at: dict[str, float], last: dict[str, float], name: str) -> float:
    return abs(at.get(name, 0.0) / last[name] - 1)


def _settled(history: list[tuple[int, dict[str, float]]], last: dict[str, float], name: str, seen: int) -> int:
    """The first number of batches from which on a scale stayed near its last value."""
    found = seen
    for count, at in reversed(history):
        if _change(at, last, name) > _STILL:
            break
        found = count
    return found
