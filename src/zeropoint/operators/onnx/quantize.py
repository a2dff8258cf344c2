"""Where floats become integers and integers floats."""

from __future__ import annotations

from typing import Any

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


# The integers of QuantizeLinear and DequantizeLinear, and what they are computed in where it is not 8 bits.
_LIMITS = {
    "uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767),
    "uint4": (0, 15), "int4": (-8, 7), "uint2": (0, 3), "int2": (-2, 1),
}  # fmt: skip
_KEPT_IN = {"uint16": torch.int32, "int16": torch.int32, "uint4": torch.uint8, "int4": torch.int8}


class Scaled:
    """Scale and zero point of QuantizeLinear or DequantizeLinear: one, one for each channel, or for each block."""

    def __init__(self, r: OnnxReader, n: ReadNode, rank: int, default: str) -> None:
        self.scale, self.shift = n.input(1), n.input(2)
        self.known = r.is_known(self.scale) and (self.shift is None or r.is_known(self.shift))
        self.block = n.attribute("block_size", 0)
        shape = tuple(r.array(self.scale).shape) if r.is_known(self.scale) else tuple(self.scale.shape)
        self.is_one = all(size == 1 for size in shape) and not self.block
        axis = n.attribute("axis", 1)
        self.axis = axis % rank if rank and not self.is_one else 0
        self.dtype = default if self.shift is None else r.storage(self.shift)
        self.r = r

    @property
    def numbers(self) -> tuple[float, int]:
        """Of one scale."""
        shift = 0 if self.shift is None else int(self.r.number(self.shift))
        return float(self.r.number(self.scale)), shift

    @property
    def channels(self) -> tuple[Any, Any]:
        scale = self.r.tensor(self.scale).to(torch.float32)
        return scale, torch.zeros_like(scale, dtype=torch.int64) if self.shift is None else self.r.tensor(
            self.shift
        ).long()

    def spread(self, x: Any) -> tuple[Any, Any]:
        """Scale and zero point as floats, in shapes that broadcast with a tensor."""
        made = []
        for value in (self.scale, self.shift):
            part = torch.zeros((), dtype=torch.float32) if value is None else self.r.tensor(value).to(torch.float32)
            if self.is_one:
                part = part.reshape(())
            elif self.block and part.dim():
                part = part.repeat_interleave(self.block, self.axis).narrow(self.axis, 0, x.shape[self.axis])
            elif part.dim():
                part = part.reshape([-1 if axis == self.axis else 1 for axis in range(x.dim())])
            made.append(part)
        return made[0], made[1]


def _read_quantize(r: OnnxReader, n: ReadNode) -> Any:
    x, code = r.tensor(n.input(0)), n.attribute("output_dtype", 0)
    x = x if x.dtype == torch.float32 else x.to(torch.float32)
    s = Scaled(r, n, x.dim(), r.storage_of(code) if code else "uint8")
    n.without_effect("saturate")  # of floats of 8 bits
    if s.dtype not in _LIMITS:
        raise r.unsupported(f"it returns {s.dtype}; integers of 4, 8 and 16 bits are supported")
    low, high = _LIMITS[s.dtype]
    if s.known and not s.block and s.dtype in ("uint8", "int8"):
        dtype = getattr(torch, s.dtype)
        if s.is_one:
            return ours.quantize_per_tensor(x, *s.numbers, low, high, dtype)
        return ours.quantize_per_channel(x, *s.channels, s.axis, low, high, dtype)
    scale, shift = s.spread(x)
    made = torch.clamp(torch.round(x / scale) + shift, low, high)
    n.keeps_dtype()
    return made.to(_KEPT_IN.get(s.dtype) or getattr(torch, s.dtype))


def _read_dequantize(r: OnnxReader, n: ReadNode) -> Any:
    q = n.input(0)
    code = n.attribute("output_dtype", 0)
    if code and r.torch_dtype(code) not in (torch.float32, r.dtype(n.input(1))):
        raise r.unsupported(f"output_dtype {r.torch_dtype(code)} is not supported")
    s = Scaled(r, n, r.rank(q), r.storage(q))
    if r.is_known(q) and s.known and r.dtype(s.scale) == torch.float32 and not r.dtype(q).is_floating_point:
        return r.stored(q, s.scale, s.shift, n)
    q = r.tensor(q)
    if s.known and s.is_one and q.dtype in BYTE_LIMITS and s.dtype in ("uint8", "int8"):
        return ours.dequantize_per_tensor(q, *s.numbers, *BYTE_LIMITS[q.dtype], q.dtype)
    scale, shift = s.spread(q)
    made, dtype = (q.to(torch.float32) - shift) * scale, r.torch_dtype(code) if code else r.dtype(s.scale)
    return made if dtype == torch.float32 else made.to(dtype)


def _read_dynamic(r: OnnxReader, n: ReadNode) -> Any:
    """Integers of 8 bits over the range of all values and 0, their scale and zero point."""
    x = r.tensor(n.input(0))
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
