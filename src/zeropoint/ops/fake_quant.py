"""Fake quantization: quantize and dequantize in one step, with straight-through gradients.

``y = (clamp(rne(x / scale) + zero_point, qmin, qmax) - zero_point) * scale``, and ``dL/dx = dL/dy`` where the value was
inside the range, 0 elsewhere: rounding is treated as the identity, clamping is not.

Each operator is a pair: ``*_cachemask`` answers the mask too and has the gradient; the plain one is its first output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics import affine, blocks
from zeropoint.numerics.affine import Beyond, WayBack
from zeropoint.ops import checks
from zeropoint.ops.library import NAMESPACE, TwoTensors, composite, differentiable, operator

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_ops = getattr(torch.ops, NAMESPACE)


# ------------------------------------------------------------------------------------------------------ gradient


def _fake_mask_gradient(dy: Tensor) -> Tensor:
    return torch.empty_like(dy)


@operator(fake=_fake_mask_gradient)
def mask_gradient(dy: Tensor, mask: Tensor) -> Tensor:
    """``dy * mask``; a product, so that an infinite gradient outside the range shows as NaN.

    Args:
        dy: float, any shape.
        mask: bool, same shape.

    Example:
        >>> mask_gradient(torch.tensor([2.0, 3.0]), torch.tensor([True, False]))
        tensor([2., 0.])
    """
    if dy.shape != mask.shape:
        raise ValueError(f"mask_gradient: dy has shape {tuple(dy.shape)}, mask {tuple(mask.shape)}; they must agree")
    return affine.mask_gradient(dy, mask)


def _save_mask_argument(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])


# d(dy * mask) / d(dy) is the mask again.
differentiable(
    "mask_gradient", lambda ctx, ddx: (_ops.mask_gradient(ddx, *ctx.saved_tensors), None), _save_mask_argument
)


def _save_mask_output(ctx: Any, inputs: tuple[Any, ...], output: TwoTensors) -> None:
    ctx.arguments = len(inputs)
    ctx.save_for_backward(output[1])


def _straight_through(ctx: Any, dy: Tensor, _mask_gradient: Any) -> tuple[Any, ...]:
    (mask,) = ctx.saved_tensors
    return (_ops.mask_gradient(dy, mask), *(None for _ in range(ctx.arguments - 1)))


# ---------------------------------------------------------------------------------------------------- per tensor


def _check_input(op: str, x: Tensor, quant_min: int, quant_max: int) -> None:
    checks.require_dtype(op, "input", x.dtype, FLOATS)
    checks.require_order(op, quant_min, quant_max)


def _fake_with_mask(op: str) -> Any:
    def fake(input: Tensor, *arguments: Any) -> TwoTensors:
        quant_min, quant_max = arguments[-2:]
        _check_input(op, input, quant_min, quant_max)
        return torch.empty_like(input), torch.empty_like(input, dtype=torch.bool)

    return fake


_PER_TENSOR = "fake_quantize_per_tensor_affine"


@operator(fake=_fake_with_mask(_PER_TENSOR))
def fake_quantize_per_tensor_affine_cachemask(
    input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> TwoTensors:
    """`fake_quantize_per_tensor_affine` and which values were inside the range.

    Example:
        >>> fake_quantize_per_tensor_affine_cachemask(torch.tensor([0.3, 9.0]), 0.25, 0, 0, 15)
        (tensor([0.2500, 3.7500]), tensor([ True, False]))
    """
    return _per_tensor(
        input,
        torch.tensor([scale], dtype=torch.float32, device=input.device),
        torch.tensor([zero_point], device=input.device),
        quant_min,
        quant_max,
    )


def _per_tensor(input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int) -> TwoTensors:
    _check_input(_PER_TENSOR, input, quant_min, quant_max)
    checks.require_zero_point_inside(_PER_TENSOR, int(zero_point.item()), quant_min, quant_max)
    return affine.fake_quantize(
        input,
        scale.reshape(1).to(torch.float32),
        zero_point.reshape(1),
        blocks.per_tensor(input.shape),
        qmin=quant_min,
        qmax=quant_max,
        beyond=Beyond.nan_low,
        way_back=WayBack.exact,
    )


differentiable(f"{_PER_TENSOR}_cachemask", _straight_through, _save_mask_output)


@operator(fake=_fake_with_mask(_PER_TENSOR), name=f"{_PER_TENSOR}_cachemask.tensor_qparams")
def fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int
) -> TwoTensors:
    """`fake_quantize_per_tensor_affine_cachemask` with scale and zero point in one-element tensors.

    Example:
        >>> one = torch.tensor([0.25]), torch.tensor([0])
        >>> fake_quantize_per_tensor_affine_cachemask_tensor_qparams(torch.tensor([0.3]), *one, 0, 15)
        (tensor([0.2500]), tensor([True]))
    """
    checks.require_scalar(_PER_TENSOR, "scale", scale)
    checks.require_scalar(_PER_TENSOR, "zero_point", zero_point)
    if zero_point.is_floating_point():
        zero_point = zero_point.to(torch.int64)
    return _per_tensor(input, scale, zero_point, quant_min, quant_max)


differentiable(f"{_PER_TENSOR}_cachemask.tensor_qparams", _straight_through, _save_mask_output)


@composite(name=_PER_TENSOR)
def _fake_quantize_per_tensor_affine(
    input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> Tensor:
    return _ops.fake_quantize_per_tensor_affine_cachemask(input, scale, zero_point, quant_min, quant_max)[0]


@composite(name=f"{_PER_TENSOR}.tensor_qparams")
def _fake_quantize_per_tensor_affine_tensor_qparams(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int
) -> Tensor:
    return _ops.fake_quantize_per_tensor_affine_cachemask.tensor_qparams(
        input, scale, zero_point, quant_min, quant_max
    )[0]


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: float | Tensor, zero_point: int | Tensor, quant_min: int, quant_max: int
) -> Tensor:
    """Fake-quantize with one scale; straight-through gradient.

    ``(clamp(rne(input / scale) + zero_point, quant_min, quant_max) - zero_point) * scale``. NaN becomes what
    `quant_min` stands for, as in PyTorch.

    Args:
        input: float, any shape.
        scale, zero_point: numbers, or tensors of one element.

    Raises:
        ValueError: if the scale is zero or not finite, or the zero point outside the range.

    Example:
        >>> x = torch.tensor([0.3, 9.0], requires_grad=True)
        >>> y = fake_quantize_per_tensor_affine(x, 0.25, 0, 0, 15)
        >>> y.sum().backward()
        >>> y.detach(), x.grad
        (tensor([0.2500, 3.7500]), tensor([1., 0.]))
    """
    return _ops.fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max)


# --------------------------------------------------------------------------------------------------- per channel


def _per_channel(
    op: str,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    beyond: Beyond,
    way_back: WayBack,
) -> TwoTensors:
    _check_input(op, x, quant_min, quant_max)
    axis = checks.require_axis(op, x, axis)
    why = f"input of shape {tuple(x.shape)} has {x.shape[axis]} channels along axis {axis}"
    checks.require_length(op, "scale", scale, x.shape[axis], why)
    checks.require_length(op, "zero_point", zero_point, x.shape[axis], why)
    return affine.fake_quantize(
        x,
        scale.to(torch.float32),
        zero_point,
        blocks.per_channel(x.shape, axis),
        qmin=quant_min,
        qmax=quant_max,
        beyond=beyond,
        way_back=way_back,
    )


_PER_CHANNEL = "fake_quantize_per_channel_affine"


@operator(fake=_fake_with_mask(_PER_CHANNEL))
def fake_quantize_per_channel_affine_cachemask(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> TwoTensors:
    """`fake_quantize_per_channel_affine` and which values were inside the range.

    Example:
        >>> x = torch.tensor([[0.3, 9.0]])
        >>> qparams = torch.tensor([0.25, 1.0]), torch.tensor([0, 0])
        >>> fake_quantize_per_channel_affine_cachemask(x, *qparams, 1, 0, 15)
        (tensor([[0.2500, 9.0000]]), tensor([[True, True]]))
    """
    if not zero_point.is_floating_point() and zero_point.numel():
        low, high = (int(v) for v in torch.aminmax(zero_point))
        checks.require_zero_point_inside(_PER_CHANNEL, low, quant_min, quant_max)
        checks.require_zero_point_inside(_PER_CHANNEL, high, quant_min, quant_max)
    elif zero_point.is_floating_point() and zero_point.dtype != torch.float16:
        zero_point = zero_point.to(torch.float32)
    return _per_channel(
        _PER_CHANNEL,
        input,
        scale,
        zero_point,
        axis,
        quant_min,
        quant_max,
        Beyond.int64_low,
        WayBack.exact_product,
    )


differentiable(f"{_PER_CHANNEL}_cachemask", _straight_through, _save_mask_output)


@composite(name=_PER_CHANNEL)
def _fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    return _ops.fake_quantize_per_channel_affine_cachemask(input, scale, zero_point, axis, quant_min, quant_max)[0]


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """Fake-quantize with a scale for each index of `axis`; straight-through gradient.

    Args:
        input: float, any shape.
        scale: ``(input.shape[axis],)``.
        zero_point: ``(input.shape[axis],)``, integer, or float: then it is added before rounding.

    Raises:
        ValueError: if a scale is zero or not finite, or an integer zero point outside the range.

    Example:
        >>> x = torch.tensor([[0.3, 9.0]])
        >>> fake_quantize_per_channel_affine(x, torch.tensor([0.25, 1.0]), torch.tensor([0, 0]), 1, 0, 15)
        tensor([[0.2500, 9.0000]])
    """
    return _ops.fake_quantize_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max)


# The decomposed library's own per-channel fake quantization: NaN stays NaN.


@operator(fake=_fake_with_mask("fake_quant_per_channel"))
def fake_quant_per_channel_cachemask(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int
) -> TwoTensors:
    """`fake_quant_per_channel` and which values were inside the range.

    Example:
        >>> qparams = torch.tensor([0.25]), torch.tensor([0])
        >>> fake_quant_per_channel_cachemask(torch.tensor([[9.0]]), *qparams, 1, 0, 15)
        (tensor([[3.7500]]), tensor([[False]]))
    """
    op = "fake_quant_per_channel"
    checks.require_dtype(op, "input", input.dtype, (torch.float32,))
    return _per_channel(
        op, input, scales, zero_points.to(torch.int32), axis, quant_min, quant_max, Beyond.keep_nan, WayBack.single
    )


differentiable("fake_quant_per_channel_cachemask", _straight_through, _save_mask_output)


@composite()
def fake_quant_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """As `fake_quantize_per_channel_affine` for float32 input, but NaN stays NaN and zero points may lie outside.

    Example:
        >>> fake_quant_per_channel(torch.tensor([[0.3]]), torch.tensor([0.25]), torch.tensor([0]), 1, 0, 15)
        tensor([[0.2500]])
    """
    return _ops.fake_quant_per_channel_cachemask(input, scales, zero_points, axis, quant_min, quant_max)[0]
