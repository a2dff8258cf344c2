"""Observation and fake quantization in one step, as quantization-aware training takes it at every layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.affine import Beyond, WayBack, fake_quantize, minmax
from zeropoint.numerics.blocks import Block, blocks_along, dense, grid


def observe_range(
    x: Tensor, block: Block, running: tuple[Tensor, Tensor], averaging_constant: float | None = None
) -> None:
    """Widen the running range by that of `x`, or move it towards that: ``min += c * (min(x) - min)``, in place.

    NaN in a block makes its range NaN, as in PyTorch.

    Args:
        x: of the dtype of `running`, not empty.
        running: min and max, one element for each block; ``(inf, -inf)`` is empty.

    Raises:
        ValueError: if the running range has another number of elements than `x` has blocks.

    Example:
        >>> running = torch.tensor([1.0]), torch.tensor([3.0])
        >>> observe_range(torch.tensor([2.0, 9.0]), (2,), running)
        >>> running
        (tensor([1.]), tensor([9.]))
    """
    low, high = running
    count = math.prod(blocks_along(x.shape, block))
    if not low.numel() == high.numel() == count:
        raise ValueError(
            f"the running range has {low.numel()} and {high.numel()} elements, but an input of shape {tuple(x.shape)}"
            f" has {count} blocks of {block}"
        )
    values = dense(x.detach())
    places = grid(values, block)
    native = all(t.dtype == torch.float32 and t.device.type == "cpu" for t in (x, *running))
    if native and places is not None and low.is_contiguous() and high.is_contiguous():
        average, rate = averaging_constant is not None, averaging_constant or 0.0
        _native.observe_range(
            values.data_ptr(), places.native, places.parts, low.data_ptr(), high.data_ptr(), average, rate
        )
        return
    now_low, now_high = (v.reshape(low.shape) for v in minmax(x.detach(), block))
    if averaging_constant is None:
        torch.minimum(low, now_low, out=low)
        torch.maximum(high, now_high, out=high)
        return
    empty = (low == torch.inf) & (high == -torch.inf)
    low.copy_(torch.where(empty, now_low, low + averaging_constant * (now_low - low)))
    high.copy_(torch.where(empty, now_high, high + averaging_constant * (now_high - high)))


def observe_and_fake_quantize(
    x: Tensor,
    block: Block,
    running: tuple[Tensor, Tensor],
    qparams: tuple[Tensor, Tensor],
    *,
    averaging_constant: float,
    qmin: int,
    qmax: int,
    symmetric: bool,
    per_channel: bool,
    observe: bool,
) -> tuple[Tensor, Tensor, bool]:
    """Move the running range towards that of `x`, derive scale and zero point, and fake-quantize `x` with them.

    ``min += averaging_constant * (min(x) - min)``, the first range being taken as it is; scale and zero point follow as
    in dynamic quantization (see `choose_qparams`), the zero point from the scale as float32 holds it, and ``(y, mask)``
    as in `fake_quantize`. One native call.

    Args:
        x: float, any shape.
        running: min and max, float32, ``(blocks,)``; changed in place if `observe`.
        qparams: scale, float32, and zero point, int32, ``(blocks,)``; written.
        per_channel: round as PyTorch's per-channel fake quantization does.

    Returns:
        `y`, `mask`, and whether every block had been observed; if not, its range was taken as [0, 0].

    Raises:
        ValueError: if `x` is not finite and is to be observed. Then nothing has changed.

    Example:
        >>> running = torch.tensor([float("inf")]), torch.tensor([float("-inf")])
        >>> qparams = torch.ones(1), torch.zeros(1, dtype=torch.int32)
        >>> y, mask, observed = observe_and_fake_quantize(
        ...     torch.tensor([-1.0, 0.1, 4.1]),
        ...     (3,),
        ...     running,
        ...     qparams,
        ...     averaging_constant=0.1,
        ...     qmin=0,
        ...     qmax=255,
        ...     symmetric=False,
        ...     per_channel=False,
        ...     observe=True,
        ... )
        >>> y, qparams
        (tensor([-1.0000,  0.1000,  4.1000]), (tensor([0.0200]), tensor([50], dtype=torch.int32)))
    """
    values = dense(x.detach())
    places = grid(values, block)
    state = (*running, *qparams)
    fits = all(t.is_contiguous() and t.device.type == "cpu" for t in state) and running[0].dtype == torch.float32
    if x.device.type == "cpu" and x.dtype == torch.float32 and places is not None and fits:
        y, mask = torch.empty_like(values), torch.empty_like(values, dtype=torch.bool)
        observed = _native.observe_and_fake_quantize(
            values.data_ptr(),
            places.native,
            per_channel,
            observe,
            places.parts,
            (running[0].data_ptr(), running[1].data_ptr(), qparams[0].data_ptr(), qparams[1].data_ptr()),
            averaging_constant,
            y.data_ptr(),
            mask.data_ptr(),
            qmin,
            qmax,
            symmetric,
        )
        return y, mask, observed
    if observe and x.numel():
        move_towards(x, block, running, averaging_constant)
    observed = True
    scales, zero_points = [], []
    for low, high in zip(running[0].reshape(-1).tolist(), running[1].reshape(-1).tolist()):
        observed = observed and math.isfinite(low) and math.isfinite(high)
        scale, zero_point = _native.qparams_of_range(low, high, qmin, qmax, symmetric, True)
        scales.append(scale)
        zero_points.append(zero_point)
    qparams[0].copy_(torch.tensor(scales).reshape(qparams[0].shape))
    qparams[1].copy_(torch.tensor(zero_points).reshape(qparams[1].shape))
    y, mask = fake_quantize(
        x,
        qparams[0].reshape(-1).to(torch.float32),
        qparams[1].reshape(-1),
        block,
        qmin=qmin,
        qmax=qmax,
        beyond=Beyond.int64_low if per_channel else Beyond.nan_low,
        way_back=WayBack.exact_product if per_channel else WayBack.exact,
    )
    return y, mask, observed


def move_towards(x: Tensor, block: Block, running: tuple[Tensor, Tensor], averaging_constant: float) -> None:
    """Move the running range towards that of `x`, in place.

    Example:
        >>> running = torch.tensor([1.0]), torch.tensor([3.0])
        >>> move_towards(torch.tensor([2.0, 9.0]), (2,), running, 0.5)
        >>> running
        (tensor([1.5000]), tensor([6.]))
    """
    now = minmax(x.detach(), block)
    if not all(bool(torch.isfinite(v).all()) for v in now):
        raise ValueError(
            f"the input must be finite to be observed, got a range of [{now[0].min()}, {now[1].max()}]; the running"
            " range is unchanged"
        )
    for average, value in zip(running, now):
        value = value.reshape(average.shape).to(average.dtype)
        average.copy_(torch.where(torch.isinf(average), value, average + averaging_constant * (value - average)))
