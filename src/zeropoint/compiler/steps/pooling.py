"""Pools, means, and images of other sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx

from zeropoint.compiler.steps.table import ours, row
from zeropoint.operators.node import arguments

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


def _each(values: Any, dims: int) -> list[int]:
    values = [int(v) for v in values]
    return values * dims if len(values) == 1 else values


@row(*ours("stored_max_pool"))
def _max_pool(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    dims = int(a["spatial"])
    windows = {k: _each(a[k], dims) for k in ("kernel", "stride", "padding", "dilation")}
    return c.add("max_pool", c.tensor(a["q"]), spatial=dims, ceil_mode=a["ceil_mode"], **windows)


@row(*ours("stored_average_pool"))
def _average_pool(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    dims = int(a["spatial"])
    windows = {k: _each(a[k], dims) for k in ("kernel", "stride", "padding")}
    options = {"ceil_mode": a["ceil_mode"], "count_include_pad": a["count_include_pad"]}
    numbers = {"divisor": a["divisor_override"] or 0, "zero_point": int(a["zero_point"])}
    return c.add("average_pool", c.tensor(a["q"]), spatial=dims, **windows, **options, **numbers)


@row(*ours("stored_adaptive_average_pool"))
def _adaptive_average_pool(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    size = c.sizes(a["output_size"])
    numbers = {"spatial": len(size), "output_size": size, "zero_point": int(a["zero_point"])}
    return c.add("adaptive_average_pool", c.tensor(a["q"]), **numbers)


@row(*ours("stored_mean_over"))
def _mean(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    axes = list(a["axes"]) or list(range(c.rank(a["q"])))
    numbers = {"axes": axes, "scale": float(a["scale"]), "zero_point": int(a["zero_point"])}
    return c.add("mean", c.tensor(a["q"]), keepdim=a["keepdim"], **numbers)


@row(*ours("stored_nearest"))
def _nearest(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    sizes = c.sizes(a["output_size"])
    factors = [0.0] * (3 - len(sizes)) + [float(f) for f in a["scales"]]
    named = dict(zip(("depth_factor", "height_factor", "width_factor"), factors))
    return c.add("nearest", c.tensor(a["q"]), spatial=len(sizes), output_size=sizes, exact=a["exact"], **named)


def _resized(c: Compiler, node: fx.Node, a: dict[str, Any]) -> tuple[list[Any], list[float]]:
    """The size of a result, and the factors if it was given by them."""
    factors = [] if a["output_size"] is not None else [float(f) for f in a["scale_factors"]]
    sizes = c.sizes(a["output_size"] or ())
    for axis, factor in enumerate(factors):
        sizes.append(c.number("scaled", c.axis_size(node.args[0], axis + 2), factor))
    return sizes, factors


@row(*ours("float_bilinear"))
def _float_bilinear(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    sizes, factors = _resized(c, node, a)
    named = dict(zip(("height_factor", "width_factor"), factors or [0.0, 0.0]))
    return c.add("float_bilinear", c.tensor(a["input"]), output_size=sizes, align_corners=a["align_corners"], **named)


@row(*(f"aten.{kind}{d}d.vec" for kind in ("upsample_nearest", "_upsample_nearest_exact") for d in (1, 2, 3)))
def _plain_nearest(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    sizes, factors = _resized(c, node, a)
    numbers = [0.0] * (3 - len(factors)) + factors
    named = dict(zip(("depth_factor", "height_factor", "width_factor"), numbers))
    options = {"spatial": len(sizes), "output_size": sizes, "exact": "exact" in str(node.target)}
    return c.add("nearest", c.tensor(node.args[0]), **options, **named)


@row(*ours("stored_bilinear"))
def _bilinear(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    factors = {f"{side}_factor": float(a[f"scale_{side}"] or 0) for side in ("height", "width")}
    numbers = {"align_corners": a["align_corners"], "zero_point": int(a["zero_point"])}
    return c.add("bilinear", c.tensor(a["q"]), output_size=c.sizes(a["output_size"]), **numbers, **factors)
