"""Pools, means and images of other sizes: values chosen from, or averaged, with the scale of the input."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from zeropoint.numerics.affine import BYTE_LIMITS
from zeropoint.operators.float_forms import by_operator
from zeropoint.operators.lowered_value import Scale
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments, each
from zeropoint.operators.record import Effect, Observed, Operator, Output, Traced
from zeropoint.operators.steps import GraphBuilder, ProgramStep, Restore, StepBuilder, called, restores, steps
from zeropoint.ops import rounding

aten, ours = torch.ops.aten, torch.ops.zeropoint
_WINDOWS = ("self", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")


def _max_pool(dims: int) -> Callable[..., fx.Node]:
    def pool(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        kernel = each(a["kernel_size"], dims)
        stride = each(a["stride"], dims) if a["stride"] else kernel
        padding, dilation = each(a["padding"], dims), each(a["dilation"], dims)
        return g.call(ours.stored_max_pool.default, q, kernel, stride, padding, dilation, a["ceil_mode"], dims)

    return pool


def _average_pool(dims: int) -> Callable[..., fx.Node]:
    def pool(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        kernel = each(a["kernel_size"], dims)
        stride = each(a["stride"], dims) if a["stride"] else kernel
        options = (a["ceil_mode"], a["count_include_pad"], a.get("divisor_override"), s.zero_point, *s.limits, dims)
        return g.call(ours.stored_average_pool.default, q, kernel, stride, each(a["padding"], dims), *options)

    return pool


def _adaptive_pool(dims: int) -> Callable[..., fx.Node]:
    def pool(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        size = each(a["output_size"], dims)
        return g.call(ours.stored_adaptive_average_pool.default, q, size, s.zero_point, *s.limits)

    return pool


def _mean(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    return g.call(ours.stored_mean_over.default, q, list(a["dim"] or ()), a["keepdim"], *s.pair, *s.limits)


def _resized(g: Lowering, q: fx.Node, a: Any, dims: int) -> tuple[list[Any], list[float]]:
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
    def nearest(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
        sizes, factors = _resized(g, q, a, dims)
        return g.call(ours.stored_nearest.default, q, sizes, factors, exact)

    return nearest


def _bilinear(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    sizes, factors = _resized(g, q, a, 2)
    given = [f or None for f in factors]
    return g.call(ours.stored_bilinear.default, q, sizes, a["align_corners"], *given, s.zero_point, *s.limits)


# ---------------------------------------------------------------------------------------------------- steps of programs


def _emit_max_pool(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    dims = int(a["spatial"])
    windows = {k: each(a[k], dims) for k in ("kernel", "padding", "dilation")}
    windows["stride"] = each(a["stride"] or a["kernel"], dims)
    return c.add("max_pool", c.tensor(a["q"]), spatial=dims, ceil_mode=a["ceil_mode"], **windows)


def _emit_average_pool(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    dims = int(a["spatial"])
    windows = {k: each(a[k], dims) for k in ("kernel", "padding")}
    windows["stride"] = each(a["stride"] or a["kernel"], dims)
    options = {"ceil_mode": a["ceil_mode"], "count_include_pad": a["count_include_pad"]}
    numbers = {"divisor": a["divisor_override"] or 0, "zero_point": int(a["zero_point"])}
    numbers |= {} if a["ceil_mode"] else _mean_of_engine(a, dims)
    return c.add("average_pool", c.tensor(a["q"]), spatial=dims, **windows, **options, **numbers)


def _mean_of_engine(a: dict[str, Any], dims: int) -> dict[str, Any]:
    """What a step says whose means are those of QNNPACK, which has two dimensions only."""
    if dims != 2 or rounding.of_values() != rounding.QNNPACK:
        return {}
    return {"rounding": rounding.code("mean", rounding.QNNPACK), "scale": float(a["values_scale"])}


def _emit_adaptive_pool(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    size = c.sizes(a["output_size"])
    numbers = {"spatial": len(size), "output_size": size, "zero_point": int(a["zero_point"])}
    numbers |= _mean_of_engine(a, len(size))
    return c.add("adaptive_average_pool", c.tensor(a["q"]), **numbers)


def _emit_mean(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    axes = list(a["axes"]) or list(range(c.rank(a["q"])))
    numbers = {"axes": axes, "scale": float(a["scale"]), "zero_point": int(a["zero_point"])}
    return c.add("mean", c.tensor(a["q"]), keepdim=a["keepdim"], **numbers)


def _emit_nearest(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    sizes = c.sizes(a["output_size"])
    factors = [0.0] * (3 - len(sizes)) + [float(f) for f in a["scales"]]
    named = dict(zip(("depth_factor", "height_factor", "width_factor"), factors))
    return c.add("nearest", c.tensor(a["q"]), spatial=len(sizes), output_size=sizes, exact=a["exact"], **named)


def _emit_bilinear(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    factors = {f"{side}_factor": float(a[f"scale_{side}"] or 0) for side in ("height", "width")}
    numbers = {"align_corners": a["align_corners"], "zero_point": int(a["zero_point"])}
    return c.add("bilinear", c.tensor(a["q"]), output_size=c.sizes(a["output_size"]), **numbers, **factors)


def _resized_sizes(c: StepBuilder, node: fx.Node, a: dict[str, Any]) -> tuple[list[Any], list[float]]:
    """The size of a result, and the factors if it was given by them."""
    factors = [] if a["output_size"] is not None else [float(f) for f in a["scale_factors"]]
    sizes = c.sizes(a["output_size"] or ())
    for axis, factor in enumerate(factors):
        sizes.append(c.number("scaled", c.axis_size(node.args[0], axis + 2), factor))
    return sizes, factors


def _emit_float_bilinear(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    sizes, factors = _resized_sizes(c, node, a)
    named = dict(zip(("height_factor", "width_factor"), factors or [0.0, 0.0]))
    return c.add("float_bilinear", c.tensor(a["input"]), output_size=sizes, align_corners=a["align_corners"], **named)


def _emit_plain_nearest(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    sizes, factors = _resized_sizes(c, node, a)
    numbers = [0.0] * (3 - len(factors)) + factors
    named = dict(zip(("depth_factor", "height_factor", "width_factor"), numbers))
    options = {"spatial": len(sizes), "output_size": sizes, "exact": "exact" in str(node.target)}
    return c.add("nearest", c.tensor(node.args[0]), **options, **named)


def _emit_float_pool(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(node) != torch.float32:
        raise c.unsupported("only float32 is supported")
    largest = "max" in str(node.target)
    dims = int(str(node.target).split("pool")[1][0])
    kernel = each(a["kernel_size"], dims)
    stride = each(a["stride"], dims) if a["stride"] else kernel
    numbers = {"spatial": dims, "kernel": kernel, "stride": stride, "padding": each(a["padding"], dims)}
    if largest:
        numbers["dilation"] = each(a["dilation"], dims)
    else:
        numbers |= {"count_include_pad": a["count_include_pad"], "divisor": a["divisor_override"] or 0}
    op = "float_max_pool" if largest else "float_average_pool"
    return c.add(op, c.tensor(node.args[0]), ceil_mode=a["ceil_mode"], **numbers)


def _emit_float_adaptive_pool(c: StepBuilder, node: fx.Node) -> str:
    dims = int(str(node.target).split("pool")[1][0])
    size = c.sizes(each(node.args[1], dims))
    return c.add("float_adaptive_average_pool", c.tensor(node.args[0]), spatial=dims, output_size=size)


def _emit_float_mean(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    op = str(node.target).split(".")[1]
    return c.add(op, c.tensor(a["input"]), axes=list(a["dim"] or ()), keepdim=bool(a["keepdim"]))


# ------------------------------------------------------------------------------------------------- steps as nodes again


def _restore_bytes(op: Any, *names: str, with_spatial: bool = False) -> Restore:
    """Averages of bytes; numbers by their names, then the limits of the dtype."""

    def restore(r: GraphBuilder, step: ProgramStep) -> fx.Node:
        a, x = step.attributes, r.tensor(step.inputs[0])
        given = (r.size(a[name]) for name in names)
        last = [a["spatial"]] if with_spatial else []
        return r.call(op, x, *(g if k != "divisor" else g or None for k, g in zip(names, given)),
                      *BYTE_LIMITS[r.dtype(x)], *last)  # fmt: skip

    return restore


def _restore_nearest(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, x, dims = step.attributes, r.tensor(step.inputs[0]), step.attributes["spatial"]
    factors = [a.get(f"{side}_factor", 0.0) for side in ("depth", "height", "width")][-dims:]
    size = r.size(a["output_size"])
    if r.dtype(x) in BYTE_LIMITS:
        return r.call(ours.stored_nearest.default, x, size, factors, a["exact"])
    op = getattr(aten, f"_upsample_nearest_exact{dims}d" if a["exact"] else f"upsample_nearest{dims}d").vec
    return r.call(op, x, *((None, factors) if all(factors) else (size, None)))


def _restore_bilinear(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, x = step.attributes, r.tensor(step.inputs[0])
    factors = [a["height_factor"] or None, a["width_factor"] or None]
    size = r.size(a["output_size"])
    if step.op == "bilinear":
        numbers = *factors, a["zero_point"], *BYTE_LIMITS[r.dtype(x)]
        return r.call(ours.stored_bilinear.default, x, size, a["align_corners"], *numbers)
    given = (None, a["align_corners"], factors) if all(factors) else (size, a["align_corners"], None)
    return r.call(ours.float_bilinear.default, x, *given)


def _restore_float_pool(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, x = step.attributes, r.tensor(step.inputs[0])
    windows = [a[k] for k in ("kernel", "stride", "padding")]
    if step.op == "float_max_pool":
        return r.call(getattr(aten, f"max_pool{a['spatial']}d").default, x, *windows, a["dilation"], a["ceil_mode"])
    options = a["ceil_mode"], a["count_include_pad"], a["divisor"] or None
    return r.call(getattr(ours, f"float_avg_pool{a['spatial']}d").default, x, *windows, *options)


def _restore_float_adaptive_pool(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a = step.attributes
    op = getattr(ours, f"float_adaptive_avg_pool{a['spatial']}d").default
    return r.call(op, r.tensor(step.inputs[0]), r.size(a["output_size"]))


_WINDOWED = (
    *restores(
        called(ours.stored_max_pool.default, "kernel", "stride", "padding", "dilation", "ceil_mode", "spatial"),
        "max_pool",
    ),
    *restores(
        _restore_bytes(
            ours.stored_average_pool.default, "kernel", "stride", "padding", "ceil_mode", "count_include_pad",
            "divisor", "zero_point", with_spatial=True,
        ),
        "average_pool",
    ),
    *restores(
        _restore_bytes(ours.stored_adaptive_average_pool.default, "output_size", "zero_point"), "adaptive_average_pool"
    ),
    *restores(_restore_float_pool, "float_max_pool", "float_average_pool"),
    *restores(_restore_float_adaptive_pool, "float_adaptive_average_pool"),
    *restores(_restore_nearest, "nearest"),
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- records


def _pool(name: str, integers: Any, module: str, dims: int, **more: Any) -> Operator:
    return Operator(
        name, (f"{name}.default",), (getattr(nn, f"{module}{dims}d"),), (getattr(F, name),), output=Output.INPUT,
        integers=integers(dims), traced=Traced(Observed.SHARED), **more,
    )  # fmt: skip


def _averaging(kind: str, integers: Any, emit: Any, emit_float: Any, *taken: str, dims: int) -> Operator:
    name, module = f"{kind.lower()}_avg_pool{dims}d".removeprefix("_"), f"{kind}AvgPool"
    stored = "stored_adaptive_average_pool" if kind else "stored_average_pool"
    return _pool(
        name, integers, module, dims, effect=Effect.AVERAGES, float_form=by_operator(f"float_{name}", *taken),
        steps=(*steps(emit, stored), *steps(emit_float, f"float_{name}")),
    )  # fmt: skip


def _nearest_of(dims: int, overload: str) -> Operator:
    return Operator(
        overload.split(".")[0], (overload,), output=Output.INPUT, integers=_nearest(dims, "exact" in overload),
        steps=(*steps(_emit_nearest, "stored_nearest"), *steps(_emit_plain_nearest, f"aten.{overload}")),
    )  # fmt: skip


def _pools(dims: int) -> tuple[Operator, ...]:
    windows = _WINDOWS[: 6 if dims == 1 else 7]
    maximum = (*steps(_emit_max_pool, "stored_max_pool"), *steps(_emit_float_pool, f"aten.max_pool{dims}d.default"))
    return (
        _pool(f"max_pool{dims}d", _max_pool, "MaxPool", dims, steps=maximum, restores=_WINDOWED, effect=Effect.CHOOSES),
        _averaging("", _average_pool, _emit_average_pool, _emit_float_pool, *windows, dims=dims),
        _averaging(
            "Adaptive", _adaptive_pool, _emit_adaptive_pool, _emit_float_adaptive_pool, "self", "output_size", dims=dims
        ),
        *(_nearest_of(dims, f"{kind}{dims}d.vec") for kind in ("upsample_nearest", "_upsample_nearest_exact")),
    )


_UPSAMPLING = (nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d)
RECORDS = (
    *(record for dims in (1, 2, 3) for record in _pools(dims)),
    Operator(
        "mean", ("mean.dim",), functions=(torch.mean,), output=Output.INPUT, integers=_mean, effect=Effect.AVERAGES,
        traced=Traced(Observed.SHARED, ("mean",)),
        refuses=lambda a: "it changes the dtype" if a["dtype"] is not None else "",
        float_form=by_operator("float_mean", "self", "dim", "keepdim"),
        steps=(*steps(_emit_mean, "stored_mean_over"), *steps(_emit_float_mean, "float_mean")),
        restores=(
            *restores(
                _restore_bytes(ours.stored_mean_over.default, "axes", "keepdim", "scale", "zero_point"), "mean"
            ),
            *restores(called(ours.float_mean.default, "axes", "keepdim"), "float_mean"),
        ),
    ),
    Operator(
        "upsample_bilinear2d", ("upsample_bilinear2d.vec",),
        modules=_UPSAMPLING, functions=(F.interpolate,), output=Output.INPUT, integers=_bilinear,
        effect=Effect.AVERAGES, traced=Traced(Observed.SHARED, without=_UPSAMPLING),
        float_form=by_operator("float_bilinear", "input", "output_size", "align_corners", "scale_factors"),
        steps=(*steps(_emit_bilinear, "stored_bilinear"), *steps(_emit_float_bilinear, "float_bilinear")),
        restores=restores(_restore_bilinear, "bilinear", "float_bilinear"),
    ),
)  # fmt: skip
