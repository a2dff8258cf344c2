"""ONNX forms of embedding tables and embedding bags."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.numerics.packing import unpack
from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxWriter, writes
from zeropoint.ops.embedding import MODES, NAMES, parameter_bytes


def _parts(table: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """The integers of each row, its scale and its bias."""
    behind = parameter_bytes(bits)
    numbers = table[:, -behind:].contiguous().view(torch.float32 if bits == 8 else torch.float16).float()
    values = table[:, :-behind].contiguous()
    return values if bits == 8 else unpack(values, values.shape[1] * 8 // bits, bits), numbers[:, :1], numbers[:, 1:]


def _rows(w: OnnxWriter, a: dict[str, Any], bits: int) -> Any:
    """``scale * q + bias`` of the rows that are asked for: no DequantizeLinear, whose zero points are integers."""
    index, name = w.tensor(a["indices"]), str(a["weight"].target)
    integers, scale, bias = _parts(w.parameter(a["weight"]), bits)
    q, s, b = (
        w.op("Gather", w.constant(part.contiguous(), f"{name}{suffix}"), index, axis=0)
        for part, suffix in ((integers, ""), (scale, "_scale"), (bias, "_bias"))
    )
    return w.op("Add", w.op("Mul", w.convert(q, torch.float32), s), b)


def _bits(node: fx.Node) -> int:
    return next(bits for bits, name in NAMES.items() if f"_{name}" in str(node.target))


def _write(w: OnnxWriter, node: fx.Node) -> Any:
    return _rows(w, arguments(node), _bits(node))


def _write_float(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    return w.op("Gather", w.tensor(a["weight"]), w.tensor(a["indices"]), axis=0)


def _write_bags(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    mode = MODES[a["mode"]]
    if a["pruned_weights"]:
        raise w.unsupported("ONNX has no pruned tables")
    rows = _rows(w, a, _bits(node))
    if a["per_sample_weights"] is not None:
        rows = w.op("Mul", rows, w.op("Unsqueeze", w.tensor(a["per_sample_weights"]), w.ints([-1])))
    if w.rank(a["indices"]) == 2:  # bags of one length
        name = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}[mode]
        return w.op(name, rows, w.ints([1]), keepdims=0)
    return _joined(w, a, rows, mode)


def _joined(w: OnnxWriter, a: dict[str, Any], rows: Any, mode: str) -> Any:
    """Rows added up by the number of their bag: how many bags begin at or before them."""
    offsets = w.convert(w.tensor(a["offsets"]), torch.int64)
    if a["include_last_offset"]:
        offsets = w.op("Slice", offsets, w.ints([0]), w.ints([-1]), w.ints([0]))
    count, one, zero = w.axis_size(a["indices"], 0), w.number(1, torch.int64), w.number(0, torch.int64)
    places = w.op("Range", zero, w.op("Squeeze", count, w.ints([0])), one)
    begun = w.op("GreaterOrEqual", w.op("Unsqueeze", places, w.ints([1])), w.op("Unsqueeze", offsets, w.ints([0])))
    bags = w.op("ReduceSum", w.convert(begun, torch.int64), w.ints([1]), keepdims=1)
    bags = w.op("Sub", bags, one)
    number = w.op("Shape", offsets)
    width = w.op("Shape", rows, start=1, end=2)
    empty = torch.tensor(torch.finfo(torch.float32).min if mode == "max" else 0.0)
    start = w.op("Expand", w.constant(empty), w.op("Concat", number, width, axis=0))
    sums = w.op("ScatterND", start, bags, rows, reduction="max" if mode == "max" else "add")
    if mode == "sum":
        return sums
    ones = w.op("Expand", w.number(1.0), count)
    sizes = w.op("ScatterND", w.op("Expand", w.number(0.0), number), bags, ones, reduction="add")
    sizes = w.op("Unsqueeze", sizes, w.ints([1]))
    if mode == "mean":
        return w.op("Div", sums, w.op("Max", sizes, w.number(1.0)))
    return w.op("Where", w.op("Greater", sizes, w.number(0.0)), sums, w.number(0.0))


FORMS = {
    "embedding": OnnxForms((
        *writes(_write, *(f"embedding_{name}" for name in NAMES.values())),
        *writes(_write_float, "aten.embedding.default"),
    )),
    "embedding_bag": OnnxForms(
        writes(_write_bags, *(f"embedding_bag_{name}_rowwise_offsets" for name in NAMES.values()))
    ),
}  # fmt: skip
