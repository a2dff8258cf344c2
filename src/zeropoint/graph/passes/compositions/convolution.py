"""Convolutions with computed weights and pooling with indices: values in windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.graph.passes.compositions.common import NotComposed, aten, compose, counted, of_channels, scaled

_MOST_POSITIONS = 64  # of a window, each of which is a part of the graph


def _each(value: Any, dims: int) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * dims if len(values) == 1 else values


def _positions(kernel: Sequence[int]) -> list[tuple[int, ...]]:
    """The places of a window."""
    if math.prod(kernel) > _MOST_POSITIONS:
        raise NotComposed
    return list(itertools.product(*map(range, kernel)))


def _at(x: Tensor, position: Sequence[int], outputs: Sequence[Any], stride: Any, dilation: Any) -> Tensor:
    """What lies at one place of all windows."""
    dims = len(position)
    for axis, (at, n, s, d) in enumerate(zip(position, outputs, stride, dilation)):
        x = aten.slice(x, x.dim() - dims + axis, at * d, at * d + (n - 1) * s + 1, s)
    return x


def _sides(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """What is added before and behind each axis, from the last to the first."""
    if padding == "valid":
        padding = 0
    if isinstance(padding, str):
        total = [d * (k - 1) for k, d in zip(kernel, dilation)]
        return [side for n in reversed(total) for side in (n // 2, n - n // 2)]
    return [side for n in reversed(_each(padding, len(kernel))) for side in (n, n)]


def _convolution(dims: int) -> Callable[..., Tensor]:
    """A convolution whose weight is computed: a product for each place of the window."""

    def made(
        x: Tensor,
        weight: Tensor,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        _, _, *kernel = (int(n) for n in weight.shape)
        positions = _positions(kernel)
        stride, dilation = _each(stride, dims), _each(dilation, dims)
        images = x.dim() == 4 and x.is_floating_point() and all(isinstance(n, int) for n in x.shape[2:])
        if dims == 2 and images and set(dilation) == {1} and not isinstance(padding, str):
            raise NotComposed  # operators/computed_weights.py has a quicker way
        batched = x if x.dim() == dims + 2 else x.unsqueeze(0)
        padded = aten.constant_pad_nd(batched, _sides(padding, kernel, dilation), 0)
        outputs = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded.shape[2:], kernel, stride, dilation)]
        filters = weight.unflatten(0, (groups, -1))  # group, output, input, kernel...
        total: Any = 0
        for position in positions:
            taken = filters
            for at in position:
                taken = taken.select(3, at)
            rows = _at(padded, position, outputs, stride, dilation).flatten(2).unflatten(1, (groups, -1))
            total = total + taken.unsqueeze(0) @ rows  # batch, group, input, place
        shape = [batched.shape[0], weight.shape[0], *outputs]
        result = scaled(total.reshape(shape), None, of_channels(bias, batched))
        return result if x.dim() == dims + 2 else result.squeeze(0)

    return made


def _transposed_convolution(dims: int) -> Callable[..., Tensor]:
    """One whose weight is computed: for each place of the window a product, moved there, with gaps for the stride."""

    def made(
        x: Tensor,
        weight: Tensor,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        _, _, *kernel = (int(n) for n in weight.shape)
        positions = _positions(kernel)
        stride, padding, more, dilation = (_each(v, dims) for v in (stride, padding, output_padding, dilation))
        batched = x if x.dim() == dims + 2 else x.unsqueeze(0)
        sizes = batched.shape[2:]
        rows = batched.flatten(2).unflatten(1, (groups, -1))  # batch, group, input, place
        filters = weight.unflatten(0, (groups, -1))  # group, input, output, kernel...
        total: Any = 0
        for position in positions:
            taken = filters
            for at in position:
                taken = taken.select(3, at)
            part = (taken.transpose(1, 2).unsqueeze(0) @ rows).flatten(1, 2).unflatten(2, list(sizes))
            for axis, (s, at, k, d, add) in enumerate(zip(stride, position, kernel, dilation, more)):
                part = _with_gaps(part, 2 + axis, s)
                behind = (k - 1 - at) * d + add
                part = _padded(part, 2 + axis, at * d, behind - (s - 1))
            total = total + part
        for axis, side in enumerate(padding):
            total = _padded(total, 2 + axis, -side, -side)
        result = scaled(total, None, of_channels(bias, batched))
        return result if x.dim() == dims + 2 else result.squeeze(0)

    return made


def _with_gaps(x: Tensor, axis: int, stride: int) -> Tensor:
    """Each value of an axis with ``stride - 1`` zeros behind it."""
    if stride == 1:
        return x
    apart = x.unsqueeze(axis + 1)
    return _padded(apart, axis + 1, 0, stride - 1).flatten(axis, axis + 1)


def _padded(x: Tensor, axis: int, before: int, after: int, value: Any = 0) -> Tensor:
    """Zeros before and behind an axis; negative numbers cut it."""
    if before == 0 and after == 0:
        return x
    return aten.constant_pad_nd(x, [0, 0] * (x.dim() - 1 - axis) + [before, after], value)


def _first_largest(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The largest along an axis and where it is first; of several that are no numbers, the last."""
    values, places = x.max(axis)
    if not x.is_floating_point():
        return values, places
    last = torch.where(x.isnan(), counted(x, axis), torch.full_like(x, -1, dtype=torch.int64)).amax(axis)
    return values, torch.where(last >= 0, last, places)


def _largest(dims: int, places: bool) -> Callable[..., Any]:
    """Max pooling as the largest of what lies at each place of the windows, and where it is in a plane."""

    def made(
        x: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        kernel, dilation, sides = (_each(v, dims) for v in (kernel_size, dilation, padding))
        stride = _each(stride, dims) if stride else kernel
        has_step = not places or (dims == 2 and x.dim() == 4)
        if x.dtype == torch.bool or (has_step and x.is_floating_point()):
            raise NotComposed
        if dims == 1 and x.dim() == 3 and x.is_floating_point():
            options = ([1, *kernel], [1, *stride], [0, *sides], [1, *dilation], ceil_mode)
            return [part.squeeze(-2) for part in aten.max_pool2d_with_indices(x.unsqueeze(-2), *options)]
        positions = _positions(kernel)
        sizes = x.shape[x.dim() - dims :]
        if not all(isinstance(n, int) for n in (sizes if ceil_mode else sizes[1:])):
            raise NotComposed
        least = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
        outputs, where = [], torch.zeros_like(x, dtype=torch.int64)
        for axis, (n, k, s, p, d) in enumerate(zip(sizes, kernel, stride, sides, dilation)):
            behind = n + 2 * p - d * (k - 1) - 1
            count = behind // s + 1
            if ceil_mode:
                count = -(-behind // s) + 1
                count -= (count - 1) * s >= n + p
            outputs.append(count)
            here = x.dim() - dims + axis
            if not x.is_floating_point() and (p or ceil_mode):
                raise NotComposed  # there is no number below all integers
            after = max((count - 1) * s + d * (k - 1) + 1 - n - p, p) if ceil_mode else p
            where = where * (n if axis else 0) + counted(where, here)
            x = _padded(x, here, p, after, least)
            where = _padded(where, here, p, after)
        windows = torch.stack([_at(x, position, outputs, stride, dilation) for position in positions])
        values, chosen = _first_largest(windows, 0)
        if not places:
            return values
        indices = torch.stack([_at(where, position, outputs, stride, dilation) for position in positions])
        return values, indices.gather(0, chosen.unsqueeze(0)).squeeze(0)

    return made


def _columns(
    x: Tensor, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """``im2col``: what lies at each place of the windows, as rows."""
    if x.dim() == 4 and set(dilation) == {1}:
        raise NotComposed  # which has a step
    batched = x if x.dim() == 4 else x.unsqueeze(0)
    padded = aten.constant_pad_nd(batched, _sides(list(padding), kernel_size, dilation), 0)
    outputs = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded.shape[2:], kernel_size, stride, dilation)]
    parts = [_at(padded, position, outputs, stride, dilation) for position in _positions(kernel_size)]
    made = torch.stack(parts, 2).flatten(3).flatten(1, 2)
    return made if x.dim() == 4 else made.squeeze(0)


def _put_back(dims: int) -> Callable[..., Tensor]:
    """``max_unpool``: values where they were in a plane of zeros."""

    def made(x: Tensor, indices: Tensor, output_size: Sequence[Any], *others: Any) -> Tensor:
        front = list(x.shape[: x.dim() - dims])
        zeros = x.new_zeros([*front, math.prod(output_size)])
        flat = len(front)
        return zeros.scatter(-1, indices.flatten(flat), x.flatten(flat)).reshape([*front, *output_size])

    return made


def _windows(size: int, count: int) -> list[list[int]]:
    """The places of the windows that an axis is divided into; short ones repeat their last."""
    bounds = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
    longest = max(end - begin for begin, end in bounds)
    return [[min(begin + i, end - 1) for i in range(longest)] for begin, end in bounds]


def _adaptive_maxima(dims: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """The largest value of each window, and where it is; of fixed sizes."""

    def made(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
        wanted = list(output_size) * (dims if len(output_size) == 1 else 1)
        sizes = x.shape[-dims:]
        if not all(isinstance(n, int) and n > 0 for n in (*sizes, *wanted)):
            raise NotComposed
        windows = [_windows(int(size), count) for size, count in zip(sizes, wanted)]
        first = x.dim() - dims
        flat = torch.zeros([1] * (2 * dims), dtype=torch.int64)
        for number, (size, places) in enumerate(zip(sizes, windows)):
            table = torch.tensor(places)
            shape = [1] * (2 * dims)
            shape[number], shape[dims + number] = table.shape
            flat = flat * int(size) + table.reshape(shape)
            x = x.index_select(first + 2 * number, table.reshape(-1)).unflatten(first + 2 * number, tuple(table.shape))
        order = [*range(first), *range(first, x.dim(), 2), *range(first + 1, x.dim(), 2)]
        values, found = _first_largest(x.permute(order).flatten(first + dims), -1)
        places = torch.zeros_like(found).unsqueeze(-1) + flat.flatten(dims)
        return values, places.gather(-1, found.unsqueeze(-1)).squeeze(-1)

    return made


def _linear(x: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    """A layer whose weight is computed, of one row or of integers; see operators/computed_weights.py for others."""
    if x.dim() > 1 and weight.dim() == 2 and x.is_floating_point():
        raise NotComposed
    return scaled(x @ (weight.t() if weight.dim() == 2 else weight), None, bias)


for _dims in (1, 2, 3):
    for _kind in ("default", "padding"):
        compose(f"conv{_dims}d.{_kind}", _convolution(_dims), layer=True, fixes=True)
    _kind = "default" if _dims == 1 else "input"
    compose(f"conv_transpose{_dims}d.{_kind}", _transposed_convolution(_dims), layer=True, fixes=True)
    compose(f"max_pool{_dims}d_with_indices.default", _largest(_dims, places=True))
    compose(f"max_pool{_dims}d.default", _largest(_dims, places=False))
    compose(f"adaptive_max_pool{_dims}d.default", _adaptive_maxima(_dims))
compose("max_unpool3d.default", _put_back(3))
compose("im2col.default", _columns)
compose("linear.default", _linear, layer=True)
