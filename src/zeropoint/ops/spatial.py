"""Images and the windows that slide over them: shapes and layouts of spatial operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.affine import INTEGER_CODES
from zeropoint.numerics.blocks import CHANNELS_LAST


class Layout(NamedTuple):
    """A dense tensor as images of channels of places, with spatial axes last.

    `channels_last` is what PyTorch chooses its code by. One place, or one channel, is in both layouts; in memory we
    take it as contiguous.
    """

    tensor: Tensor
    channels_last: bool
    contiguous: bool
    outer: tuple[int, ...]  # sizes before the spatial ones: the batch, if there is one, and the channels
    sizes: tuple[int, ...]  # spatial ones

    @property
    def channels(self) -> int:
        return self.outer[-1]

    def empty(self, sizes: Sequence[int]) -> Tensor:
        """Memory for a result with these spatial sizes, in the same layout."""
        if self.contiguous:
            return self.tensor.new_empty((*self.outer, *sizes))
        strides = []
        step = self.channels
        for size in reversed(sizes):
            strides.append(step)
            step *= size
        return self.tensor.new_empty_strided((*self.outer, *sizes), (step, 1, *reversed(strides)))

    @property
    def counts(self) -> tuple[int, int]:
        """Images and channels, as they lie: channels that are not innermost in memory are images of their own."""
        return (math.prod(self.outer), 1) if self.contiguous else (self.outer[0], self.outer[1])

    def native(self, y: Tensor, sizes: Sequence[int]) -> _native.Pooled:
        """What the native operators take for a result `y` of these spatial sizes."""
        x = self.tensor
        return x.data_ptr(), y.data_ptr(), INTEGER_CODES[x.dtype], *self.counts, three(self.sizes), three(sizes)


def layout(name: str, q: Tensor, spatial: int) -> Layout:
    """The layout of a batch (or of one image) with `spatial` axes; contiguous unless it is channels last already."""
    shape = tuple(q.shape)
    rank = len(shape)
    if rank not in (spatial + 1, spatial + 2):
        raise ValueError(
            f"{name}: input must have {spatial + 1} or {spatial + 2} dimensions ({spatial} spatial ones after the"
            f" channels), got shape {shape}"
        )
    parts = shape[: rank - spatial], shape[rank - spatial :]
    if rank == spatial + 2 and rank in CHANNELS_LAST and q.is_contiguous(memory_format=CHANNELS_LAST[rank]):
        return Layout(q, True, q.is_contiguous(), *parts)
    return Layout(q.contiguous(), False, True, *parts)


def three(values: Sequence[int], missing: int = 1) -> _native.Three:
    """Depth, height and width: axes that are not there come first."""
    if len(values) == 2:
        return missing, values[0], values[1]
    return (values[0], values[1], values[2]) if len(values) == 3 else (missing, missing, values[0])


def _each(name: str, what: str, values: Sequence[int], spatial: int) -> tuple[int, ...]:
    if len(values) not in (1, spatial):
        raise ValueError(f"{name}: {what} must be one int or {spatial}, got {list(values)}")
    return tuple(values) * spatial if len(values) == 1 else tuple(values)


class Windows(NamedTuple):
    """The parameters of sliding windows, one for each spatial axis, and the output sizes they give."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    out: tuple[int, ...]
    # kernel, stride, padding and dilation as the native operators take them
    native: tuple[_native.Three, _native.Three, _native.Three, _native.Three]


def windows(
    name: str,
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Windows:
    """Check and complete the parameters of sliding windows over `sizes`.

    Example:
        >>> windows("max_pool2d", (8, 8), [3], [2], [1], [1], False).out
        (4, 4)
    """
    arguments = tuple(sizes), tuple(kernel), tuple(stride), tuple(padding), tuple(dilation)
    known = all(type(n) is int for n in sizes)  # while torch.compile traces, sizes may be symbols
    return (_remembered_windows if known else _windows)(name, *arguments, ceil_mode)


def _windows(
    name: str,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> Windows:
    n = len(sizes)
    kernels = _each(name, "kernel_size", kernel, n)
    strides = _each(name, "stride", stride or kernels, n)
    paddings = _each(name, "padding", padding, n)
    dilations = _each(name, "dilation", dilation, n)
    for what, values in (("kernel_size", kernels), ("stride", strides), ("dilation", dilations)):
        if min(values) < 1:
            raise ValueError(f"{name}: {what} must be positive, got {values}")
    for k, p in zip(kernels, paddings):
        if not 0 <= p <= k // 2:
            raise ValueError(f"{name}: padding must be between 0 and half of the kernel, got {p} for a kernel of {k}")
    out = tuple(_steps(*axis, ceil_mode) for axis in zip(sizes, kernels, strides, paddings, dilations))
    if min(out) < 1 or min(sizes) < 1:
        raise ValueError(
            f"{name}: an input of {sizes} is too small for a kernel of {kernels} with padding {paddings} and"
            f" dilation {dilations}: the output would be {out}"
        )
    native = three(kernels), three(strides), three(paddings, 0), three(dilations)
    return Windows(kernels, strides, paddings, dilations, out, native)


_remembered_windows = functools.lru_cache(maxsize=1024)(_windows)


def _steps(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    room = size + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)
    out = room // stride + 1
    # The last window must begin inside the input or its left padding.
    return out - 1 if ceil_mode and (out - 1) * stride >= size + padding else out
