"""Moving channels among themselves and to places, and values in their order."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.ops.library import Size, operator


def _shuffled_shape(q: Tensor, factor: int) -> tuple[int, ...]:
    if q.dim() < 3:
        raise ValueError(f"pixel_shuffle: input must have at least 3 dimensions, got shape {tuple(q.shape)}")
    *batch, channels, height, width = q.shape
    if factor < 1 or channels % factor**2:
        raise ValueError(
            f"pixel_shuffle: {channels} channels are not divisible by the square of upscale_factor {factor}"
        )
    return (*batch, channels // factor**2, height * factor, width * factor)


def _fake_pixel_shuffle(q: Tensor, factor: int) -> Tensor:
    return q.new_empty(_shuffled_shape(q, factor))


@operator(fake=_fake_pixel_shuffle)
def stored_pixel_shuffle(q: Tensor, factor: int) -> Tensor:
    """``(..., C * r * r, H, W)`` to ``(..., C, H * r, W * r)``, contiguous.

    Each row of the output is `r` rows of the input, interleaved; torch's own operator takes bytes one by one.

    Example:
        >>> stored_pixel_shuffle(torch.arange(4, dtype=torch.uint8).reshape(4, 1, 1), 2)
        tensor([[[0, 1],
                 [2, 3]]], dtype=torch.uint8)
    """
    shape = _shuffled_shape(q, factor)
    q = q.contiguous()
    height, width = q.shape[-2:]
    if q.device.type != "cpu" or q.element_size() not in (1, 4):
        split = q.reshape(*shape[:-2], factor, factor, height, width)
        return split.movedim((-3, -4), (-1, -3)).reshape(shape)
    y = q.new_empty(shape)
    place = height * width
    counts, strides = (math.prod(shape[:-2]), height, factor), (factor * factor * place, width, factor * place)
    _native.interleave(q.data_ptr(), y.data_ptr(), q.element_size(), counts, strides, factor, place, width)
    return y


def _fake_channel_shuffle(q: Tensor) -> Tensor:
    return torch.empty_like(q)


@operator(fake=_fake_channel_shuffle)
def stored_channel_shuffle(q: Tensor, groups: int) -> Tensor:
    """Of `groups` groups of channels the first of each, then the second of each, and so on, of a channels-last batch.

    Example:
        >>> q = torch.arange(4, dtype=torch.uint8).reshape(1, 4, 1, 1).contiguous(memory_format=torch.channels_last)
        >>> stored_channel_shuffle(q, 2).flatten()
        tensor([0, 2, 1, 3], dtype=torch.uint8)
    """
    y = torch.empty_like(q)
    channels = q.shape[1]
    if q.device.type != "cpu" or q.element_size() not in (1, 4):
        return y.copy_(torch.ops.aten.channel_shuffle.default(q, groups))
    counts, strides = (1, 1, q.numel() // channels), (0, 0, channels)
    each = channels // groups
    _native.interleave(q.data_ptr(), y.data_ptr(), q.element_size(), counts, strides, groups, each, each)
    return y


def _fake_top(input: Tensor, k: Size, dim: int) -> tuple[Tensor, Tensor]:
    shape = list(input.shape)
    if shape:
        shape[dim] = k
    return input.new_empty(shape), input.new_empty(shape, dtype=torch.int64)


@operator(fake=_fake_top)
def top(input: Tensor, k: Size, dim: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The `k` largest or smallest values along an axis, in their order, and where they are: of equal ones the first.

    It is ``torch.topk``, which leaves open which of equal values it takes.

    Example:
        >>> top(torch.tensor([3, 1, 3, 2], dtype=torch.uint8), 2)
        (tensor([3, 3], dtype=torch.uint8), tensor([0, 2]))
    """
    length = input.shape[dim] if input.dim() else 1
    if not 0 <= k <= length:
        raise ValueError(f"top: k is {k}, but there are {length} values along axis {dim}")
    values, indices = torch.sort(input, dim=dim, descending=largest, stable=True)
    if not input.dim():
        return values, indices
    return values.narrow(dim, 0, k).contiguous(), indices.narrow(dim, 0, k).contiguous()
