"""Operators of the decomposed library (`zeropoint.ops.decomposed`) with parameters for each row of a tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from zeropoint.numerics import affine, blocks
from zeropoint.numerics.affine import RoundingVariant
from zeropoint.ops import checks
from zeropoint.ops.library import TwoTensors, composite, operator

# Per-token scales never fall below this (float32's machine epsilon), so a row of zeros still has one.
TOKEN_EPS = torch.finfo(torch.float32).eps


def _check_tokens(op: str, x: Tensor, scales: Tensor, zero_points: Tensor) -> None:
    checks.require_dims(op, x, 1)
    tokens = x.numel() // x.shape[-1] if x.shape[-1] else x.shape[:-1].numel()
    why = f"one for each vector along the last axis of {tuple(x.shape)}"
    checks.require_length(op, "scales", scales, tokens, why)
    checks.require_length(op, "zero_points", zero_points, tokens, why)


def _check_choose_per_token(op: str, x: Tensor, dtype: torch.dtype) -> None:
    checks.require_dtype(op, "input", x.dtype, (*checks.INPUT_DTYPES, torch.float64))
    checks.require_dtype(op, "dtype", dtype, (torch.int8,))
    checks.require_dims(op, x, 1)


def _fake_choose_qparams_per_token(input: Tensor, dtype: torch.dtype) -> TwoTensors:
    _check_choose_per_token("choose_qparams_per_token", input, dtype)
    kind = torch.float32 if input.dtype == torch.float16 else input.dtype
    shape = (*input.shape[:-1], 1)
    return input.new_empty(shape, dtype=kind), input.new_empty(shape, dtype=kind)


@operator(fake=_fake_choose_qparams_per_token)
def choose_qparams_per_token(input: Tensor, dtype: torch.dtype) -> TwoTensors:
    """Symmetric parameters for each vector along the last axis: ``scale = max(max|row|, 1e-5) / 127``.

    Args:
        input: ``(..., n)``, float.
        dtype: torch.int8.

    Returns:
        scales and zero points (all 0), ``(..., 1)``, both in the type of `input` (float32 for float16).

    Example:
        >>> choose_qparams_per_token(torch.tensor([[1.27, -2.54]]), torch.int8)
        (tensor([[0.0200]]), tensor([[0.]]))
    """
    op = "choose_qparams_per_token"
    _check_choose_per_token(op, input, dtype)
    low, high = _token_range(op, input)
    largest = torch.maximum(low.abs(), high.abs())
    if largest.dtype == torch.float16:
        largest = largest.to(torch.float32)
    scales = largest.clamp(min=1e-5).div(127)
    return scales, torch.zeros_like(scales)


def _token_range(op: str, x: Tensor) -> TwoTensors:
    """Smallest and largest of each vector along the last axis, ``(..., 1)``."""
    if x.shape[-1] == 0:
        raise ValueError(f"{op}: the last axis is empty, so its vectors have no range; got shape {tuple(x.shape)}")
    shape = (*x.shape[:-1], 1)
    # A permuted input has no rows in memory.
    low, high = affine.minmax(x.contiguous(), blocks.per_token(x.shape))
    return low.reshape(shape), high.reshape(shape)


def _asymmetric(low: Tensor, high: Tensor) -> TwoTensors:
    """int8 parameters from row ranges. Of the two roundings of the zero point, the one with the smaller error."""
    qmin, qmax = -128, 127
    low = torch.minimum(low, torch.zeros_like(low))
    high = torch.maximum(high, torch.zeros_like(high))
    scale = ((high - low) / float(qmax - qmin)).clamp(min=TOKEN_EPS)
    steps_low, steps_high = low / scale, high / scale
    from_low = (qmin + steps_low) + (qmax + steps_high) > 0
    zero_point = torch.where(from_low, qmin - steps_low, qmax - steps_high).clamp(qmin, qmax).round()
    return scale.to(torch.float64), zero_point.to(torch.int64)


@composite()
def _choose_qparams_per_token_asymmetric_impl(input: Tensor, dtype: torch.dtype) -> TwoTensors:
    """`choose_qparams_per_token_asymmetric`, differentiable through the scales."""
    _check_choose_per_token("_choose_qparams_per_token_asymmetric_impl", input, dtype)
    return _asymmetric(torch.amin(input, -1, keepdim=True), torch.amax(input, -1, keepdim=True))


def _fake_choose_qparams_per_token_asymmetric(input: Tensor, dtype: torch.dtype) -> TwoTensors:
    _check_choose_per_token("choose_qparams_per_token_asymmetric", input, dtype)
    shape = (*input.shape[:-1], 1)
    return input.new_empty(shape, dtype=torch.float64), input.new_empty(shape, dtype=torch.int64)


@operator(fake=_fake_choose_qparams_per_token_asymmetric)
def choose_qparams_per_token_asymmetric(input: Tensor, dtype: torch.dtype) -> TwoTensors:
    """int8 parameters for each vector along the last axis: ``scale = (max - min) / 255`` of the row, widened to 0.

    Args:
        input: ``(..., n)``, float.
        dtype: torch.int8.

    Returns:
        scales, ``(..., 1)`` float64, and zero points, ``(..., 1)`` int64.

    Example:
        >>> choose_qparams_per_token_asymmetric(torch.tensor([[0.0, 2.55]]), torch.int8)
        (tensor([[0.0100]], dtype=torch.float64), tensor([[-128]]))
    """
    op = "choose_qparams_per_token_asymmetric"
    _check_choose_per_token(op, input, dtype)
    return _asymmetric(*_token_range(op, input))


def _fake_quantize_per_token(input: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype) -> Tensor:
    checks.require_range("quantize_per_token", quant_min, quant_max, dtype)
    return torch.empty_like(input, dtype=dtype)


@operator(fake=_fake_quantize_per_token)
def quantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """``clamp(rne(input * (1 / scales) + zero_points), ...)`` with one scale for each vector along the last axis.

    Args:
        input: ``(..., n)``, float.
        scales, zero_points: ``(...)`` or ``(..., 1)``, in any shape with as many elements.

    Returns:
        ``(..., n)`` of type `dtype`.

    Example:
        >>> x = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
        >>> quantize_per_token(x, torch.tensor([1.0, 0.5]), torch.tensor([0, 1]), -128, 127, torch.int8)
        tensor([[1, 2],
                [3, 5]], dtype=torch.int8)
    """
    op = "quantize_per_token"
    checks.require_dtype(op, "input", input.dtype, (*checks.INPUT_DTYPES, torch.float64))
    checks.require_range(op, quant_min, quant_max, dtype)
    _check_tokens(op, input, scales, zero_points)
    return affine.quantize(
        input,
        scales.reshape(-1),
        zero_points.reshape(-1),
        blocks.per_token(input.shape),
        qmin=quant_min,
        qmax=quant_max,
        dtype=dtype,
        variant=RoundingVariant.joined,
    )


def _fake_dequantize_per_token(
    input: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype, output_dtype: torch.dtype
) -> Tensor:
    checks.require_range("dequantize_per_token", quant_min, quant_max, dtype)
    return torch.empty_like(input, dtype=output_dtype)


@operator(fake=_fake_dequantize_per_token)
def dequantize_per_token(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype,
) -> Tensor:
    """``(input - zero_points) * scales`` for each vector along the last axis, then `output_dtype`.

    Example:
        >>> q = torch.tensor([[3, 5]], dtype=torch.int8)
        >>> one = torch.tensor([0.5]), torch.tensor([1])
        >>> dequantize_per_token(q, *one, -128, 127, torch.int8, torch.float32)
        tensor([[1., 2.]])
    """
    op = "dequantize_per_token"
    checks.require_stored(op, input, dtype)
    checks.require_range(op, quant_min, quant_max, dtype)
    _check_tokens(op, input, scales, zero_points)
    block = blocks.per_token(input.shape)
    return affine.dequantize(input, scales.reshape(-1), zero_points.reshape(-1), block, out_dtype=output_dtype)
