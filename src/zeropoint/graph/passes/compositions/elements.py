"""Functions of single elements as other operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zeropoint.graph.passes.compositions.common import NotComposed, aten, compose, counted
from zeropoint.operators.node import overload_key


def _rounded(x: Tensor, decimals: int) -> Tensor:
    if decimals == 0 or not x.is_floating_point():
        return x.round() if x.is_floating_point() else x.clone()
    tens = float(10 ** abs(decimals))
    return (x * tens).round() / tens if decimals > 0 else (x / tens).round() * tens


def _heaviside(x: Tensor, values: Tensor) -> Tensor:
    return torch.where(x == 0, values, (x > 0).to(x.dtype))


def _extreme_of_integers(extreme: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def made(x: Tensor, y: Tensor) -> Tensor:
        if x.is_floating_point() or y.is_floating_point():
            raise NotComposed
        return extreme(x, y)

    return made


def _both_extremes(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    axes = list(range(x.dim())) if dim is None else [dim]
    return x.amin(axes, keepdim), x.amax(axes, keepdim)


def _leaky(x: Tensor, weight: Tensor) -> Tensor:
    """``prelu`` with slopes that are computed."""
    if weight.dim() and x.dim() > 1:
        weight = weight.reshape([1, -1] + [1] * (x.dim() - 2))
    return torch.where(x > 0, x, weight * x)


def _differences(
    x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    if n == 1:
        raise NotComposed
    if n == 0:
        return x.clone()
    given = [part for part in (prepend, x, append) if part is not None]
    x = torch.cat(given, dim) if len(given) > 1 else x
    for _ in range(n):
        x = aten.diff(x, 1, dim)
    return x


def _as_floats(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of floats, for integers."""

    def made(x: Tensor, *args: Any, **options: Any) -> Tensor:
        if x.is_floating_point():
            raise NotComposed
        return call(x.to(torch.float32), *args, **options)

    return made


def _angle(x: Tensor) -> Tensor:
    """Of real numbers: half a turn for those that are negative."""
    if x.dtype == torch.bool:
        return torch.zeros_like(x, dtype=torch.float32)
    found = torch.where(x < 0, torch.tensor(math.pi), torch.tensor(0.0))
    return torch.where(x.isnan(), x, found) if x.is_floating_point() else found


def _sign_bit(x: Tensor) -> Tensor:
    if x.is_floating_point():
        raise NotComposed
    return torch.zeros_like(x) if x.dtype == torch.bool else x < 0


def _clamp_to_six(x: Tensor) -> Tensor:
    if x.is_floating_point():
        raise NotComposed
    return x.clamp(0, 6)


def _add_product(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    if x.is_floating_point():
        raise NotComposed
    return x + a * b * int(value)


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    """As a loss is told: each value, their mean, their sum."""
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


def _margin_ranking_loss(x: Tensor, y: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1) -> Tensor:
    return _reduced((margin - target * (x - y)).clamp(min=0), reduction)


def _hinge_embedding_loss(x: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1) -> Tensor:
    """The distance of those that are alike, and what is missing to a margin of the others."""
    zeros = torch.zeros_like(x)
    apart = torch.where(target != 1, (margin - x).clamp(min=0), zeros)
    return _reduced(apart + torch.where(target != -1, x, zeros), reduction)


def _two_sided_area(x: Tensor, steps: Any, dim: int) -> Tensor:
    """What lies below the lines between neighbours, each."""
    axis = dim % x.dim()
    size = x.shape[axis]
    both = x.narrow(axis, 0, size - 1) + x.narrow(axis, 1, size - 1)
    return both * steps / 2.0


def _steps_of(y: Tensor, x: Tensor, dim: int) -> Tensor:
    if x.dim() == 1 and y.dim() > 1:
        x = x.reshape([-1] + [1] * (y.dim() - 1 - dim % y.dim()))
        return x.diff(dim=0)
    if x.dim() != y.dim():
        raise NotComposed
    return x.diff(dim=dim)


def _area_between(y: Tensor, x: Tensor, *, dim: int = -1) -> Tensor:
    return _two_sided_area(y, _steps_of(y, x, dim), dim).sum(dim)


def _running_area(y: Tensor, *, dx: Any = 1, dim: int = -1) -> Tensor:
    axis = dim % y.dim()
    size = y.shape[axis]
    both = y.narrow(axis, 0, size - 1) + y.narrow(axis, 1, size - 1)
    return dx / 2.0 * both.cumsum(axis)


def _running_area_between(y: Tensor, x: Tensor, *, dim: int = -1) -> Tensor:
    return _two_sided_area(y, _steps_of(y, x, dim), dim).cumsum(dim)


def _multi_margin_loss(
    x: Tensor, target: Tensor, p: Any = 1, margin: Any = 1, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """How far each other class is above that of the target less a margin."""
    rows, classes = (x, target) if x.dim() == 2 else (x.reshape(1, -1), target.reshape(1))
    own = classes.unsqueeze(-1)
    above = rows - rows.gather(1, own) + margin
    above = torch.where((above > 0) & (counted(rows, 1) != own), above, torch.zeros_like(above))
    above = above * above if p == 2 else above
    above = above if weight is None else above * weight.gather(0, classes).unsqueeze(-1)
    loss = above.mean(1)
    return _reduced(loss if x.dim() == 2 else loss.squeeze(0), reduction)


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """How far classes that are no targets are above each that is, less one; targets end with the first below 0."""
    rows, given = (x, target) if x.dim() == 2 else (x.reshape(1, -1), target.reshape(1, -1))
    valid = (given < 0).long().cumsum(1) == 0
    given = torch.where(valid, given, torch.zeros_like(given))
    places = counted(rows, 1).unsqueeze(1)
    is_target = ((given.unsqueeze(2) == places) & valid.unsqueeze(2)).any(1)
    above = 1 - rows.gather(1, given).unsqueeze(2) + rows.unsqueeze(1)
    counts = (above > 0) & valid.unsqueeze(2) & is_target.logical_not().unsqueeze(1)
    loss = torch.where(counts, above, torch.zeros_like(above)).sum(1).mean(1)
    return _reduced(loss if x.dim() == 2 else loss.squeeze(0), reduction)


def _in_float32(target: Any) -> Callable[..., Tensor]:
    """Of integers, as the call asks."""

    def made(x: Tensor, dim: Any, *args: Any, dtype: Any = None) -> Tensor:
        given = args[-1] if args and isinstance(args[-1], torch.dtype) else dtype
        if x.is_floating_point() or given != torch.float32:
            raise NotComposed
        return target(x.to(torch.float32), dim, *(arg for arg in args if not isinstance(arg, torch.dtype)))

    return made


for _target in (aten.sum.dim_IntList, aten.softmax.int, aten.log_softmax.int):
    compose(overload_key(_target), _in_float32(_target))
compose("multi_margin_loss.default", _multi_margin_loss)
compose("multilabel_margin_loss.default", _multilabel_margin_loss)
for _name in ("tanh", "sigmoid", "logit", "logsumexp"):
    compose(f"{_name}.default", _as_floats(getattr(aten, _name).default))
compose("angle.default", _angle)
compose("signbit.default", _sign_bit)
compose("relu6.default", _clamp_to_six)
compose("addcmul.default", _add_product)
compose("margin_ranking_loss.default", _margin_ranking_loss)
compose("hinge_embedding_loss.default", _hinge_embedding_loss)
for _name in ("trapezoid", "trapz"):
    compose(f"{_name}.x", _area_between)
compose("cumulative_trapezoid.x", _running_area_between)
compose("cumulative_trapezoid.dx", _running_area)
compose("round.decimals", lambda x, *, decimals: _rounded(x, decimals))
compose("heaviside.default", _heaviside)
compose("fmax.default", _extreme_of_integers(torch.maximum))
compose("fmin.default", _extreme_of_integers(torch.minimum))
compose("aminmax.default", _both_extremes)
compose("prelu.default", _leaky, layer=True)
compose("diff.default", _differences)
