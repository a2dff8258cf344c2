"""Layers that norm, with weights that are computed or with statistics as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from zeropoint.graph.passes.compositions.common import NotComposed, compose, not_of_none, of_channels, scaled


def _normalized(
    x: Tensor, axes: list[int], eps: float, mean: Tensor | None = None, var: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(var + eps)``, the mean, and the factor."""
    if mean is None or var is None:
        mean = x.mean(axes, keepdim=True)
        var = (x - mean).square().mean(axes, keepdim=True)
    factor = (var + eps).rsqrt()
    return (x - mean) * factor, mean, factor


def _batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> Tensor:
    """A norm whose weights are computed; one that trains writes to its statistics, and is not composed."""
    if training and mean is not None:
        raise NotComposed
    kept = (None, None) if training else (of_channels(mean, x), of_channels(var, x))
    made, _, _ = _normalized(x, [axis for axis in range(x.dim()) if axis != 1], eps, *kept)
    return scaled(made, of_channels(weight, x), of_channels(bias, x))


def _group_norm(
    x: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Tensor:
    parts = x.unflatten(1, (groups, -1))
    made, _, _ = _normalized(parts, list(range(2, parts.dim())), eps)
    return scaled(made.flatten(1, 2), of_channels(weight, x), of_channels(bias, x))


def _native_group_norm(
    x: Tensor, weight: Any, bias: Any, batch: int, channels: int, size: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    parts = x.reshape([batch, groups, channels // groups * size])
    made, mean, factor = _normalized(parts, [2], eps)
    made = scaled(made.reshape_as(x), of_channels(weight, x), of_channels(bias, x))
    return made, mean.flatten(1), factor.flatten(1)


def _native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    made, mean, factor = _normalized(x, list(range(x.dim() - len(shape), x.dim())), eps)
    weight, bias = (None if value is None else value.reshape(shape) for value in (weight, bias))
    return scaled(made, weight, bias), mean, factor


def _instance_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, of_input: bool, momentum: float, eps: float, cudnn: bool
) -> Tensor:
    if not of_input or mean is not None:
        raise NotComposed
    made, _, _ = _normalized(x, list(range(2, x.dim())), eps)
    return scaled(made, of_channels(weight, x), of_channels(bias, x))


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Tensor:
    return _native_layer_norm(x, shape, weight, bias, eps)[0]


def _native_batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Also the statistics that the norm took of its input; none if they are given."""
    made = _batch_norm(x, weight, bias, mean, var, training, momentum, eps, False)
    if not training:
        return made, x.new_zeros([0]), x.new_zeros([0])
    _, mean, factor = _normalized(x, [axis for axis in range(x.dim()) if axis != 1], eps)
    return not_of_none(made, x), mean.reshape(-1), factor.reshape(-1)


def _native_batch_norm_without_statistics(
    x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _native_batch_norm(x, weight, bias, None, None, training, momentum, eps)


compose("batch_norm.default", _batch_norm, layer=True)
compose("group_norm.default", _group_norm, layer=True)
compose("layer_norm.default", _layer_norm, layer=True)
compose("instance_norm.default", _instance_norm, layer=True)
compose("native_batch_norm.default", _native_batch_norm)
compose("_native_batch_norm_legit.no_stats", _native_batch_norm_without_statistics)
compose("native_group_norm.default", _native_group_norm, fixes=True)
compose("native_layer_norm.default", _native_layer_norm, fixes=True)
