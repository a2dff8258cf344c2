"""Medians, quantiles, modes and running values: what depends on the order of values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.graph.passes.compositions.common import NotComposed, aten, axis_of, compose, counted, not_of_none


def _place_in_order(x: Tensor, place: Any, axis: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    values, places = aten.sort.stable(x, stable=True, dim=axis)
    found = [part.narrow(axis, place, 1) for part in (values, places)]
    first, second = found if keepdim else [part.squeeze(axis) for part in found]
    return first, second


def _number(x: Tensor) -> tuple[Tensor, Tensor]:
    """A number is the only one in order."""
    return x.clone(), torch.zeros_like(x, dtype=torch.int64)


def _median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The one in the middle, the first of two; NaN if one is: it is the last in order."""
    if x.dim() == 0:
        return _number(x)
    axis = axis_of(x, dim)
    values, places = _place_in_order(x, (x.shape[axis] - 1) // 2, axis, keepdim)
    if not x.is_floating_point():
        return values, places
    last, at = aten.max.dim(x, axis, keepdim)  # which is NaN if one is
    return torch.where(last.isnan(), last, values), torch.where(last.isnan(), at, places)


def _nan_median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The one in the middle of those that are numbers."""
    if x.dim() == 0:
        return _number(x)
    if not x.is_floating_point():
        return _median(x, dim, keepdim)
    axis = axis_of(x, dim)
    values, places = aten.sort.stable(x, stable=True, dim=axis)
    count = x.isnan().logical_not().long().sum(axis, keepdim=True)
    middle = torch.div(count - 1, 2, rounding_mode="floor").clamp(min=0)
    found = [part.gather(axis, middle) for part in (values, places)]
    first, second = found if keepdim else [part.squeeze(axis) for part in found]
    return first, second


def _nan_median_of_all(x: Tensor) -> Tensor:
    return _nan_median(x.reshape(-1), 0)[0]


def _kth_value(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _number(x) if x.dim() == 0 else _place_in_order(x, k - 1, axis_of(x, dim), keepdim)


def _mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The value that is there most often, the least of several: of values in order, the first of the longest run."""
    if x.dim() == 0:
        return _number(x)
    axis = axis_of(x, dim)
    if x.dtype == torch.bool:
        values, places = _mode(x.long(), axis, keepdim)
        return values.bool(), places
    values, places = aten.sort.stable(x, stable=True, dim=axis)
    here = counted(values, axis)
    before = values.narrow(axis, 0, 1) != values.narrow(axis, 0, 1)
    size = values.shape[axis]
    changes = torch.cat([before, values.narrow(axis, 1, size - 1) != values.narrow(axis, 0, size - 1)], axis)
    begins = torch.where(changes, here, torch.zeros_like(here)).cummax(axis)[0]
    most = (here - begins).max(axis, keepdim=True)[1]  # where the first of the longest runs ends
    found = [part.gather(axis, most) for part in (values, places)]
    first, second = found if keepdim else [part.squeeze(axis) for part in found]
    return first, second


def _quantile(
    x: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    nans: bool = False,
) -> Tensor:
    """Between two neighbours in order, as near to each as the number says; NaN if one is, or of the others."""
    rank = x.dim()
    axis = 0 if dim is None or rank == 0 else axis_of(x, dim)
    rows = x.reshape(-1) if dim is None or rank == 0 else x
    values = aten.sort.stable(rows, stable=True, dim=axis)[0].movedim(axis, -1)
    missing = values.isnan()
    count = missing.logical_not().to(x.dtype).sum(-1, keepdim=True)
    last = (count if nans else torch.ones_like(values).sum(-1, keepdim=True)) - 1
    place = last.clamp(min=0) * q
    if not nans:
        place = torch.where(missing.any(-1, keepdim=True), last, place)
    if interpolation == "nearest":
        place = place.round()
    elif interpolation in ("lower", "higher"):
        place = place.floor() if interpolation == "lower" else place.ceil()
    low = values.gather(-1, place.floor().long())
    if interpolation in ("linear", "midpoint"):
        share = torch.full_like(place, 0.5) if interpolation == "midpoint" else place - place.floor()
        low = torch.lerp(low, values.gather(-1, place.ceil().long()), share)
    low = not_of_none(low, x)
    several = isinstance(q, Tensor) and q.dim() == 1
    if keepdim:
        shape = [1] * rank if dim is None else None
        found = low.movedim(-1, 0)
        if shape is not None:
            return found.reshape([-1, *shape] if several else shape)
        return found.unsqueeze(axis + 1) if several else found.squeeze(0).unsqueeze(axis)
    return low.movedim(-1, 0) if several else low.squeeze(-1)


def _nan_quantile(
    x: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    return _quantile(x, q, dim, keepdim, interpolation=interpolation, nans=True)


def _before(x: Tensor, axis: int) -> Tensor:
    """For each place of the last axis, which are not behind it."""
    places = counted(x, axis).movedim(axis, -1)
    return places.unsqueeze(-2) <= places.unsqueeze(-1)


def _running_log_sum(x: Tensor, dim: int) -> Tensor:
    if x.dim() == 0:
        return x.clone()
    axis = axis_of(x, dim)
    row = x.movedim(axis, -1).unsqueeze(-2)
    return torch.where(_before(x, axis), row, torch.full_like(row, -torch.inf)).logsumexp(-1).movedim(-1, axis)


def _running_extreme(name: str) -> Any:
    def made(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if x.dtype != torch.bool:
            raise NotComposed
        values, places = getattr(torch, name)(x.long(), dim)
        return values.bool(), places

    return made


compose("median.dim", _median)
compose("nanmedian.dim", _nan_median)
compose("nanmedian.default", _nan_median_of_all)
compose("kthvalue.default", _kth_value)
compose("mode.default", _mode)
compose("quantile.default", _quantile)
compose("quantile.scalar", _quantile)
compose("nanquantile.default", _nan_quantile)
compose("nanquantile.scalar", _nan_quantile)
compose("logcumsumexp.default", _running_log_sum)
compose("cummax.default", _running_extreme("cummax"))
compose("cummin.default", _running_extreme("cummin"))
