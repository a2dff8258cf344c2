"""ONNX forms of reductions: sums, products, extremes and norms along axes."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.operators.node import arguments
from zeropoint.operators.onnx.indexing import write_extreme
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, Read, ReadNode, Write, reads, writes


def _axes(w: OnnxWriter, node: fx.Node, a: dict[str, Any]) -> Any:
    axes = a.get("dim")
    axes = [axes] if isinstance(axes, int) else list(axes or ())
    return w.ints(axes or range(w.rank(node.args[0])))


def _write_reduction(name: str) -> Write:
    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a = arguments(node)
        x = (
            w.convert(w.floats(node.args[0]), w.dtype(node))
            if w.scale_of(node.args[0]) is None
            else w.floats(node.args[0])
        )
        return w.result(w.op(name, x, _axes(w, node, a), keepdims=int(a.get("keepdim", False))))

    return write


def _write_variance(w: OnnxWriter, node: fx.Node) -> Any:
    a, x = arguments(node), w.floats(node.args[0])
    axes, keep = _axes(w, node, a), int(bool(a.get("keepdim")))
    centred = w.op("Sub", x, w.op("ReduceMean", x, axes, keepdims=1))
    squares = w.op("ReduceSum", w.op("Mul", centred, centred), axes, keepdims=keep)
    count: Any = w.ints([1])
    for axis in a.get("dim") or range(w.rank(node.args[0])):
        count = w.op("Mul", count, w.axis_size(node.args[0], axis))
    less = w.op("Sub", w.convert(count, torch.float32), w.number(float(a.get("correction", 1.0))))
    return w.result(w.op("Div", squares, w.op("Squeeze", less, w.ints([0]))))


def _write_any(name: str) -> Write:
    """Of bools: the largest or the smallest of them as numbers."""

    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a = arguments(node)
        numbers = w.convert(w.convert(w.tensor(node.args[0]), torch.bool), torch.int32)
        made = w.op(name, numbers, _axes(w, node, a), keepdims=int(a.get("keepdim", False)))
        return w.convert(made, torch.bool)

    return write


def _write_place(name: str) -> Write:
    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a, x = arguments(node), w.floats(node.args[0])
        if a["dim"] is None:
            x = w.op("Reshape", x, w.ints([-1]))
            return w.op(name, x, axis=0, keepdims=0)
        return w.op(name, x, axis=a["dim"], keepdims=int(a["keepdim"]))

    return write


# ------------------------------------------------------------------------------------------------------------- reading


def _read_reduction(function: Any) -> Read:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        x, (axes, keepdim) = r.tensor(n.input(0)), r.axes(n)
        return function(x, axes, keepdim) if axes else function(x.unsqueeze(-1), [-1], False)

    return read


def _extreme(function: Any, beyond: float) -> Any:
    """Of no values it is the one that all others are beyond."""

    def reduce(x: Any, axes: list[int], keepdim: bool) -> Any:
        if x.dtype == torch.bool:
            return reduce(x.to(torch.uint8), axes, keepdim).to(torch.bool)
        if any(x.shape[axis] == 0 for axis in axes):
            kept = [axis % x.dim() for axis in axes]
            shape = [1 if a in kept else size for a, size in enumerate(x.shape) if keepdim or a not in kept]
            limits = None if x.is_floating_point() else torch.iinfo(x.dtype)
            least = beyond if limits is None else limits.max if beyond > 0 else limits.min
            return torch.full(shape, least, dtype=x.dtype)
        return function(x, axes, keepdim)

    return reduce


def _product(x: Any, axes: list[int], keepdim: bool) -> Any:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim)
    return x


def _norm(order: int) -> Any:
    return lambda x, axes, keepdim: torch.linalg.vector_norm(x, order, axes, keepdim)


def _read_place(function: Any) -> Read:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        x, axis, keepdim = r.tensor(n.input(0)), n.attribute("axis", 0), bool(n.attribute("keepdims", 1))
        if not n.attribute("select_last_index", 0):
            return function(x, axis, keepdim)
        return x.shape[axis] - 1 - function(torch.flip(x, [axis]), axis, keepdim)

    return read


def _read_global_max(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.input(0))
    return torch.amax(x, list(range(2, x.dim())), True)


FORMS = {
    "sum": OnnxForms(
        writes(_write_reduction("ReduceSum"), "float_sum", "aten.sum.default", "aten.sum.dim_IntList"),
        reads(_read_reduction(torch.sum), "ReduceSum"),
    ),
    "prod": OnnxForms(
        writes(_write_reduction("ReduceProd"), "float_product", "aten.prod.default", "aten.prod.dim_int"),
        reads(_read_reduction(_product), "ReduceProd"),
    ),
    "vector_norm": OnnxForms(
        writes(_write_reduction("ReduceL2"), "float_norm"),
        (*reads(_read_reduction(_norm(2)), "ReduceL2"), *reads(_read_reduction(_norm(1)), "ReduceL1")),
    ),
    "var": OnnxForms(writes(_write_variance, "float_variance")),
    "logsumexp": OnnxForms(reads=reads(_read_reduction(torch.logsumexp), "ReduceLogSumExp")),
    "amax": OnnxForms(
        writes(write_extreme("Max"), "aten.amax.default"),
        (
            *reads(_read_reduction(_extreme(torch.amax, float("-inf"))), "ReduceMax"),
            *reads(_read_global_max, "GlobalMaxPool"),
        ),
    ),
    "amin": OnnxForms(
        writes(write_extreme("Min"), "aten.amin.default"),
        reads(_read_reduction(_extreme(torch.amin, float("inf"))), "ReduceMin"),
    ),
    "any": OnnxForms(writes(_write_any("ReduceMax"), "aten.any.default", "aten.any.dim", "aten.any.dims")),
    "all": OnnxForms(writes(_write_any("ReduceMin"), "aten.all.default", "aten.all.dim", "aten.all.dims")),
    "argmax": OnnxForms(
        writes(_write_place("ArgMax"), "aten.argmax.default"), reads(_read_place(torch.argmax), "ArgMax")
    ),
    "argmin": OnnxForms(
        writes(_write_place("ArgMin"), "aten.argmin.default"), reads(_read_place(torch.argmin), "ArgMin")
    ),
}
