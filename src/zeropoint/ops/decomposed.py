"""The decomposed op library: quantization as ordinary operators on ordinary integer tensors.

Same names, overloads and numbers as PyTorch 2.13's ``quantized_decomposed``, under ``torch.ops.zeropoint``.
Quantization parameters are arguments, not part of a tensor, so these operators can stand in any exported or compiled
graph.

``quant_min`` and ``quant_max`` bound the quantized values; ``dtype`` is their type (uint8, int8, int16, int32,
float8_e5m2 or float8_e4m3fn). NaN and infinities: see `zeropoint.numerics.affine`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zeropoint.numerics import affine, blocks
from zeropoint.numerics.qparams import qparams_from_range
from zeropoint.numerics.schemes import QScheme, per_tensor_affine, per_tensor_symmetric
from zeropoint.ops import checks
from zeropoint.ops.library import TwoTensors, operator

# ---------------------------------------------------------------------------------------------------- per tensor


def _quantized_like(op: str, x: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype) -> Tensor:
    checks.require_dtype(op, "input", x.dtype, checks.INPUT_DTYPES)
    checks.require_range(op, quant_min, quant_max, dtype)
    return torch.empty_like(x, dtype=dtype)


def _fake_quantize_per_tensor(input: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype) -> Tensor:
    return _quantized_like("quantize_per_tensor", input, quant_min, quant_max, dtype)


@operator(fake=_fake_quantize_per_tensor)
def quantize_per_tensor(
    input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """``clamp(rne(input * (1 / scale)) + zero_point, quant_min, quant_max)`` in float32.

    Args:
        input: float32, float16 or bfloat16, any shape.

    Returns:
        tensor of type `dtype`, shape and layout of `input`.

    Example:
        >>> quantize_per_tensor(torch.tensor([0.0, 0.3, 99.0]), 0.1, 5, 0, 255, torch.uint8)
        tensor([  5,   8, 255], dtype=torch.uint8)
    """
    op = "quantize_per_tensor"
    checks.require_dtype(op, "input", input.dtype, checks.INPUT_DTYPES)
    checks.require_range(op, quant_min, quant_max, dtype)
    return affine.quantize_tensor(input, scale, zero_point, qmin=quant_min, qmax=quant_max, dtype=dtype)


@operator(fake=_fake_quantize_per_tensor, name="quantize_per_tensor.tensor")
def quantize_per_tensor_tensor(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """`quantize_per_tensor` with scale and zero point in one-element tensors.

    Example:
        >>> one = torch.tensor([0.1]), torch.tensor([5])
        >>> quantize_per_tensor_tensor(torch.tensor([0.3]), *one, 0, 255, torch.uint8)
        tensor([8], dtype=torch.uint8)
    """
    checks.require_scalar("quantize_per_tensor", "scale", scale)
    checks.require_scalar("quantize_per_tensor", "zero_point", zero_point)
    return quantize_per_tensor(input, scale.item(), zero_point.item(), quant_min, quant_max, dtype)


def _fake_quantize_per_tensor2(input: Tensor, dtype: torch.dtype) -> Tensor:
    checks.require_dtype("quantize_per_tensor", "input", input.dtype, checks.INPUT_DTYPES)
    return torch.empty_like(input, dtype=dtype)


@operator(fake=_fake_quantize_per_tensor2, name="quantize_per_tensor.tensor2")
def quantize_per_tensor_tensor2(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: Tensor, quant_max: Tensor, dtype: torch.dtype
) -> Tensor:
    """`quantize_per_tensor` with the range, too, in one-element tensors.

    Example:
        >>> numbers = torch.tensor([0.1]), torch.tensor([5]), torch.tensor([0]), torch.tensor([255])
        >>> quantize_per_tensor_tensor2(torch.tensor([0.3]), *numbers, torch.uint8)
        tensor([8], dtype=torch.uint8)
    """
    checks.require_scalar("quantize_per_tensor", "quant_min", quant_min)
    checks.require_scalar("quantize_per_tensor", "quant_max", quant_max)
    return quantize_per_tensor_tensor(input, scale, zero_point, int(quant_min.item()), int(quant_max.item()), dtype)


def _fake_dequantize_per_tensor(input: Tensor, dtype: torch.dtype, out_dtype: torch.dtype | None) -> Tensor:
    checks.require_stored("dequantize_per_tensor", input, dtype)
    return torch.empty_like(input, dtype=out_dtype or torch.float32)


@operator(fake=_fake_dequantize_per_tensor)
def dequantize_per_tensor(
    input: Tensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``(input - zero_point) * scale``, each step in `out_dtype` (float32 if None).

    Args:
        input: tensor of type `dtype`, any shape.
        quant_min, quant_max: not used; they keep the range readable in a graph.

    Returns:
        tensor of type `out_dtype`, shape and layout of `input`.

    Example:
        >>> dequantize_per_tensor(torch.tensor([5, 8], dtype=torch.uint8), 0.5, 5, 0, 255, torch.uint8)
        tensor([0.0000, 1.5000])
    """
    checks.require_stored("dequantize_per_tensor", input, dtype)
    return affine.dequantize_tensor(input, scale, zero_point, out_dtype=out_dtype or torch.float32)


@operator(fake=lambda input, scale, zero_point: torch.empty_like(input, dtype=torch.float32))
def dequantize(input: Tensor, scale: float, zero_point: int) -> Tensor:
    """``(input - zero_point) * scale`` in float32, of int8 or uint8: what graphs of TorchScript end with.

    Example:
        >>> dequantize(torch.tensor([5, 8], dtype=torch.uint8), 0.5, 5)
        tensor([0.0000, 1.5000])
    """
    if input.dtype not in (torch.int8, torch.uint8):
        raise TypeError(f"dequantize: input must be int8 or uint8, got {input.dtype}")
    return affine.dequantize_tensor(input, scale, zero_point, out_dtype=torch.float32)


@operator(fake=_fake_dequantize_per_tensor, name="dequantize_per_tensor.tensor")
def dequantize_per_tensor_tensor(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """`dequantize_per_tensor` with scale and zero point in one-element tensors.

    Example:
        >>> one = torch.tensor([0.5]), torch.tensor([5])
        >>> dequantize_per_tensor_tensor(torch.tensor([8], dtype=torch.uint8), *one, 0, 255, torch.uint8)
        tensor([1.5000])
    """
    checks.require_scalar("dequantize_per_tensor", "scale", scale)
    checks.require_scalar("dequantize_per_tensor", "zero_point", zero_point)
    return dequantize_per_tensor(
        input, scale.item(), zero_point.item(), quant_min, quant_max, dtype, out_dtype=out_dtype
    )


@operator(fake=_fake_dequantize_per_tensor, name="dequantize_per_tensor.tensor2")
def dequantize_per_tensor_tensor2(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: Tensor,
    quant_max: Tensor,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """`dequantize_per_tensor` with the range, too, in one-element tensors.

    Example:
        >>> numbers = torch.tensor([0.5]), torch.tensor([5]), torch.tensor([0]), torch.tensor([255])
        >>> dequantize_per_tensor_tensor2(torch.tensor([8], dtype=torch.uint8), *numbers, torch.uint8)
        tensor([1.5000])
    """
    return dequantize_per_tensor_tensor(input, scale, zero_point, 0, 0, dtype, out_dtype=out_dtype)


# ------------------------------------------------------------------------------------------- parameters per tensor


def _check_choose_qparams(op: str, x: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype) -> None:
    checks.require_dtype(op, "input", x.dtype, checks.INPUT_DTYPES)
    checks.require_dtype(op, "dtype", dtype, checks.QUANTIZED_DTYPES)
    checks.require_order(op, quant_min, quant_max)
    if not quant_min <= 0 <= quant_max:
        raise ValueError(f"{op}: the range must include 0, got quant_min {quant_min} and quant_max {quant_max}")


def _fake_choose_qparams(input: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype) -> TwoTensors:
    _check_choose_qparams("choose_qparams", input, quant_min, quant_max, dtype)
    return input.new_empty(1, dtype=torch.float64), input.new_empty(1, dtype=torch.int64)


def _choose_qparams(
    op: str, x: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype, scheme: QScheme
) -> TwoTensors:
    _check_choose_qparams(op, x, quant_min, quant_max, dtype)
    if x.numel() == 0:
        raise ValueError(f"{op}: input is empty, so it has no range; got shape {tuple(x.shape)}")
    low, high = affine.minmax(x, blocks.per_tensor(x.shape))
    if low.isnan():
        raise ValueError(f"{op}: input contains NaN, so it has no range")
    scale, zero_point = qparams_from_range(
        low.reshape(()),
        high.reshape(()),
        quant_min,
        quant_max,
        eps=torch.tensor([eps], device=x.device),
        scheme=scheme,
        symmetric_zero_point=128 if dtype == torch.uint8 else 0,
    )
    return scale.to(torch.float64), zero_point


@operator(fake=_fake_choose_qparams, name="choose_qparams.tensor")
def choose_qparams_tensor(input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype) -> TwoTensors:
    """Scale and zero point that map the range of `input` onto ``[quant_min, quant_max]``; no scale below `eps`.

    Returns:
        `scale` ``(1,)`` float64 and `zero_point` ``(1,)`` int64.

    Example:
        >>> choose_qparams_tensor(torch.tensor([-1.0, 1.55]), 0, 255, 1e-5, torch.uint8)
        (tensor([0.0100], dtype=torch.float64), tensor([100]))
    """
    return _choose_qparams("choose_qparams", input, quant_min, quant_max, eps, dtype, per_tensor_affine)


@operator(fake=_fake_choose_qparams, name="choose_qparams_symmetric.tensor")
def choose_qparams_symmetric_tensor(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> TwoTensors:
    """As `choose_qparams_tensor` with 0 in the middle: ``scale = max|input| / ((quant_max - quant_min) / 2)``.

    Example:
        >>> choose_qparams_symmetric_tensor(torch.tensor([-1.0, 0.5]), -127, 127, 1e-5, torch.int8)
        (tensor([0.0079], dtype=torch.float64), tensor([0]))
    """
    return _choose_qparams("choose_qparams_symmetric", input, quant_min, quant_max, eps, dtype, per_tensor_symmetric)


# --------------------------------------------------------------------------------------------------- per channel


def _check_channels(op: str, x: Tensor, scales: Tensor, zero_points: Tensor | None, axis: int) -> int:
    axis = checks.require_axis(op, x, axis)
    channels = x.shape[axis]
    why = f"input of shape {tuple(x.shape)} has {channels} channels along axis {axis}"
    checks.require_length(op, "scales", scales, channels, why)
    if zero_points is not None:
        checks.require_length(op, "zero_points", zero_points, channels, why)
    return axis


def _fake_quantize_per_channel(input: Tensor, axis: int, quant_min: int, quant_max: int, dtype: torch.dtype) -> Tensor:
    checks.require_axis("quantize_per_channel", input, axis)
    return _quantized_like("quantize_per_channel", input, quant_min, quant_max, dtype)


@operator(fake=_fake_quantize_per_channel)
def quantize_per_channel(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """`quantize_per_tensor` with a scale and zero point for each index of `axis`; float64 if the scales are.

    Args:
        input: float32, float16 or bfloat16, any shape.
        scales, zero_points: ``(input.shape[axis],)``.

    Returns:
        tensor of type `dtype`, shape and layout of `input`.

    Example:
        >>> x = torch.tensor([[1.0, 1.0]])
        >>> quantize_per_channel(x, torch.tensor([0.5, 0.1]), torch.tensor([0, 7]), 1, 0, 255, torch.uint8)
        tensor([[ 2, 17]], dtype=torch.uint8)
    """
    op = "quantize_per_channel"
    checks.require_dtype(op, "input", input.dtype, checks.INPUT_DTYPES)
    checks.require_range(op, quant_min, quant_max, dtype)
    axis = _check_channels(op, input, scales, zero_points, axis)
    block = blocks.per_channel(input.shape, axis)
    x = input.to(torch.float32)
    return affine.quantize(x, scales, zero_points, block, qmin=quant_min, qmax=quant_max, dtype=dtype)


def _fake_dequantize_per_channel(
    input: Tensor, axis: int, quant_min: int, quant_max: int, dtype: torch.dtype, out_dtype: torch.dtype | None
) -> Tensor:
    checks.require_stored("dequantize_per_channel", input, dtype)
    checks.require_range("dequantize_per_channel", quant_min, quant_max, dtype)
    checks.require_axis("dequantize_per_channel", input, axis)
    return torch.empty_like(input, dtype=out_dtype or torch.float32)


@operator(fake=_fake_dequantize_per_channel)
def dequantize_per_channel(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``(input - zero_points) * scales`` with one of each for every index of `axis`, then `out_dtype`.

    The difference is taken without wrapping around, the product in the type of `scales`.

    Args:
        input: tensor of type `dtype`, any shape.
        scales, zero_points: ``(input.shape[axis],)``; zero points of None are 0.

    Returns:
        tensor of type `out_dtype` (float32 if None), shape and layout of `input`.

    Example:
        >>> q = torch.tensor([[2, 17]], dtype=torch.uint8)
        >>> dequantize_per_channel(q, torch.tensor([0.5, 0.25]), torch.tensor([0, 7]), 1, 0, 255, torch.uint8)
        tensor([[1.0000, 2.5000]])
    """
    op = "dequantize_per_channel"
    checks.require_stored(op, input, dtype)
    checks.require_range(op, quant_min, quant_max, dtype)
    axis = _check_channels(op, input, scales, zero_points, axis)
    block = blocks.per_channel(input.shape, axis)
    return affine.dequantize(input, scales, zero_points, block, out_dtype=out_dtype or torch.float32)
