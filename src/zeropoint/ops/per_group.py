"""Operators of the decomposed library (`zeropoint.ops.decomposed`) with parameters for groups of a row."""

from __future__ import annotations

import torch
from torch import Tensor

from zeropoint.numerics import affine, blocks
from zeropoint.numerics.affine import RoundingVariant
from zeropoint.ops import checks
from zeropoint.ops.library import operator


def _group_size(op: str, x: Tensor, scales: Tensor, group_size: int) -> int:
    if x.dim() != 2:
        raise ValueError(f"{op}: input must have 2 dimensions, got shape {tuple(x.shape)}")
    if group_size <= 1:
        raise ValueError(f"{op}: group_size must be above 1, got {group_size}")
    columns = x.shape[-1]
    # One group may be named larger than the row it covers: single columns of a larger matrix are quantized like that.
    if group_size > columns and scales.shape[-1] == 1:
        return columns
    if columns % group_size != 0:
        raise ValueError(f"{op}: group_size {group_size} does not divide the {columns} columns of the input")
    return group_size


def _check_groups(op: str, x: Tensor, scales: Tensor, zero_points: Tensor | None, group_size: int) -> None:
    groups = x.numel() // group_size if group_size else 0
    why = f"one for each group of {group_size} in an input of shape {tuple(x.shape)}"
    checks.require_length(op, "scales", scales, groups, why)
    if zero_points is not None:
        checks.require_length(op, "zero_points", zero_points, groups, why)


def _fake_quantize_per_channel_group(
    input: Tensor, scales: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype, group_size: int
) -> Tensor:
    checks.require_range("quantize_per_channel_group", quant_min, quant_max, dtype)
    _group_size("quantize_per_channel_group", input, scales, group_size)
    return torch.empty_like(input, dtype=dtype)


@operator(fake=_fake_quantize_per_channel_group)
def quantize_per_channel_group(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int,
) -> Tensor:
    """``clamp(rne(input * (1 / scales) + zero_points), ...)`` with one scale for `group_size` neighbours in a row.

    Args:
        input: ``(m, n)``, float, without NaN.
        scales, zero_points: ``(m, n / group_size)``, or flat.

    Returns:
        ``(m, n)`` of type `dtype`.

    Raises:
        ValueError: if `input` holds NaN, besides what every op checks.

    Example:
        >>> x = torch.tensor([[1.0, 2.0, 1.0, 2.0]])
        >>> qparams = torch.tensor([[1.0, 0.5]]), torch.tensor([[0, 1]])
        >>> quantize_per_channel_group(x, *qparams, -8, 7, torch.int8, 2)
        tensor([[1, 2, 3, 5]], dtype=torch.int8)
    """
    op = "quantize_per_channel_group"
    checks.require_dtype(op, "input", input.dtype, (*checks.INPUT_DTYPES, torch.float64))
    checks.require_range(op, quant_min, quant_max, dtype)
    group_size = _group_size(op, input, scales, group_size)
    _check_groups(op, input, scales, zero_points, group_size)
    if input.numel() and affine.minmax(input, blocks.per_tensor(input.shape))[0].isnan():
        raise ValueError(f"{op}: input contains NaN, which no group can represent")
    return affine.quantize(
        input,
        scales.reshape(-1),
        zero_points.reshape(-1),
        blocks.per_group(input.shape, group_size),
        qmin=quant_min,
        qmax=quant_max,
        dtype=dtype,
        variant=RoundingVariant.joined,
    )


def _fake_dequantize_per_channel_group(
    input: Tensor,
    scales: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int,
    output_dtype: torch.dtype,
) -> Tensor:
    checks.require_range("dequantize_per_channel_group", quant_min, quant_max, dtype)
    _group_size("dequantize_per_channel_group", input, scales, group_size)
    return torch.empty_like(input, dtype=output_dtype)


@operator(fake=_fake_dequantize_per_channel_group)
def dequantize_per_channel_group(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int,
    output_dtype: torch.dtype,
) -> Tensor:
    """``(input - zero_points) * scales`` for each group of `group_size` neighbours in a row, then `output_dtype`.

    Example:
        >>> q = torch.tensor([[1, 2, 3, 5]], dtype=torch.int8)
        >>> qparams = torch.tensor([[1.0, 0.5]]), torch.tensor([[0, 1]])
        >>> dequantize_per_channel_group(q, *qparams, -8, 7, torch.int8, 2, torch.float32)
        tensor([[1., 2., 1., 2.]])
    """
    op = "dequantize_per_channel_group"
    checks.require_stored(op, input, dtype)
    checks.require_range(op, quant_min, quant_max, dtype)
    group_size = _group_size(op, input, scales, group_size)
    _check_groups(op, input, scales, zero_points, group_size)
    block = blocks.per_group(input.shape, group_size)
    zero_points = None if zero_points is None else zero_points.reshape(-1)
    return affine.dequantize(input, scales.reshape(-1), zero_points, block, out_dtype=output_dtype)
