"""Where floats become integers and integers floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx

from zeropoint.numerics.affine import BYTE_LIMITS
from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, reads, writes

__all__ = ["FORMS"]

ours = torch.ops.zeropoint


def _write_quantize(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    dtype = a.get("dtype", a.get("storage"))
    limits = a.get("quant_min", a.get("qmin")), a.get("quant_max", a.get("qmax"))
    if limits != BYTE_LIMITS.get(dtype):
        raise w.unsupported(f"QuantizeLinear uses the whole range of its dtype, not {limits[0]} to {limits[1]}")
    return w.result(w.floats(node.args[0]))


def _write_quantize_channels(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    if (a["quant_min"], a["quant_max"]) != BYTE_LIMITS.get(a["dtype"]):
        raise w.unsupported("QuantizeLinear uses the whole range of its dtype")
    zero_points = w.parameter(a["zero_points"]).to(a["dtype"])
    scales = w.parameter(a["scales"]).float()
    return w.op("QuantizeLinear", w.floats(a["input"]), scales, zero_points, axis=a["axis"])


def _write_dequantize(w: OnnxWriter, node: fx.Node) -> Any:
    return w.floats(node.args[0])


def _write_lookup(w: OnnxWriter, node: fx.Node) -> Any:
    """A function of bytes: its 256 results, in the order of the numbers that bytes are."""
    x, table = node.args
    results, dtype = w.parameter(table), w.dtype(x)
    index = w.convert(w.tensor(x), torch.int32)
    if dtype == torch.int8:
        results, index = results.roll(128), w.op("Add", index, w.number(128, torch.int32))
    return w.op("Gather", w.constant(results, str(table.target)), index, axis=0)


def _write_requantize(w: OnnxWriter, node: fx.Node) -> Any:
    return w.result(w.floats(node.args[0]))


def _parameters(r: OnnxReader, n: ReadNode) -> tuple[Any, Any, torch.dtype]:
    """Scale and zero point of QuantizeLinear or DequantizeLinear as arrays, and the dtype of the integers."""
    given = n.inputs[2] if len(n.inputs) > 2 else None
    if not r.is_known(n.inputs[1]) or not (given is None or r.is_known(given)):
        raise r.unsupported("its scale or zero point is not a constant")
    scale = r.array(n.inputs[1])
    if given is None:
        return scale, np.zeros(scale.shape, np.int64), torch.uint8
    return scale, r.array(given).astype(np.int64), r.dtype(given)


def _read_quantize(r: OnnxReader, n: ReadNode) -> Any:
    scale, zero_point, dtype = _parameters(r, n)
    if dtype not in BYTE_LIMITS:
        raise r.unsupported(f"it returns {dtype}; only 8-bit integers are supported")
    x, limits = r.tensor(n.inputs[0]), BYTE_LIMITS[dtype]
    if scale.size == 1:
        return ours.quantize_per_tensor(x, scale.item(), zero_point.item(), *limits, dtype)
    parameters = r.tensor(n.inputs[1]), r.tensor(n.inputs[2]).to(torch.int64)
    return ours.quantize_per_channel(x, *parameters, n.attribute("axis", 1), *limits, dtype)


def _read_dequantize(r: OnnxReader, n: ReadNode) -> Any:
    if r.is_known(n.inputs[0]):
        return r.stored(n.inputs[0], n.inputs[1], n.inputs[2] if len(n.inputs) > 2 else None, n)
    q = r.tensor(n.inputs[0])
    if not r.is_known(n.inputs[1]) or r.array(n.inputs[1]).size > 1:
        return _dequantized(r, n, q)
    scale, zero_point, _ = _parameters(r, n)
    if q.dtype not in BYTE_LIMITS:
        raise r.unsupported(f"it takes {q.dtype}; activations must have 8 bits")
    return ours.dequantize_per_tensor(q, scale.item(), zero_point.item(), *BYTE_LIMITS[q.dtype], q.dtype)


def _dequantized(r: OnnxReader, n: ReadNode, q: Any) -> Any:
    """With a scale for each channel, or one that is computed."""
    if n.attribute("block_size", 0):
        raise r.unsupported("activations with block-wise scales are not supported")
    scale, shift = r.tensor(n.inputs[1]), r.tensor(n.inputs[2]) if len(n.inputs) > 2 else None
    shape = [-1 if axis == n.attribute("axis", 1) % q.dim() else 1 for axis in range(q.dim())] if scale.dim() else []
    x = q.to(torch.float32)
    x = x if shift is None else x - shift.to(torch.float32).reshape(shape)
    return x * scale.reshape(shape)


def _read_dynamic(r: OnnxReader, n: ReadNode) -> Any:
    """Integers of 8 bits over the range of all values and 0, their scale and zero point."""
    x = r.tensor(n.inputs[0])
    low, high = torch.clamp_max(torch.amin(x), 0.0), torch.clamp_min(torch.amax(x), 0.0)
    scale = torch.clamp_min((high - low) / 255.0, torch.finfo(torch.float32).eps)
    shift = torch.clamp(torch.round(-low / scale), 0.0, 255.0)
    q = torch.clamp(torch.round(x / scale) + shift, 0.0, 255.0)
    return [q.to(torch.uint8), scale, shift.to(torch.uint8)]


FORMS = {
    "quantize": OnnxForms(
        writes=(
            *writes(_write_quantize, "quantize_per_tensor", "stored_quantize"),
            *writes(_write_quantize_channels, "quantize_per_channel"),
        ),
        reads=(*reads(_read_quantize, "QuantizeLinear"), *reads(_read_dynamic, "DynamicQuantizeLinear")),
    ),
    "dequantize": OnnxForms(
        writes=writes(_write_dequantize, "dequantize_per_tensor", "dequantize", "stored_dequantize"),
        reads=reads(_read_dequantize, "DequantizeLinear"),
    ),
    "lookup": OnnxForms(writes=writes(_write_lookup, "lookup")),
    "stored_function": OnnxForms(writes=writes(_write_requantize, "requantize")),
}
