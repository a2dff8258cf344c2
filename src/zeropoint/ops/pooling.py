"""Pooling of the integers a QTensor stores: the largest and the mean of windows, exactly as PyTorch had it.

A window takes `kernel` inputs, `dilation` apart, and moves by `stride`; places outside the input are padding, which
never wins a maximum and counts as the value 0 in a mean. Spatial axes come last, after the channels and, if there is
one, the batch.

How PyTorch 2.13 rounds a mean depends on the operator and on the layout of the input, and differs at ties:

=====================  ==============================  =========================================================
operator               contiguous                      channels last
=====================  ==============================  =========================================================
avg_pool1d/2d          rne(sum / n + zero_point)       rne(sum / n) + zero_point; below 8 channels as contiguous
avg_pool3d             as channels last                rne(sum / n) + zero_point; below 8 channels as avg_pool2d
adaptive_avg_pool      rne(raw / d / h / w)            rne(fma(sum, 1 / n, zero_point)), below 8 channels no fma
mean, innermost axes   rne(raw / n), a true division   (other axes: see `stored_mean_of_columns`)
=====================  ==============================  =========================================================

`sum` has the zero points taken out, `raw` has them in; ``/ n`` is a product with the float32 reciprocal. With
zero_point 1 and a 2x2 window of 3, 3, 4, 4 the mean is 3.5: 4 where the input is contiguous, 3 if it is channels last.
(PyTorch rounds the last ``C % 8`` channels as if there were fewer than 8; with AVX512, ``C % 16``. We round all alike.)

QNNPACK takes avg_pool2d and adaptive_avg_pool2d of uint8 in every layout as ``rne(sum * (scale / (scale * n))) +
zero_point``, and so do these operators where `zeropoint.ops.rounding.of_values` says so. What it has not is rounded as
above: other ranks, ceil_mode, windows of several sizes.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.affine import INTEGER_CODES, RoundingVariant, dequantize_tensor, quantize_tensor
from zeropoint.numerics.blocks import CHANNELS_LAST
from zeropoint.ops.library import Sizes, operator
from zeropoint.ops.rounding import QNNPACK, of_values
from zeropoint.ops.spatial import Layout, Windows, layout, windows

# Means of larger windows than this do not fit in the int32 sums of the kernels.
_INT32_WINDOW = 2**23
# PyTorch's vector loops take this many channels at once.
_VECTOR = 8


class Averaging(enum.IntEnum):
    """How a mean is rounded; see Averaging in native/kernels/average_pool/average_pool.h."""

    split = 0
    joined = 1
    fused = 2
    chained = 3
    divided = 4


# -------------------------------------------------------------------------------------------------------- maximum


def _fake_max_pool(
    q: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    spatial: int,
) -> Tensor:
    place = layout("max_pool", q, spatial)
    return place.empty(windows("max_pool", place.sizes, kernel, stride, padding, dilation, ceil_mode).out)


@operator(fake=_fake_max_pool)
def stored_max_pool(
    q: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    spatial: int,
) -> Tensor:
    """The largest integer of each window over the last `spatial` axes.

    Example:
        >>> stored_max_pool(torch.tensor([[1, 5, 2, 3]], dtype=torch.uint8), [2], [2], [0], [1], False, 1)
        tensor([[5, 3]], dtype=torch.uint8)
    """
    place = layout("max_pool", q, spatial)
    w = windows("max_pool", place.sizes, kernel, stride, padding, dilation, ceil_mode)
    if q.device.type != "cpu" or q.dtype not in (torch.uint8, torch.int8, torch.int32):
        return _max_of_windows(q, w)
    y = place.empty(w.out)
    _native.max_pool(place.native(y, w.out), *w.native)
    return y


def _max_of_windows(q: Tensor, w: Windows) -> Tensor:
    """The formula in torch operations: one axis after the other, one tap after the other."""
    for axis, out in enumerate(w.out):
        dim = q.dim() - len(w.out) + axis
        shape = [1] * q.dim()
        shape[dim] = out
        first = torch.arange(out, device=q.device) * w.stride[axis] - w.padding[axis]
        largest = q.new_full((*q.shape[:dim], out, *q.shape[dim + 1 :]), torch.iinfo(q.dtype).min)
        for tap in range(w.kernel[axis]):
            at = first + tap * w.dilation[axis]
            inside = ((at >= 0) & (at < q.shape[dim])).reshape(shape)
            there = q.index_select(dim, at.clamp(0, q.shape[dim] - 1))
            largest = torch.where(inside, torch.maximum(largest, there), largest)
        q = largest
    return q


# ----------------------------------------------------------------------------------------------------------- mean


class Rule(NamedTuple):
    """How sums become means."""

    averaging: Averaging
    zero_point: int  # taken out of the sums and added at the end
    qmin: int
    qmax: int
    divisor: int = 0  # 0: the product of the axes' divisors
    scale: float = 1.0  # factors are scale / (scale * divisor)


def _as_qnnpack(q: Tensor, spatial: int) -> bool:
    """Whether means of the last axes of `q` are QNNPACK's."""
    return spatial == 2 and q.dtype == torch.uint8 and of_values() == QNNPACK


# For one axis: (first input, one past the last, what it contributes to the divisor) of each output.
Spans = list[tuple[int, int, int]]


def _sliding(size: int, w: Windows, axis: int, count_include_pad: bool) -> Spans:
    spans = []
    for o in range(w.out[axis]):
        begin = o * w.stride[axis] - w.padding[axis]
        end = min(begin + w.kernel[axis], size + w.padding[axis])
        first, last = max(begin, 0), min(end, size)
        spans.append((first, last, end - begin if count_include_pad else last - first))
    return spans


def _dividing(size: int, out: int) -> Spans:
    spans = [(o * size // out, -(-(o + 1) * size // out)) for o in range(out)]
    return [(begin, end, end - begin) for begin, end in spans]


def _mean_of_spans(q: Tensor, spans: Sequence[Spans], rule: Rule) -> Tensor:
    """The formula in torch operations, with int64 sums."""
    sums = q.to(torch.int64)
    divisors, inputs = [], []
    for axis, of_axis in enumerate(spans):
        dim = q.dim() - len(spans) + axis
        begin, end, divisor = torch.tensor(of_axis, dtype=torch.int64, device=q.device).reshape(-1, 3).unbind(1)
        until = torch.nn.functional.pad(sums.cumsum(dim).movedim(dim, -1), (1, 0)).movedim(
            -1, dim
        )  # until[i]: the sum of all before i
        sums = until.index_select(dim, end) - until.index_select(dim, begin)
        shape = [-1] + [1] * (len(spans) - 1 - axis)
        divisors.append(divisor.reshape(shape))
        inputs.append((end - begin).reshape(shape))
    total = (sums - math.prod(inputs) * rule.zero_point).to(torch.float32)
    if rule.averaging == Averaging.chained:
        scaled = total * _chain(divisors)
    elif rule.averaging == Averaging.divided:
        scaled = total / math.prod(divisors)
    else:
        divisor = torch.as_tensor(rule.divisor or math.prod(divisors), dtype=torch.float32, device=q.device)
        scale = torch.tensor(rule.scale, dtype=torch.float32, device=q.device)
        m = scale / (scale * divisor)
        scaled = total.to(torch.float64) * m if rule.averaging == Averaging.fused else total * m
    if rule.averaging == Averaging.split:
        rounded = scaled.round() + rule.zero_point
    else:  # float64 keeps the product of `fused` exact, so that this is its one rounding
        rounded = (scaled + rule.zero_point).to(torch.float32).round()
    return rounded.clamp(rule.qmin, rule.qmax).to(q.dtype)


def _chain(divisors: Sequence[Tensor]) -> Tensor:
    m = 1.0 / divisors[0].to(torch.float32)
    for divisor in divisors[1:]:
        m = m / divisor
    return m


def _in_kernel(q: Tensor, window: int) -> bool:
    return q.device.type == "cpu" and q.dtype in (torch.uint8, torch.int8) and window < _INT32_WINDOW


def _fake_average_pool(
    q: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool, spatial: int
) -> Tensor:
    place = layout("avg_pool", q, spatial)
    return place.empty(windows("avg_pool", place.sizes, kernel, stride, padding, [1], ceil_mode).out)


@operator(fake=_fake_average_pool)
def stored_average_pool(
    q: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    zero_point: int,
    qmin: int,
    qmax: int,
    spatial: int,
    values_scale: float = 1.0,
) -> Tensor:
    """The mean of each window over the last `spatial` axes, in the same quantization parameters.

    Args:
        values_scale: their scale, for means as QNNPACK takes them; others do not depend on it.

    Example:
        >>> q = torch.tensor([[1, 5, 2, 4]], dtype=torch.uint8)
        >>> stored_average_pool(q, [2], [2], [0], False, True, None, 0, 0, 255, 1)
        tensor([[3, 3]], dtype=torch.uint8)
    """
    if divisor_override == 0:
        raise ValueError("avg_pool: divisor_override must not be zero")
    place = layout("avg_pool", q, spatial)
    w = windows("avg_pool", place.sizes, kernel, stride, padding, [1], ceil_mode)
    by_vector = (place.channels_last or spatial == 3) and place.channels >= _VECTOR
    averaging = Averaging.split if by_vector and q.dtype != torch.int32 else Averaging.joined
    rule = Rule(averaging, zero_point, qmin, qmax, divisor_override or 0)
    if not ceil_mode and _as_qnnpack(q, spatial):
        rule = rule._replace(averaging=Averaging.split, scale=values_scale)
    if not _in_kernel(q, math.prod(w.kernel)):
        spans = [_sliding(size, w, axis, count_include_pad) for axis, size in enumerate(place.sizes)]
        return place.empty(w.out).copy_(_mean_of_spans(place.tensor, spans, rule))
    y = place.empty(w.out)
    _native.average_pool(
        place.native(y, w.out),
        *w.native[:3],
        rule.averaging,
        count_include_pad,
        rule.divisor,
        zero_point,
        qmin,
        qmax,
        rule.scale,
    )
    return y


def _adaptive_sizes(place: Layout, output_size: Sizes) -> tuple[int, ...]:
    if len(output_size) != len(place.sizes) or min(output_size) < 1:
        raise ValueError(
            f"adaptive_avg_pool: output_size must be {len(place.sizes)} positive ints, got {list(output_size)}"
        )
    if min(place.sizes) < 1:
        raise ValueError(f"adaptive_avg_pool: an input of {place.sizes} has no values to average")
    return tuple(output_size)


def _fake_adaptive(q: Tensor, output_size: Sizes) -> Tensor:
    place = layout("adaptive_avg_pool", q, len(output_size))
    return place.empty(_adaptive_sizes(place, output_size))


@operator(fake=_fake_adaptive)
def stored_adaptive_average_pool(
    q: Tensor, output_size: Sizes, zero_point: int, qmin: int, qmax: int, values_scale: float = 1.0
) -> Tensor:
    """The mean of windows that share the input evenly among the outputs. For `values_scale` see `stored_average_pool`.

    Example:
        >>> stored_adaptive_average_pool(torch.tensor([[1, 5, 2, 4]], dtype=torch.uint8), [2], 0, 0, 255)
        tensor([[3, 3]], dtype=torch.uint8)
    """
    place = layout("adaptive_avg_pool", q, len(output_size))
    out = _adaptive_sizes(place, output_size)
    if not place.channels_last:
        rule = Rule(Averaging.chained, 0, qmin, qmax)
    elif place.channels >= _VECTOR and q.dtype != torch.int32:
        rule = Rule(Averaging.fused, zero_point, qmin, qmax)
    else:
        rule = Rule(Averaging.joined, zero_point, qmin, qmax)
    of_one_size = out != tuple(place.sizes) and not any(size % o for size, o in zip(place.sizes, out))
    if of_one_size and _as_qnnpack(q, len(out)):
        rule = Rule(Averaging.split, zero_point, qmin, qmax, scale=values_scale)
    y = place.empty(out)
    if not _in_kernel(q, math.prod(place.sizes)):
        spans = [_dividing(size, o) for size, o in zip(place.sizes, out)]
        return y.copy_(_mean_of_spans(place.tensor, spans, rule))
    _native.adaptive_average_pool(place.native(y, out), rule.averaging, rule.zero_point, qmin, qmax, rule.scale)
    return y


def _fake_mean(q: Tensor, axes: int) -> Tensor:
    return q.new_empty(q.shape[: q.dim() - axes])


@operator(fake=_fake_mean)
def stored_mean(q: Tensor, axes: int, qmin: int, qmax: int) -> Tensor:
    """``rne(sum / n)`` over the last `axes` axes. Zero points are in the sum, and so in its mean.

    Example:
        >>> stored_mean(torch.tensor([[1, 5, 2], [1, 2, 3]], dtype=torch.uint8), 1, 0, 255)
        tensor([3, 2], dtype=torch.uint8)
    """
    kept = q.shape[: q.dim() - axes]
    images = math.prod(kept)
    length = math.prod(q.shape[len(kept) :])
    if not length:
        raise ValueError(f"mean: the last {axes} axes of shape {tuple(q.shape)} have no values to average")
    values = q.contiguous()
    if not _in_kernel(q, length):
        rule = Rule(Averaging.divided, 0, qmin, qmax)
        return _mean_of_spans(values.reshape(images, length), [[(0, length, length)]], rule).reshape(kept)
    y = torch.empty(kept, dtype=q.dtype)
    _native.mean_of_rows(_native_means(values, y, qmin, qmax), images, length)
    return y


def _native_means(
    x: Tensor, y: Tensor, qmin: int, qmax: int, scale: float = 1.0, zero_point: int = 0
) -> _native.Normalized:
    return x.data_ptr(), INTEGER_CODES[x.dtype], scale, zero_point, y.data_ptr(), 1.0, 0, qmin, qmax


def memory_order(q: Tensor) -> tuple[int, ...] | None:
    """The axes of a contiguous or channels-last tensor, outermost in memory first; None for other layouts."""
    axes = tuple(range(q.dim()))
    if q.is_contiguous():
        return axes
    if q.dim() in CHANNELS_LAST and q.is_contiguous(memory_format=CHANNELS_LAST[q.dim()]):
        return (0, *axes[2:], 1)
    return None


def are_columns(q: Tensor, axes: Sequence[int]) -> bool:
    """Whether `axes` are neighbours in memory with others inside them, in 8 bits: what `stored_mean_of_columns` takes.

    Example:
        >>> are_columns(torch.zeros(2, 3, 4, dtype=torch.uint8), [1]), are_columns(torch.zeros(2, 3, 4), [0, 2])
        (True, False)
    """
    order = memory_order(q)
    if order is None or q.dtype not in (torch.uint8, torch.int8):
        return False
    return _columns(q.shape, order, axes) is not None


class _Columns(NamedTuple):
    """A mean over `rows` of each of `outer` images of ``(rows, inner)`` values."""

    outer: int
    rows: int
    inner: int
    shape: list[int]  # of the result in the order of memory, and how its axes are permuted then
    permutation: list[int] | None


def _columns(shape: torch.Size, order: tuple[int, ...], axes: Sequence[int]) -> _Columns | None:
    """How the mean over `axes` goes; None unless they are neighbours in memory with others inside them."""
    if all(type(n) is int for n in shape):
        return _known_columns(shape, order, tuple(axes))
    return _new_columns(shape, order, tuple(axes))  # sizes that a compiler does not know


def _new_columns(shape: torch.Size, order: tuple[int, ...], axes: tuple[int, ...]) -> _Columns | None:
    if not axes or not math.prod(shape):
        return None
    sizes = [shape[d] for d in order]
    places = sorted(order.index(axis) for axis in axes)
    first, end = places[0], places[-1] + 1
    inner = math.prod(sizes[end:])
    if end - first != len(axes) or inner == 1:
        return None
    kept = [d for d in order if d not in axes]
    permutation = None if kept == sorted(kept) else [kept.index(d) for d in sorted(kept)]
    return _Columns(math.prod(sizes[:first]), math.prod(sizes[first:end]), inner, [shape[d] for d in kept], permutation)


_known_columns = functools.lru_cache(maxsize=1024)(_new_columns)


def _fake_mean_of_columns(q: Tensor, axes: Sequence[int]) -> Tensor:
    kept = [d for d in memory_order(q) or range(q.dim()) if d not in axes]
    return q.new_empty([q.shape[d] for d in kept]).permute([kept.index(d) for d in sorted(kept)])


@operator(fake=_fake_mean_of_columns)
def stored_mean_of_columns(
    q: Tensor, axes: Sequence[int], scale: float, zero_point: int, qmin: int, qmax: int
) -> Tensor:
    """The mean over axes with others inside them in memory, as PyTorch has it: quantized from a mean in float32.

    That sum is not exact, and at a tie its errors decide: with scale 0.1 the mean of 3 and 4 is 3 or 4, depending on
    what came before. So sums are taken in integers, and again in float32, in PyTorch's order, where a mean is close
    to a tie.

    Example:
        >>> stored_mean_of_columns(torch.tensor([[1, 5], [3, 5]], dtype=torch.uint8), [0], 0.1, 0, 0, 255)
        tensor([2, 5], dtype=torch.uint8)
    """
    order = memory_order(q)
    columns = None if order is None or not are_columns(q, axes) else _columns(q.shape, order, axes)
    if order is None or columns is None:
        raise ValueError(f"mean: axes {list(axes)} of shape {tuple(q.shape)} have no others inside them in memory")
    outer, rows, inner, shape, permutation = columns
    if q.is_cpu:
        means = torch.empty(shape, dtype=q.dtype)
        _native.mean_of_columns(_native_means(q, means, qmin, qmax, scale, zero_point), outer, rows, inner)
    else:
        floats = dequantize_tensor(q.permute(order).reshape(outer, rows, inner), scale, zero_point, exact=True).mean(1)
        means = quantize_tensor(
            floats, scale, zero_point, qmin=qmin, qmax=qmax, dtype=q.dtype, variant=RoundingVariant.fused
        )
        means = means.reshape(shape)
    return means if permutation is None else means.permute(permutation)


def _fake_mean_over(q: Tensor, axes: Sequence[int], keepdim: bool) -> Tensor:
    dropped = [axis % q.dim() for axis in axes or range(q.dim())]
    return q.new_empty([1 if d in dropped else n for d, n in enumerate(q.shape) if keepdim or d not in dropped])


def has_integer_mean(q: Tensor, axes: Sequence[int]) -> bool:
    """Whether the mean over these axes, in order, is computed in integers: they are innermost, or others lie inside.

    Example:
        >>> q = torch.zeros(2, 3, 4, dtype=torch.uint8)
        >>> has_integer_mean(q, [1]), has_integer_mean(q, [0, 2])
        (True, False)
    """
    if _are_last(q, axes) and q.is_contiguous():
        return True
    return are_columns(q.contiguous(memory_format=torch._prims_common.suggest_memory_format(q)), axes)


def _are_last(q: Tensor, axes: Sequence[int]) -> bool:
    return list(axes) == list(range(q.dim() - len(axes), q.dim()))


@operator(fake=_fake_mean_over)
def stored_mean_over(
    q: Tensor, axes: Sequence[int], keepdim: bool, scale: float, zero_point: int, qmin: int, qmax: int
) -> Tensor:
    """The mean over any axes, or over all if none are named.

    In integers where the axes are innermost or others lie inside them, else from the exact mean as a float.

    Example:
        >>> stored_mean_over(torch.tensor([[1, 5], [3, 6]], dtype=torch.uint8), [-1], True, 0.1, 0, 0, 255)
        tensor([[3],
                [4]], dtype=torch.uint8)
    """
    if q.dim() == 0:
        return q.clone()
    dropped = sorted({axis % q.dim() for axis in axes or range(q.dim())})
    if _are_last(q, dropped) and q.is_contiguous():
        means = stored_mean(q, len(dropped), qmin, qmax)
    else:
        values = q.contiguous(memory_format=torch._prims_common.suggest_memory_format(q))
        if are_columns(values, dropped):
            means = stored_mean_of_columns(values, dropped, scale, zero_point, qmin, qmax)
        else:
            count = math.prod(q.shape[d] for d in dropped)
            sums = values.sum(dropped, dtype=torch.int64) - count * zero_point
            floats = (sums.double() * float(torch.tensor(scale, dtype=torch.float32)) / count).float()
            means = quantize_tensor(
                floats, scale, zero_point, qmin=qmin, qmax=qmax, dtype=q.dtype, variant=RoundingVariant.fused
            )
    for axis in dropped if keepdim else ():
        means = means.unsqueeze(axis)
    return means.contiguous()
