"""Which elements of a tensor share a scale: blocks, and the grid the native kernels walk.

Every scheme is a block shape. For a tensor of shape ``(N, C, H, W)``:

==================  ====================  =================
scheme              block                 parameters
==================  ====================  =================
per tensor          ``(N, C, H, W)``      ``1``
per channel axis 1  ``(N, 1, H, W)``      ``C``
per token           ``(1, 1, 1, W)``      ``N * C * H``
per group of g      ``(1, 1, 1, g)``      ``N * C * H * W/g``
==================  ====================  =================

Parameters are kept flat, in row-major order of the blocks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch

Block = tuple[int, ...]
# Images of this many dimensions have a layout with their channels innermost.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def per_tensor(shape: Sequence[int]) -> Block:
    """One block: the whole tensor."""
    return tuple(shape)


def per_channel(shape: Sequence[int], axis: int) -> Block:
    """One block for each index of `axis`."""
    return tuple(1 if d == axis else n for d, n in enumerate(shape))


def per_token(shape: Sequence[int]) -> Block:
    """One block for each vector along the last axis."""
    return (*(1 for _ in shape[:-1]), shape[-1])


def per_group(shape: Sequence[int], group_size: int) -> Block:
    """One block for each `group_size` neighbours along the last axis."""
    return (*(1 for _ in shape[:-1]), group_size)


def blocks_along(shape: Sequence[int], block: Block) -> tuple[int, ...]:
    """How many blocks lie along each axis: ``shape / block``; an empty axis that is one block counts as one."""
    return tuple(n // b if b else 1 for n, b in zip(shape, block))


def expand(parameters: torch.Tensor, shape: Sequence[int], block: Block) -> torch.Tensor:
    """Flat parameters as a tensor that broadcasts against `shape`.

    Example:
        >>> expand(torch.tensor([1.0, 2.0]), (3, 4), (3, 2))
        tensor([[1., 1., 2., 2.]])
    """
    counts = blocks_along(shape, block)
    spread = parameters.reshape(counts)
    for axis, (count, size) in enumerate(zip(counts, block)):
        if count > 1 and size > 1:
            spread = spread.repeat_interleave(size, dim=axis)
    return spread


def memory_order(x: torch.Tensor) -> list[int]:
    """The axes of `x` from slowest to fastest in memory; axes of one element go last."""
    stride = x.stride()
    return sorted(range(x.dim()), key=lambda d: (x.shape[d] == 1, -stride[d], d))


def is_dense(x: torch.Tensor) -> bool:
    """Whether the elements of `x` fill a stretch of memory exactly once, in any order of the axes."""
    if x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)):
        return True
    expected = 1
    for d in reversed(memory_order(x)):
        if x.shape[d] == 1:
            continue
        if x.stride(d) != expected:
            return False
        expected *= x.shape[d]
    return True


def dense(x: torch.Tensor) -> torch.Tensor:
    """`x` itself if it is dense, else a copy laid out as ``torch.empty_like(x)`` would be."""
    return x if is_dense(x) else torch.empty_like(x).copy_(x)


class Grid:
    """A dense tensor as ``rows x segments x length`` elements; see Grid in native/kernels/types.h.

    `native` is what the kernels take. `row_base` keeps the looked-up parameter index of each row alive.
    """

    __slots__ = ("native", "parts", "row_base")

    def __init__(
        self, rows: int, segments: int, length: int, row_stride: int, row_base: torch.Tensor | None, parts: int
    ) -> None:
        self.row_base = row_base
        self.parts = parts
        self.native = (rows, segments, length, row_stride, 0 if row_base is None else row_base.data_ptr())


def grid(x: torch.Tensor, block: Block) -> Grid | None:
    """The grid of a dense tensor, or None where its memory order would split the parameters' order.

    (That needs blocks along several axes of a permuted tensor: make it contiguous first.)
    """
    if x.numel() == 0:
        return Grid(0, 0, 0, 0, None, math.prod(blocks_along(x.shape, block)))
    return _grid(tuple(x.shape), tuple(memory_order(x)), block)


@functools.lru_cache(maxsize=4096)
def _grid(shape: tuple[int, ...], order: tuple[int, ...], block: Block) -> Grid | None:
    counts = blocks_along(shape, block)
    parts = math.prod(counts)
    parameter_stride = [math.prod(counts[d + 1 :]) for d in range(len(shape))]

    outer = list(order)
    length = 1
    while outer and counts[outer[-1]] == 1:  # innermost axes that lie in one block
        length *= shape[outer.pop()]
    if not outer:
        return Grid(1, 1, length, 0, None, parts)
    inner = outer.pop()
    if parameter_stride[inner] != 1:
        return None
    segments = counts[inner]
    length *= block[inner]
    rows = math.prod(shape[d] for d in outer)

    if all(counts[d] == 1 for d in outer):
        if rows == 1 and length > 1:  # each segment is a row of its own: rows are what threads share
            return Grid(segments, 1, length, 1, None, parts)
        return Grid(rows, segments, length, 0, None, parts)
    base = torch.zeros((), dtype=torch.int64)
    for d in outer:
        base = base.unsqueeze(-1) + torch.arange(shape[d]) // block[d] * parameter_stride[d]
    base = base.reshape(-1).contiguous()
    if torch.equal(base, torch.arange(rows) * segments):
        return Grid(rows, segments, length, segments, None, parts)
    return Grid(rows, segments, length, 0, base, parts)
