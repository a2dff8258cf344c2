"""Writing to QTensors in place: values are quantized with the parameters the tensor has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from zeropoint.numerics.blocks import is_dense
from zeropoint.tensor.errors import QTensorError
from zeropoint.tensor.qtensor import QParams, QTensor, floats, implements
from zeropoint.tensor.quantizer import PerChannelQuantizer, PerTensorQuantizer, Quantizer, is_plain

aten = torch.ops.aten


def write(q: QTensor, change: Callable[[torch.Tensor], Any]) -> QTensor:
    """Let `change` modify the integers of `q` in place; packed ones are unpacked for it and packed again."""
    if not q.is_packed():
        change(q._data)
    elif q.numel():
        bits = q._qdtype.bits
        part, start = q._packed_part()
        every = torch.ops.zeropoint.stored_unpack(part, part.numel() * q._qdtype.per_byte, bits)
        change(every.as_strided(q.shape, q.stride(), start))
        part.copy_(torch.ops.zeropoint.stored_pack(every, bits))
    return q


def _as_float32(q: QTensor, source: torch.Tensor) -> torch.Tensor:
    if not source.is_floating_point():
        raise QTensorError(
            f"only floats can be quantized into a {q._qdtype.name} tensor, got {source.dtype}: call .float()"
        )
    return source.detach().to(torch.float32)


# ------------------------------------------------------------------------------------------------------------ copying


@implements(aten.copy_.default)
def copy_(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if not isinstance(target, QTensor):
        raise QTensorError(
            "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a float"
            " Tensor from a quantized Tensor"
        )
    if isinstance(source, QTensor):
        return _copy_quantized(target, source)
    source = _as_float32(target, source)
    if source.dim() == 0:
        return _fill(target, source)
    if not is_dense(target):
        raise QTensorError(
            "Quantized copy only works with contiguous and NHWC Tensors: this part of a tensor is neither; assign a"
            " quantized tensor, or use a boolean mask or index tensors"
        )
    if source.shape != target.shape or source.stride() != target.stride() or source.device != target.device:
        source = torch.empty_strided(target.size(), target.stride(), device=target.device).copy_(source)
    quantized = target._quantizer.quantize(source, target._qdtype)
    return write(target, lambda values: values.copy_(quantized))


def _copy_quantized(target: QTensor, source: QTensor) -> QTensor:
    if target._qdtype != source._qdtype:
        raise QTensorError(
            f"cannot copy a {source._qdtype.name} tensor into a {target._qdtype.name} tensor: dequantize and quantize"
            " again"
        )
    if not _same_qparams(target._quantizer, source._quantizer):
        if target.numel() != target._qparams.elements:
            # Part of another tensor, whose qparams stay: what is copied are values.
            return _requantize_into(target, source)
        if target.shape != source.shape:
            raise QTensorError(
                f"a tensor of shape {tuple(target.shape)} cannot get the qparams of a tensor of shape "
                f"{tuple(source.shape)}"
            )
        _take_over(target, source)
    if target.is_packed() and target.numel() == target._qparams.elements and _same_places(target, source):
        target._data.copy_(source._data)
        return target
    integers = source.values()
    return write(target, lambda values: values.copy_(integers))


def _same_places(a: QTensor, b: QTensor) -> bool:
    """Whether packed `a` and `b` have the same elements at the same places of as many bytes."""
    return (
        a.shape == b.shape
        and a.stride() == b.stride()
        and a.storage_offset() == b.storage_offset()
        and a._data.shape == b._data.shape
    )


def _same_qparams(a: Quantizer, b: Quantizer) -> bool:
    if not isinstance(a, PerChannelQuantizer) or not isinstance(b, PerChannelQuantizer) or is_plain(a.scales):
        return a.same(b)
    # While compiling, scales have no values yet: the compiled function checks them each time it runs.
    if a.axis != b.axis or a.scales.shape != b.scales.shape or a.zero_points.dtype != b.zero_points.dtype:
        return False
    for mine, other in ((a.scales, b.scales), (a.zero_points, b.zero_points)):
        torch._assert_async((mine == other).all(), "copy_ cannot change per-channel qparams in a compiled function")
    return True


def _requantize_into(target: QTensor, source: QTensor) -> QTensor:
    requantized = target._quantizer.quantize(floats(source).expand(target.shape), target._qdtype)
    return write(target, lambda values: values.copy_(requantized))


def _take_over(target: QTensor, source: QTensor) -> None:
    """Give `target` the qparams of `source`, and its views too where they mean the same to them."""
    if not is_plain(target._data) and target.device.type != "meta":
        raise QTensorError(
            "copy_ cannot change the qparams of a quantized tensor while compiling: copy tensors of the same qparams,"
            " or return the new tensor"
        )
    old, new = target._quantizer, source._quantizer.to(target.device)
    per_tensor = isinstance(old, PerTensorQuantizer) and isinstance(new, PerTensorQuantizer)
    same_axis = isinstance(old, PerChannelQuantizer) and isinstance(new, PerChannelQuantizer) and old.axis == new.axis
    if per_tensor or same_axis:
        target._qparams.quantizer = new
    else:
        target._qparams = QParams(new, target.numel())


# ------------------------------------------------------------------------------------------------------------ filling


def _fill(q: QTensor, value: torch.Tensor) -> QTensor:
    """Set every element to a float32 tensor of no dimensions."""
    quantizer = q._quantizer
    if isinstance(quantizer, PerTensorQuantizer):
        stored = quantizer.quantize(value.to(q.device), q._qdtype)
        return write(q, lambda values: values.fill_(stored))
    full = quantizer.quantize(value.to(q.device).expand(q.shape), q._qdtype)
    return write(q, lambda values: values.copy_(full))


def _number(value: Any) -> torch.Tensor:
    """A number, or a tensor of no dimensions, as a float32 tensor of no dimensions."""
    if isinstance(value, QTensor):
        value = floats(value)
    if not isinstance(value, torch.Tensor):
        return torch.tensor(value, dtype=torch.float32)
    if value.dim() != 0:
        raise QTensorError(f"the value must be a number or a tensor of no dimensions, got shape {tuple(value.shape)}")
    return value.detach().to(torch.float32)


@implements(aten.fill_.Scalar, aten.fill_.Tensor)
def fill_(q: QTensor, value: Any) -> QTensor:
    return _fill(q, _number(value))


@implements(aten.zero_.default)
def zero_(q: QTensor) -> QTensor:
    return _fill(q, torch.zeros(()))


@implements(aten.masked_fill_.Scalar, aten.masked_fill_.Tensor)
def masked_fill_(q: QTensor, mask: torch.Tensor, value: Any) -> QTensor:
    quantizer, number = q._quantizer, _number(value).to(q.device)
    if isinstance(quantizer, PerTensorQuantizer):
        stored = quantizer.quantize(number, q._qdtype)
        return write(q, lambda values: values.masked_fill_(mask, stored))
    full = quantizer.quantize(number.expand(q.shape), q._qdtype)
    return write(q, lambda values: values.copy_(torch.where(mask, full, values)))


@implements(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(q: QTensor, mask: torch.Tensor, value: Any) -> QTensor:
    return masked_fill_(q.clone(), mask, value)


# ----------------------------------------------------------------------------------------------------------- indexing


@implements(aten.index_put_.default, aten._index_put_impl_.default)
def index_put_(
    q: QTensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> QTensor:
    if accumulate:
        raise NotImplementedError(
            "index_put_ with accumulate=True is not supported for quantized tensors: call .dequantize() first"
        )
    if not isinstance(q, QTensor):
        raise QTensorError("a quantized tensor cannot be written to a float tensor: use its dequantize()")
    stored = _quantized_for(q, indices, values)
    return write(q, lambda every: aten.index_put_.default(every, indices, stored))


def _quantized_for(q: QTensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor) -> torch.Tensor:
    """The integers that `values` become at these indices of `q`."""
    if isinstance(values, QTensor):
        if (
            values._qdtype == q._qdtype
            and isinstance(q._quantizer, PerTensorQuantizer)
            and q._quantizer == values._quantizer
        ):
            return values.values()
        values = floats(values)
    values = _as_float32(q, values)
    quantizer = q._quantizer
    if isinstance(quantizer, PerTensorQuantizer):
        return quantizer.quantize(values, q._qdtype)
    # Which channel each written element is in, found as the elements themselves are.
    channels = torch.arange(q.shape[quantizer.axis], device=q.device)
    channels = channels.view([-1 if d == quantizer.axis else 1 for d in range(q.dim())]).expand(q.shape)
    channel = aten.index.Tensor(channels, indices)
    each = PerChannelQuantizer(quantizer.scales[channel].view(-1), quantizer.zero_points[channel].view(-1), 0)
    return each.quantize(values.expand(channel.shape).reshape(-1), q._qdtype).view(channel.shape)


@implements(aten.index_put.default)
def index_put(
    q: QTensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> QTensor:
    return index_put_(q.clone(), indices, values, accumulate)


# ---------------------------------------------------------------------------------------------------------- scattering


@implements(aten.select_scatter.default)
def select_scatter(q: QTensor, source: torch.Tensor, dim: int, index: int) -> QTensor:
    result = q.clone()
    result.select(dim, index).copy_(source)
    return result


@implements(aten.slice_scatter.default)
def slice_scatter(
    q: QTensor, source: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> QTensor:
    result = q.clone()
    aten.slice.Tensor(result, dim, start, end, step).copy_(source)
    return result
