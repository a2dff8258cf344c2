"""ONNX forms of quantize and dequantize."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.numerics.affine import BYTE_LIMITS
from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, reads, writes

MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operators

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
    """Scale and zero point of integers in a file: one, one for each channel along an axis, or for each block of it.

    Args:
        dtype: of the integers, where there is no zero point, which has it.
    """

    def __init__(
        self, r: OnnxReader, scale: Any, shift: Any, dtype: str, axis: int | None = None, block: int = 0
    ) -> None:
        self.r, self.scale, self.shift, self.block = r, scale, shift, block
        self.known = r.is_known(scale) and (shift is None or r.is_known(shift))
        shape = tuple(r.array(scale).shape) if r.is_known(scale) else tuple(scale.shape)
        self.axis = None if all(size == 1 for size in shape) and not block else axis
        if self.axis is None and any(size != 1 for size in shape):
            raise r.unsupported(f"a scale of shape {list(shape)} where one number is supported")
        self.dtype = dtype if shift is None else r.storage(shift)
        if self.dtype not in _LIMITS and self.dtype != "int32":
            raise r.unsupported(f"its integers are {self.dtype}; those of 4, 8 and 16 bits are supported")

    @property
    def is_of_bytes(self) -> bool:
        return self.known and not self.block and self.dtype in ("uint8", "int8")

    @property
    def numbers(self) -> tuple[float, int]:
        """Of one scale."""
        return float(self.r.number(self.scale)), 0 if self.shift is None else int(self.r.number(self.shift))

    @property
    def channels(self) -> tuple[Any, Any]:
        """Of one for each channel."""
        scale = self.r.tensor(self.scale)
        if self.shift is None:
            return scale, torch.zeros_like(scale, dtype=torch.int64)
        return scale, self.r.tensor(self.shift).to(torch.int64)

    def spread(self, x: Any) -> tuple[Any, Any]:
        """Scale and zero point as floats, in shapes that broadcast with a tensor."""
        made = []
        for value in (self.scale, self.shift):
            part = torch.zeros((), dtype=torch.float32) if value is None else self.r.tensor(value).to(torch.float32)
            if self.axis is None:
                part = part.reshape(())
            elif self.block and part.dim():
                part = part.repeat_interleave(self.block, self.axis).narrow(self.axis, 0, x.shape[self.axis])
            elif part.dim():
                part = part.reshape([-1 if axis == self.axis % x.dim() else 1 for axis in range(x.dim())])
            made.append(part)
        return made[0], made[1]

    def integers(self, x: Any) -> Any:
        """A tensor of floats, rounded."""
        x = x if x.dtype == torch.float32 else x.to(torch.float32)
        low, high = _LIMITS[self.dtype]
        if self.is_of_bytes:
            dtype = getattr(torch, self.dtype)
            if self.axis is None:
                return self.r.rounded(ours.quantize_per_tensor(x, *self.numbers, low, high, dtype), *self.numbers)
            return ours.quantize_per_channel(x, *self.channels, self.axis % x.dim(), low, high, dtype)
        scale, shift = self.spread(x)
        made = torch.clamp(torch.round(x / scale) + shift, low, high)
        return made.to(_KEPT_IN.get(self.dtype) or getattr(torch, self.dtype))

    def floats(self, q: Any) -> Any:
        """What integers stand for: a tensor, or a weight that stays stored as it is."""
        constant = self.r.is_known(q) and self.known and not self.r.dtype(q).is_floating_point
        if constant and self.r.dtype(self.scale) == torch.float32:
            return self.r.stored(q, self.scale, self.shift, self.axis, self.block)
        q = self.r.tensor(q)
        if self.is_of_bytes and self.axis is None and q.dtype in BYTE_LIMITS:
            return ours.dequantize_per_tensor(q, *self.numbers, *BYTE_LIMITS[q.dtype], q.dtype)
        scale, shift = self.spread(q)
        return (q.to(torch.float32) - shift) * scale


def _read_quantize(r: OnnxReader, n: ReadNode) -> Any:
    x, code = r.tensor(n.input(0)), n.attribute("output_dtype", 0)
    axis, block = n.attribute("axis", 1), n.attribute("block_size", 0)
    s = Scaled(r, n.input(1), n.input(2), r.storage_of(code) if code else "uint8", axis, block)
    n.without_effect("saturate")  # of floats of 8 bits
    if s.dtype not in ("uint8", "int8"):
        n.keeps_dtype()
    return s.integers(x)


def _read_dequantize(r: OnnxReader, n: ReadNode) -> Any:
    q, code = n.input(0), n.attribute("output_dtype", 0)
    if r.dtype(q).is_floating_point:
        return _of_small_floats(r, n, q)
    axis, block = n.attribute("axis", 1), n.attribute("block_size", 0)
    s = Scaled(r, n.input(1), n.input(2), r.storage(q), axis, block)
    made, dtype = s.floats(q), r.torch_dtype(code) if code else r.dtype(s.scale)
    return made if dtype == torch.float32 else r.tensor(made).to(dtype)


def _of_small_floats(r: OnnxReader, n: ReadNode, q: Any) -> Any:
    n.without_effect("axis", "output_dtype")
    n.input(2)  # is 0 for floats
    scale = r.tensor(n.input(1))
    if scale.numel() != 1 or n.attribute("block_size", 0):
        raise r.unsupported("floats of 8 bits are supported with one scale")
    return (r.tensor(q).to(torch.float32) * scale.to(torch.float32).reshape(())).to(scale.dtype)


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
        reads=(
            *reads(_read_quantize, "QuantizeLinear", f"{MICROSOFT}.QuantizeLinear"),
            *reads(_read_dynamic, "DynamicQuantizeLinear"),
        ),
    ),
    "dequantize": OnnxForms(
        writes=writes(_write_dequantize, "dequantize_per_tensor", "dequantize", "stored_dequantize"),
        reads=reads(_read_dequantize, "DequantizeLinear", f"{MICROSOFT}.DequantizeLinear"),
    ),
    "lookup": OnnxForms(writes=writes(_write_lookup, "lookup")),
    "stored_function": OnnxForms(writes=writes(_write_requantize, "requantize")),
}
