"""ONNX forms of pools and means."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from zeropoint.operators.node import arguments, each
from zeropoint.operators.onnx.geometry import pads_of
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, reads, writes

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


# ------------------------------------------------------------------------------------------------------------- reading


class _Windows:
    """The windows of a pool: how they lie, and the borders of the input."""

    def __init__(self, r: OnnxReader, n: ReadNode, x: Any) -> None:
        self.kernel = list(n.attribute("kernel_shape"))
        self.dims = len(self.kernel)
        self.stride, self.dilation = (list(n.attribute(k, [1] * self.dims)) for k in ("strides", "dilations"))
        self.pads = pads_of(r, n, x, self.kernel, self.stride, self.dilation)
        self.ceil = bool(n.attribute("ceil_mode", 0))
        self.spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel)]

    @property
    def are_pytorchs(self) -> bool:
        """Whether both sides have the same border, of at most half a window."""
        before, after = self.pads[: self.dims], self.pads[self.dims :]
        return before == after and all(2 * pad <= kernel for pad, kernel in zip(before, self.kernel))

    def padded(self, x: Any, value: float) -> Any:
        return F.pad(x, self._sides(self.pads), value=value)

    def behind(self, x: Any) -> list[Any]:
        """What a last window of `ceil_mode` needs behind the border."""
        more = []
        for axis, (span, stride) in enumerate(zip(self.spans, self.stride)):
            before, after, size = self.pads[axis], self.pads[self.dims + axis], x.shape[2 + axis]
            rest = (size + before + after - span) % stride
            needed = stride - rest if self.ceil and rest else 0
            starts = (size + before + after - span) // stride * stride + stride
            more.append(needed if needed and starts < size + before else 0)
        return self._sides([0] * self.dims + more)

    def _sides(self, pads: list[Any]) -> list[Any]:
        return [side for axis in reversed(range(self.dims)) for side in (pads[axis], pads[self.dims + axis])]

    def sums(self, x: Any) -> Any:
        """Of the values of each window, whose input has its borders."""
        for axis in range(self.dims):
            x = x.unfold(2 + axis, self.spans[axis], self.stride[axis])[..., :: self.dilation[axis]]
        return torch.sum(x, list(range(-self.dims, 0)))


def _read_max_pool(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.input(0))
    w = _Windows(r, n, x)
    pool: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[w.dims - 1]
    if n.wants(1):
        return _with_places(r, n, x, w)
    n.without_effect("storage_order")  # of places
    if w.are_pytorchs:
        return pool(x, w.kernel, w.stride, w.pads[: w.dims], w.dilation, w.ceil)
    low = float("-inf") if x.is_floating_point() else torch.iinfo(x.dtype).min
    return pool(F.pad(w.padded(x, low), w.behind(x), value=low), w.kernel, w.stride, 0, w.dilation, False)


def _with_places(r: OnnxReader, n: ReadNode, x: Any, w: _Windows) -> Any:
    """Places count through the whole tensor; those of PyTorch within a channel."""
    if not w.are_pytorchs:
        raise r.unsupported(f"its output of indices is not supported with pads of {w.pads}")
    y, places = (
        F.max_pool2d_with_indices(x, w.kernel, w.stride, w.pads[:2], w.dilation, w.ceil)
        if w.dims == 2
        else (F.max_pool1d_with_indices if w.dims == 1 else F.max_pool3d_with_indices)(
            x, w.kernel, w.stride, w.pads[: w.dims], w.dilation, w.ceil
        )
    )
    if n.attribute("storage_order", 0):
        if w.dims != 2:
            raise r.unsupported("storage_order=1 is supported with two axes")
        places = places % x.shape[3] * x.shape[2] + places // x.shape[3]
    first = torch.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * w.dims)
    return [y, places + first * math.prod(x.shape[2:])]


def _read_average_pool(r: OnnxReader, n: ReadNode) -> Any:
    return average_pool(r, n, r.tensor(n.input(0)))


def average_pool(r: OnnxReader, n: ReadNode, x: Any) -> Any:
    """One of the windows that a node says."""
    included = bool(n.attribute("count_include_pad", 0))
    w = _Windows(r, n, x)
    pool: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[w.dims - 1]
    plain = all(d == 1 for d in w.dilation)
    if plain and w.are_pytorchs:
        return pool(x, w.kernel, w.stride, w.pads[: w.dims], w.ceil, included)
    if plain and included and not w.ceil:
        return pool(w.padded(x, 0.0), w.kernel, w.stride)
    ones = w.padded(torch.ones_like(x[:1, :1]), float(included))
    counts = w.sums(F.pad(ones, w.behind(x)))
    return w.sums(F.pad(w.padded(x, 0.0), w.behind(x))) / counts


def _read_norm_pool(r: OnnxReader, n: ReadNode) -> Any:
    x, p = r.tensor(n.input(0)), n.attribute("p", 2)
    w = _Windows(r, n, x)
    padded = F.pad(w.padded(torch.abs(x), 0.0), w.behind(x))
    return torch.pow(w.sums(torch.pow(padded, p)), 1.0 / p)


def _read_global_average(r: OnnxReader, n: ReadNode) -> Any:
    return global_average(r.tensor(n.input(0)))


def global_average(x: Any) -> Any:
    """The means of all channels."""
    pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[x.dim() - 3]
    return pool(x, 1)


def _read_mean(r: OnnxReader, n: ReadNode) -> Any:
    x, (axes, keepdim) = r.tensor(n.input(0)), r.axes(n)
    return torch.mean(x, axes, keepdim) if axes else x


def _pools(dims: int) -> dict[str, OnnxForms]:
    stored = dims == 2  # operators on integers serve every number of axes
    return {
        f"max_pool{dims}d": OnnxForms(
            writes(_write_max_pool, f"aten.max_pool{dims}d.default", *(["stored_max_pool"] * stored)),
            reads(_read_max_pool, "MaxPool") if stored else (),
        ),
        f"avg_pool{dims}d": OnnxForms(
            writes(_write_average_pool, f"float_avg_pool{dims}d", f"aten.avg_pool{dims}d.default",
                   *(["stored_average_pool"] * stored)),
            (*reads(_read_average_pool, "AveragePool"), *reads(_read_norm_pool, "LpPool")) if stored else (),
        ),
        f"adaptive_avg_pool{dims}d": OnnxForms(
            writes(_write_adaptive_pool, f"float_adaptive_avg_pool{dims}d", f"aten.adaptive_avg_pool{dims}d.default",
                   *(["stored_adaptive_average_pool"] * stored)),
            reads(_read_global_average, "GlobalAveragePool") if stored else (),
        ),
    }  # fmt: skip


FORMS = {
    **{name: forms for dims in (1, 2, 3) for name, forms in _pools(dims).items()},
    "mean": OnnxForms(
        writes(_write_mean, "stored_mean_over", "float_mean", "aten.mean.dim"), reads(_read_mean, "ReduceMean")
    ),
}  # fmt: skip
