"""Resampling of the integers a QTensor stores: the nearest and the mean of neighbours, exactly as PyTorch had it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.affine import INTEGER_CODES
from zeropoint.ops import checks
from zeropoint.ops.library import Sizes, operator
from zeropoint.ops.spatial import Layout, layout

# PyTorch's vector loops take this many channels at once.
_VECTOR = 8


def _nearest_layout(q: Tensor, output_size: Sizes) -> Layout:
    spatial = len(output_size)
    if q.dim() != spatial + 2:
        raise ValueError(f"upsample_nearest{spatial}d: input must have {spatial + 2} dimensions, got {tuple(q.shape)}")
    if 0 in (*q.shape[1:], *output_size):
        raise checks.OperandError(
            f"upsample_nearest{spatial}d: neither the input {tuple(q.shape)} nor the output {tuple(output_size)} may be"
            " empty"
        )
    return layout(f"upsample_nearest{spatial}d", q, spatial)


def _fake_nearest(q: Tensor, output_size: Sizes) -> Tensor:
    return _nearest_layout(q, output_size).empty(output_size)


@operator(fake=_fake_nearest)
def stored_nearest(q: Tensor, output_size: Sizes, scales: Sequence[float], exact: bool) -> Tensor:
    """``y[o] = q[floor(o / scale)]`` along each spatial axis, in float32; `exact` takes ``o + 0.5``.

    torch's own operators on integers take shortcuts where the output is twice as large, whatever the scale says.

    Args:
        scales: output / input for each spatial axis; 0 for the quotient of the sizes.

    Example:
        >>> stored_nearest(torch.tensor([[[1, 2]]], dtype=torch.uint8), [4], [0.0], False)
        tensor([[[1, 1, 2, 2]]], dtype=torch.uint8)
    """
    place = _nearest_layout(q, output_size)
    if tuple(output_size) == place.sizes:
        return place.empty(output_size).copy_(q)
    if q.device.type == "cpu" and q.dtype in INTEGER_CODES:
        y = place.empty(output_size)
        missing = 3 - len(scales)
        _native.nearest(place.native(y, output_size), (*(0.0,) * missing, *scales), exact)  # type: ignore[arg-type]
        return y
    for axis, (out, scale) in enumerate(zip(output_size, scales)):
        size = q.shape[axis + 2]
        step = torch.tensor(1.0 / scale if scale > 0 else size / out, dtype=torch.float32)
        at = torch.arange(out, dtype=torch.float64, device=q.device) + (0.5 if exact else 0.0)
        at = (at * step if exact else at.to(torch.float32) * step).to(torch.float32)
        q = q.index_select(axis + 2, at.floor().to(torch.int64).clamp(max=size - 1))
    return q


def _placed(q: Tensor, output_size: Sizes) -> Layout:
    if q.dim() != 4 or q.shape[1] < 1 or q.shape[2] < 1 or q.shape[3] < 1:
        raise checks.OperandError(
            f"upsample_bilinear2d: input must be (N, C, H, W) and not empty, got shape {tuple(q.shape)}"
        )
    if len(output_size) != 2 or min(output_size) < 1:
        raise ValueError(f"upsample_bilinear2d: output_size must be two positive ints, got {list(output_size)}")
    return layout("upsample_bilinear2d", q, 2)


def _fake_bilinear(q: Tensor, output_size: Sizes) -> Tensor:
    return _placed(q, output_size).empty(output_size)


@operator(fake=_fake_bilinear)
def stored_bilinear(
    q: Tensor,
    output_size: Sizes,
    align_corners: bool,
    scale_height: float | None,
    scale_width: float | None,
    zero_point: int,
    qmin: int,
    qmax: int,
) -> Tensor:
    """Weighted means of the four inputs around each output; see native/kernels/bilinear/bilinear.h for the formula.

    PyTorch's compiler fused multiplications and additions in its channels-last code and not in the other one, which
    shows in 5 of 100000 results: we do as it did.

    Args:
        scale_height, scale_width: output / input, where they are not the quotients of the sizes.

    Example:
        >>> q = torch.tensor([[[[0, 10]]]], dtype=torch.uint8)
        >>> stored_bilinear(q, [1, 3], True, None, None, 0, 0, 255)
        tensor([[[[ 0,  5, 10]]]], dtype=torch.uint8)
    """
    place = _placed(q, output_size)
    y = place.empty(output_size)
    if tuple(output_size) == place.sizes and not place.channels_last:  # PyTorch minds the scales in the other layout
        return y.copy_(q)
    scales = scale_height or 0.0, scale_width or 0.0
    fused = place.channels_last
    by_vector = fused and place.channels >= _VECTOR and q.dtype != torch.int32
    if q.device.type == "cpu" and q.dtype in (torch.uint8, torch.int8):
        _native.bilinear(
            place.native(y, output_size), align_corners, *scales, fused, not by_vector, zero_point, qmin, qmax
        )
        return y
    return y.copy_(_formula(place.tensor, output_size, align_corners, scales, zero_point, qmin, qmax))


def _taps(q: Tensor, dim: int, out: int, align_corners: bool, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Along one axis: the two inputs of each output and their weights."""
    size = q.shape[dim]
    places = torch.arange(out, dtype=torch.float32, device=q.device)
    if align_corners:
        at = places * (torch.tensor(size - 1.0) / max(out - 1, 1) if out > 1 else 0.0)
    else:
        step = torch.tensor(1.0 / scale if scale > 0 else size / out, dtype=torch.float32)
        at = (step * (places + 0.5) - 0.5).clamp(min=0)
    first = at.to(torch.int64).clamp(max=size - 1)
    weight = at - first
    return first, (first + 1).clamp(max=size - 1), 1.0 - weight, weight


def _formula(
    q: Tensor,
    output_size: Sizes,
    align_corners: bool,
    scales: tuple[float, float],
    zero_point: int,
    qmin: int,
    qmax: int,
) -> Tensor:
    """The formula in torch operations, nothing fused."""
    values = q.to(torch.float32)
    for dim in (3, 2):  # the width first: that is where the parentheses are
        first, second, w0, w1 = _taps(q, dim, output_size[dim - 2], align_corners, scales[dim - 2])
        shape = (-1, 1) if dim == 2 else (-1,)
        values = w0.reshape(shape) * values.index_select(dim, first) + w1.reshape(shape) * values.index_select(
            dim, second
        )
    rounded = ((values - zero_point) + zero_point).round().to(torch.float64)  # qmax of int32 is exact in float64
    return rounded.clamp(qmin, qmax).to(q.dtype)


def _refuse_interpolate(q: Tensor) -> NoReturn:
    raise TypeError(
        f"zeropoint::interpolate takes a quantized tensor (zeropoint.QTensor), got a {q.dtype} tensor of shape"
        f" {tuple(q.shape)}: use torch.nn.functional.interpolate"
    )


@operator(fake=_refuse_interpolate, types={"return": "Tensor"})
def interpolate(
    q: Tensor, size: Sizes | None, scale_factors: Sequence[float] | None, mode: str, align_corners: bool
) -> NoReturn:
    """Interpolation of a QTensor in recorded code; `zeropoint.tensor` answers, plain tensors are refused."""
    _refuse_interpolate(q)
