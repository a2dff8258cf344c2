"""Operators that hand integers on with their scale, chosen from, cut off or averaged: what each is computed by.

Every entry of `PASSED` is given the lowering, the integers, their scale, the other arguments by name, and the old node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.canonicalize import each
from zeropoint.numerics.affine import BYTE_LIMITS

__all__ = ["PASSED", "Scale"]

aten, ours = torch.ops.aten, torch.ops.zeropoint


@dataclass(frozen=True)
class Scale:
    """The parameters of a value."""

    scale: float
    zero_point: int
    dtype: torch.dtype

    @property
    def pair(self) -> tuple[float, int]:
        return self.scale, self.zero_point

    @property
    def all(self) -> tuple[Any, ...]:
        return self.scale, self.zero_point, *BYTE_LIMITS[self.dtype], self.dtype


def _limits(scale: Scale) -> tuple[int, int]:
    return BYTE_LIMITS[scale.dtype]


def _relu(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return g.call(aten.clamp_min.default, q, s.zero_point)


def _clamp(low: str, high: str) -> Callable[..., fx.Node]:
    def clamp(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        bounds = [None if a.get(k) is None else float(a[k]) for k in (low, high)]
        return g.call(ours.clamp.default, q, *s.pair, *bounds)

    return clamp


def _relu6(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return g.call(ours.relu6.default, q, *s.pair)


def _as_it_is(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return q


def _max_pool(dims: int) -> Callable[..., fx.Node]:
    def pool(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        kernel = each(a["kernel_size"], dims)
        stride = each(a["stride"], dims) if a["stride"] else kernel
        padding, dilation = each(a["padding"], dims), each(a["dilation"], dims)
        return g.call(ours.stored_max_pool.default, q, kernel, stride, padding, dilation, a["ceil_mode"], dims)

    return pool


def _average_pool(dims: int) -> Callable[..., fx.Node]:
    def pool(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        kernel = each(a["kernel_size"], dims)
        stride = each(a["stride"], dims) if a["stride"] else kernel
        options = (a["ceil_mode"], a["count_include_pad"], a.get("divisor_override"), s.zero_point, *_limits(s), dims)
        return g.call(ours.stored_average_pool.default, q, kernel, stride, each(a["padding"], dims), *options)

    return pool


def _adaptive_pool(dims: int) -> Callable[..., fx.Node]:
    def pool(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        size = each(a["output_size"], dims)
        return g.call(ours.stored_adaptive_average_pool.default, q, size, s.zero_point, *_limits(s))

    return pool


def _mean(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return g.call(ours.stored_mean_over.default, q, list(a["dim"] or ()), a["keepdim"], *s.pair, *_limits(s))


def _threshold(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return g.call(ours.threshold.default, q, *s.pair, float(a["threshold"]), float(a["value"]))


def _top(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    """Integers are often equal, and topk leaves open which of equal values it takes."""
    return g.call(ours.top.default, q, a["k"], a["dim"], a["largest"])


def _pad(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    if a.get("mode", "constant") != "constant":  # with values that there are
        return g.call(aten.pad.default, q, g.argument(a["pad"]), a["mode"])
    return g.call(aten.constant_pad_nd.default, q, g.argument(a["pad"]), s.zero_point)


def _resized(g: Any, q: fx.Node, a: Any, dims: int) -> tuple[list[Any], list[float]]:
    """The output size, and the factors if these were given instead of it."""
    if a["output_size"] is not None:
        return list(a["output_size"]), [0.0] * dims
    factors = [float(f) for f in a["scale_factors"]]
    sizes = []
    for d, factor in enumerate(factors):
        size = g.call(aten.sym_size.int, q, d + 2)
        sizes.append(g.call(torch.sym_int, g.call(operator.mul, size, factor)))
    return sizes, factors


def _nearest(dims: int, exact: bool) -> Callable[..., fx.Node]:
    def nearest(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        sizes, factors = _resized(g, q, a, dims)
        return g.call(ours.stored_nearest.default, q, sizes, factors, exact)

    return nearest


def _bilinear(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    sizes, factors = _resized(g, q, a, 2)
    given = [f or None for f in factors]
    return g.call(ours.stored_bilinear.default, q, sizes, a["align_corners"], *given, s.zero_point, *_limits(s))


PASSED: dict[str, Callable[..., fx.Node]] = {
    "relu.default": _relu,
    "relu6.default": _relu6,
    "hardtanh.default": _clamp("min_val", "max_val"),
    "clamp.default": _clamp("min", "max"),
    "clamp_min.default": _clamp("min", "none"),
    "clamp_max.default": _clamp("none", "max"),
    "dropout.default": _as_it_is,
    "mean.dim": _mean,
    "pad.default": _pad,
    "constant_pad_nd.default": _pad,
    "upsample_bilinear2d.vec": _bilinear,
    "threshold.default": _threshold,
    "topk.default": _top,
    **{f"upsample_nearest{d}d.vec": _nearest(d, exact=False) for d in (1, 2, 3)},
    **{f"_upsample_nearest_exact{d}d.vec": _nearest(d, exact=True) for d in (1, 2, 3)},
    **{f"max_pool{d}d.default": _max_pool(d) for d in (1, 2, 3)},
    **{f"avg_pool{d}d.default": _average_pool(d) for d in (1, 2, 3)},
    **{f"adaptive_avg_pool{d}d.default": _adaptive_pool(d) for d in (1, 2, 3)},
}
