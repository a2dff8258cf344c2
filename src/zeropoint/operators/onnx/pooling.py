"""Pools, means and images of other sizes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from zeropoint.operators.node import arguments, each
from zeropoint.operators.onnx.windows import padded_both_sides, pads_of
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, reads, writes

__all__ = ["FORMS"]

# ------------------------------------------------------------------------------------------------------------- writing


def _batched(w: OnnxWriter, node: Any, dims: int, write: Any) -> Any:
    """ONNX pools have a batch; a single sample gets one."""
    x = w.floats(node)
    if w.rank(node) != dims + 1:
        return write(x)
    return w.op("Squeeze", write(w.op("Unsqueeze", x, w.ints([0]))), w.ints([0]))


def _write_max_pool(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    kernel = a["kernel"] if "kernel" in a else a["kernel_size"]
    dims = int(a["spatial"]) if "spatial" in a else int(str(node.target).split("max_pool")[1][0])
    kernel = each(kernel, dims)
    options = {
        "kernel_shape": kernel, "strides": each(a["stride"], dims) if a["stride"] else kernel,
        "pads": each(a["padding"], dims) * 2, "dilations": each(a["dilation"], dims), "ceil_mode": int(a["ceil_mode"]),
    }  # fmt: skip
    return w.result(_batched(w, node.args[0], dims, lambda x: w.op("MaxPool", x, **options)))


def _write_average_pool(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    if a.get("divisor_override") is not None:
        raise w.unsupported("ONNX's AveragePool has no divisor_override")
    kernel = a["kernel"] if "kernel" in a else a["kernel_size"]
    dims = int(a["spatial"]) if "spatial" in a else int(str(node.target).split("avg_pool")[1][0])
    kernel = each(kernel, dims)
    options = {
        "kernel_shape": kernel, "strides": each(a["stride"], dims) if a["stride"] else kernel,
        "pads": each(a["padding"], dims) * 2, "ceil_mode": int(a["ceil_mode"]),
        "count_include_pad": int(a["count_include_pad"]),
    }  # fmt: skip
    return w.result(_batched(w, node.args[0], dims, lambda x: w.op("AveragePool", x, **options)))


def _write_adaptive_pool(w: OnnxWriter, node: fx.Node) -> Any:
    a, x = arguments(node), node.args[0]
    dims = len(a["output_size"])
    found, size = list(w.found[x].shape)[-dims:], [int(n) for n in w.found[node].shape[-dims:]]
    if all(n == 1 for n in size):
        return w.result(_batched(w, x, dims, lambda value: w.op("GlobalAveragePool", value)))
    if size == found:
        return w.result(w.floats(x))
    if any(before % after for before, after in zip(found, size)):
        raise w.unsupported(f"windows of different sizes ({found} to {size}) are not supported by ONNX")
    w.require_fixed(x, range(w.rank(x) - dims, w.rank(x)))
    window = [before // after for before, after in zip(found, size)]
    return w.result(_batched(w, x, dims, lambda v: w.op("AveragePool", v, kernel_shape=window, strides=window)))


def _write_mean(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    axes = list((a["axes"] if "axes" in a else a["dim"]) or range(w.rank(node.args[0])))
    rank = w.rank(node.args[0])
    x = w.floats(node.args[0])
    if [axis % rank for axis in axes] == list(range(2, rank)) and rank > 2:  # runtimes have it on integers
        y = w.op("GlobalAveragePool", x)
        return w.result(y if a["keepdim"] else w.op("Squeeze", y, w.ints(axes)))
    return w.result(w.op("ReduceMean", x, w.ints(axes), keepdims=int(a["keepdim"])))


def _resized(w: OnnxWriter, node: fx.Node, dims: int, factors: Any, **options: Any) -> Any:
    """With the factors that were given; else to the size, which is computed where it is free."""
    x = node.args[0]
    if factors:
        return w.op("Resize", w.floats(x), None, torch.tensor([1.0, 1.0, *factors], dtype=torch.float32), **options)
    size = arguments(node)["output_size"]
    sizes = w.ints([w.axis_size(x, 0), w.axis_size(x, 1), *size])
    return w.op("Resize", w.floats(x), None, None, sizes, **options)


def _write_nearest(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    dims = w.rank(node.args[0]) - 2
    given = a["scales"] if "scales" in a else a["scale_factors"]
    factors = [float(f) for f in given or ()]
    exact = a["exact"] if "exact" in a else "exact" in str(node.target)
    options = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel" if exact else "asymmetric"}
    options["nearest_mode"] = "round_prefer_ceil" if exact else "floor"
    return w.result(_resized(w, node, dims, factors if all(factors) else None, **options))


def _write_bilinear(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    if "scale_height" in a:
        given = [a["scale_height"], a["scale_width"]]
        factors = [float(f) for f in given] if all(given) else None
    else:
        factors = [float(f) for f in a["scale_factors"]] if a["scale_factors"] else None
    mode = "align_corners" if a["align_corners"] else "half_pixel"
    return w.result(_resized(w, node, 2, factors, mode="linear", coordinate_transformation_mode=mode))


# ------------------------------------------------------------------------------------------------------------- reading


def _read_pool(is_max: bool) -> Any:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        x, kernel = r.tensor(n.inputs[0]), list(n.attribute("kernel_shape"))
        dims = len(kernel)
        stride, dilation = (list(n.attribute(k, [1] * dims)) for k in ("strides", "dilations"))
        pads, ceil = pads_of(r, n, x, kernel, stride, dilation), bool(n.attribute("ceil_mode", 0))
        if n.outputs > 1:
            raise r.unsupported("its output of indices is not supported")
        if is_max:
            x, padding = padded_both_sides(x, pads, float("-inf"))
            pool: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dims - 1]
            return pool(x, kernel, stride, padding, dilation, ceil)
        included = bool(n.attribute("count_include_pad", 0))
        if pads[:dims] != pads[dims:] and not included:
            raise r.unsupported(f"asymmetric pads with count_include_pad=0: {pads}")
        x, padding = padded_both_sides(x, pads, 0.0)
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
        return pool(x, kernel, stride, padding, ceil, included)

    return read


def _read_global_average(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.inputs[0])
    pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[x.dim() - 3]
    return pool(x, 1)


def _read_mean(r: OnnxReader, n: ReadNode) -> Any:
    axes, keepdim = r.axes(n)
    return torch.mean(r.tensor(n.inputs[0]), axes, keepdim)


def _read_resize(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.inputs[0])
    dims = x.dim() - 2
    scales, sizes = [*n.inputs[1:], None, None][1:3] if n.op_type == "Resize" else (n.inputs[1], None)
    mode = n.attribute("mode", "nearest")
    default = "half_pixel" if n.op_type == "Resize" else "asymmetric"
    where = n.attribute("coordinate_transformation_mode", default)
    given: dict[str, Any] = {}
    if sizes is not None and r.count(sizes):
        given["size"] = r.numbers(sizes)[-dims:]
    else:
        given["scale_factor"] = [float(f) for f in r.numbers(scales)[-dims:]]
    if n.attribute("axes", None) is not None:
        raise r.unsupported("axes is not supported")
    if mode == "nearest":
        rounding = n.attribute("nearest_mode", "round_prefer_floor") if n.op_type == "Resize" else "floor"
        factors = given.get("scale_factor") or [after / before for after, before in zip(given["size"], x.shape[2:])]
        whole = all(isinstance(f, (int, float)) and f == int(f) for f in factors)  # then rounding never has a tie
        if (where, rounding) == ("asymmetric", "floor") or (whole and where == "half_pixel" and "round" in rounding):
            return F.interpolate(x, mode="nearest", **given)
        if where == "half_pixel" and rounding == "round_prefer_ceil":
            return F.interpolate(x, mode="nearest-exact", **given)
        raise r.unsupported(f"nearest with {where} and {rounding}")
    if mode == "linear" and where in ("half_pixel", "align_corners", "pytorch_half_pixel"):
        kind = {1: "linear", 2: "bilinear", 3: "trilinear"}[dims]
        return F.interpolate(x, mode=kind, align_corners=where == "align_corners", **given)
    raise r.unsupported(f"mode {mode} with {where}")


def _pools(dims: int) -> dict[str, OnnxForms]:
    stored = dims == 2  # operators on integers serve every number of axes
    return {
        f"max_pool{dims}d": OnnxForms(
            writes(_write_max_pool, f"aten.max_pool{dims}d.default", *(["stored_max_pool"] * stored)),
            reads(_read_pool(True), "MaxPool") if stored else (),
        ),
        f"avg_pool{dims}d": OnnxForms(
            writes(_write_average_pool, f"float_avg_pool{dims}d", f"aten.avg_pool{dims}d.default",
                   *(["stored_average_pool"] * stored)),
            reads(_read_pool(False), "AveragePool") if stored else (),
        ),
        f"adaptive_avg_pool{dims}d": OnnxForms(
            writes(_write_adaptive_pool, f"float_adaptive_avg_pool{dims}d", f"aten.adaptive_avg_pool{dims}d.default",
                   *(["stored_adaptive_average_pool"] * stored)),
            reads(_read_global_average, "GlobalAveragePool") if stored else (),
        ),
        f"upsample_nearest{dims}d": OnnxForms(
            writes(_write_nearest, f"aten.upsample_nearest{dims}d.vec", *(["stored_nearest"] * stored)),
            reads(_read_resize, "Resize", "Upsample") if stored else (),
        ),
        f"_upsample_nearest_exact{dims}d": OnnxForms(
            writes(_write_nearest, f"aten._upsample_nearest_exact{dims}d.vec")
        ),
    }  # fmt: skip


FORMS = {
    **{name: forms for dims in (1, 2, 3) for name, forms in _pools(dims).items()},
    "mean": OnnxForms(
        writes(_write_mean, "stored_mean_over", "float_mean", "aten.mean.dim"), reads(_read_mean, "ReduceMean")
    ),
    "upsample_bilinear2d": OnnxForms(
        writes(_write_bilinear, "stored_bilinear", "float_bilinear", "aten.upsample_bilinear2d.vec")
    ),
}  # fmt: skip
