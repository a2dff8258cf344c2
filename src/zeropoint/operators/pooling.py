"""Pools, means and images of other sizes: values chosen from, or averaged, with the scale of the input."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from zeropoint.operators.float_forms import by_operator
from zeropoint.operators.node import each
from zeropoint.operators.record import Operator, Output
from zeropoint.operators.values import Scale

__all__ = ["RECORDS"]

aten, ours = torch.ops.aten, torch.ops.zeropoint
_WINDOWS = ("self", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")


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
        options = (a["ceil_mode"], a["count_include_pad"], a.get("divisor_override"), s.zero_point, *s.limits, dims)
        return g.call(ours.stored_average_pool.default, q, kernel, stride, each(a["padding"], dims), *options)

    return pool


def _adaptive_pool(dims: int) -> Callable[..., fx.Node]:
    def pool(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        size = each(a["output_size"], dims)
        return g.call(ours.stored_adaptive_average_pool.default, q, size, s.zero_point, *s.limits)

    return pool


def _mean(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return g.call(ours.stored_mean_over.default, q, list(a["dim"] or ()), a["keepdim"], *s.pair, *s.limits)


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
    return g.call(ours.stored_bilinear.default, q, sizes, a["align_corners"], *given, s.zero_point, *s.limits)


def _pool(name: str, integers: Any, module: str, dims: int, **more: Any) -> Operator:
    modules = (getattr(nn, f"{module}{dims}d"),)
    return Operator(name, (f"{name}.default",), modules, output=Output.INPUT, integers=integers(dims), **more)


def _pools(dims: int) -> tuple[Operator, ...]:
    average = by_operator(f"float_avg_pool{dims}d", *_WINDOWS[: 6 if dims == 1 else 7])
    adaptive = by_operator(f"float_adaptive_avg_pool{dims}d", "self", "output_size")
    names = (f"upsample_nearest{dims}d.vec", f"_upsample_nearest_exact{dims}d.vec")
    return (
        _pool(f"max_pool{dims}d", _max_pool, "MaxPool", dims),
        _pool(f"avg_pool{dims}d", _average_pool, "AvgPool", dims, averages=True, float_form=average),
        _pool(f"adaptive_avg_pool{dims}d", _adaptive_pool, "AdaptiveAvgPool", dims, averages=True, float_form=adaptive),
        *(
            Operator(name.split(".")[0], (name,), output=Output.INPUT, integers=_nearest(dims, "exact" in name))
            for name in names
        ),
    )


RECORDS = (
    *(record for dims in (1, 2, 3) for record in _pools(dims)),
    Operator(
        "mean", ("mean.dim",), functions=(torch.mean,), output=Output.INPUT, integers=_mean, averages=True,
        refuses=lambda a: "changes the dtype" if a["dtype"] is not None else "",
        float_form=by_operator("float_mean", "self", "dim", "keepdim"),
    ),
    Operator("sum", ("sum.dim_IntList",), float_form=by_operator("float_sum", "self", "dim", "keepdim")),
    Operator(
        "upsample_bilinear2d", ("upsample_bilinear2d.vec",),
        modules=(nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d), output=Output.INPUT,
        integers=_bilinear, averages=True,
        float_form=by_operator("float_bilinear", "input", "output_size", "align_corners", "scale_factors"),
    ),
)  # fmt: skip
