"""Padding and shuffling of QTensors: integers move, none changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from zeropoint.ops.shuffling import stored_channel_shuffle, stored_pixel_shuffle
from zeropoint.tensor.pooling import per_tensor
from zeropoint.tensor.qtensor import QTensor, implements
from zeropoint.tensor.recording import run

aten = torch.ops.aten


@implements(aten.constant_pad_nd.default)
def constant_pad_nd(q: QTensor, pad: Sequence[int], value: float = 0) -> QTensor:
    """Pads with the quantized `value`; 0 is the zero point."""
    quantizer = per_tensor("constant_pad_nd", q)
    if value == 0:
        return q.with_values(aten.constant_pad_nd.default(q.values(), pad, quantizer.zero_point))
    # As a tensor, not as a number: a number would have to be read back while torch.compile traces.
    filler = quantizer.quantize(torch.full((1,), float(value), device=q.device), q._qdtype)
    values = aten.constant_pad_nd.default(q.values(), pad, 0)
    inside = aten.constant_pad_nd.default(torch.ones_like(q.values(), dtype=torch.bool), pad, False)
    return q.with_values(torch.where(inside, values, filler))


def _moves(operator: Any, name: str) -> None:
    def move(q: QTensor, *arguments: Any) -> QTensor:
        per_tensor(name, q)
        return q.with_values(operator(q.values(), *arguments))

    move.__name__ = name
    implements(operator)(move)


def _moves_into(operator: Any, name: str) -> None:
    def move(q: QTensor, *arguments: Any, out: QTensor) -> QTensor:
        result = operator.default(q, *arguments)
        if not isinstance(out, QTensor) or out._quantizer != q._quantizer or out._qdtype is not q._qdtype:
            raise ValueError(f"{name}: out must be quantized as the input is")
        if out.shape != result.shape:
            raise ValueError(f"{name}: out must have the shape {tuple(result.shape)}, got {tuple(out.shape)}")
        return out.copy_(result)

    move.__name__ = f"{name}_out"
    implements(operator.out)(move)


for _name in (
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
):
    _moves(getattr(aten, _name).default, _name)
    _moves_into(getattr(aten, _name), _name)


@implements(aten.pixel_shuffle.default)
def pixel_shuffle(q: QTensor, upscale_factor: int) -> QTensor:
    per_tensor("pixel_shuffle", q)
    return q.with_values(run(stored_pixel_shuffle, q.values(), upscale_factor))


@implements(aten.pixel_unshuffle.default)
def pixel_unshuffle(q: QTensor, downscale_factor: int) -> QTensor:
    per_tensor("pixel_unshuffle", q)
    if q.dim() < 3:
        raise ValueError(f"pixel_unshuffle: input must have at least 3 dimensions, got shape {tuple(q.shape)}")
    *batch, channels, height, width = q.shape
    factor = downscale_factor
    if factor < 1 or height % factor or width % factor:
        raise ValueError(f"pixel_unshuffle: {height} x {width} places are not divisible by downscale_factor {factor}")
    # As a copy of a view: ten times as fast as torch's own operator on bytes.
    height, width = height // factor, width // factor
    split = q.values().reshape(*batch, channels, height, factor, width, factor)
    moved = split.movedim((-3, -1), (-4, -3)).reshape(*batch, channels * factor**2, height, width)
    return q.with_values(moved)


@implements(aten.channel_shuffle.default)
def channel_shuffle(q: QTensor, groups: int) -> QTensor:
    per_tensor("channel_shuffle", q)
    values = q.values()
    if q.dim() < 3 or groups < 1 or q.shape[1] % groups:
        raise ValueError(
            f"channel_shuffle: input must have at least 3 dimensions, and channels divisible by {groups} groups, got"
            f" shape {tuple(q.shape)}"
        )
    if not values.numel() or values.is_contiguous():
        return q.with_values(aten.channel_shuffle.default(values, groups))
    if q.dim() == 4 and values.is_contiguous(memory_format=torch.channels_last):
        return q.with_values(run(stored_channel_shuffle, values, groups))
    return q.with_values(aten.channel_shuffle.default(values.contiguous(), groups))
