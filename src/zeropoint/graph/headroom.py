"""Headroom: ranges that go a little beyond what calibration saw, if it saw little.

The largest value of a batch varies from batch to batch, about as a Gumbel variable does: for values like those of a
normal distribution by ``b = m / (2 ln n)``, `m` the largest of `n` values. All but one in forty batches stay below the
usual largest value plus ``3.7 b``, and `k` batches of calibration have shown the usual one plus ``b ln k``. What is left::

    headroom(k) = (3.7 - ln k) / (2 ln n)        of the larger end of a range, 0 from 41 batches on; n = 4096

A wider range costs ``20 log10(1 + headroom)`` dB everywhere, 1.4 dB for two batches; one value that is cut off can cost
more than ten.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.equalize import ChannelStatistics
from zeropoint.graph.passes.insert_observers import is_observer
from zeropoint.nn.quantized.storage import found_qparams, has_observed
from zeropoint.numerics.qparams import qparams_from_range
from zeropoint.observers import FixedQParamsObserver

__all__ = ["headroom_of", "leave_headroom"]

_SPREADS = 3.7  # above the usual largest value of a batch: one in forty is larger
_VALUES = 4096


def headroom_of(batches: int) -> float:
    """The part of a range to leave free beyond what so many batches have shown.

    Example:
        >>> [round(headroom_of(batches), 3) for batches in (1, 2, 8, 20, 1000)]
        [0.222, 0.181, 0.097, 0.042, 0.0]
    """
    seen = math.log(max(batches, 1))
    return max(0.0, round((_SPREADS - seen) / (2 * math.log(_VALUES)), 3))


def leave_headroom(graph: fx.GraphModule, headroom: float) -> None:
    """Widen the ranges that the observers of a calibrated graph found; an end that is 0 stays."""
    if headroom == 0:
        return
    widened: dict[int, FixedQParamsObserver] = {}
    for node in graph.graph.nodes:
        observer: Any = graph.get_submodule(str(node.target)) if is_observer(node) else None
        if observer is None or isinstance(observer, (FixedQParamsObserver, ChannelStatistics)):
            continue
        if has_observed(observer):
            if id(observer) not in widened:
                widened[id(observer)] = _widened(observer, headroom)
            setattr(graph, str(node.target), widened[id(observer)])


def _widened(observer: Any, headroom: float) -> FixedQParamsObserver:
    scale, zero_point = (float(found) for found in found_qparams(observer))
    low, high = ((end - zero_point) * scale for end in (observer.quant_min, observer.quant_max))
    beyond = headroom * max(-low, high)
    ends = torch.tensor([low - beyond if low < 0 else 0.0, high + beyond if high > 0 else 0.0])
    options = {"qmin": observer.quant_min, "qmax": observer.quant_max, "eps": observer.eps, "scheme": observer.qscheme}
    scales, zero_points = qparams_from_range(*ends, symmetric_zero_point=int(zero_point), **options)
    limits = {"quant_min": observer.quant_min, "quant_max": observer.quant_max}
    return FixedQParamsObserver(float(scales), int(zero_points), observer.dtype, observer.qscheme, **limits)
