"""Fake quantization whose scale and zero point are trained, too (learned step size)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics import affine, blocks
from zeropoint.numerics.affine import Beyond, WayBack
from zeropoint.numerics.blocks import Block, expand
from zeropoint.ops import checks
from zeropoint.ops.fake_quant import FLOATS
from zeropoint.ops.library import differentiable, operator

_PER_TENSOR = "fake_quantize_learnable_per_tensor_affine"
_PER_CHANNEL = "fake_quantize_learnable_per_channel_affine"


def _check(op: str, x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, count: int) -> None:
    checks.require_dtype(op, "self", x.dtype, FLOATS)
    checks.require_order(op, quant_min, quant_max)
    why = f"self has shape {tuple(x.shape)}"
    checks.require_length(op, "scale", scale, count, why)
    checks.require_length(op, "zero_point", zero_point, count, why)


def _learnable(
    x: Tensor, scale: Tensor, zero_point: Tensor, block: Block, quant_min: int, quant_max: int, per_channel: bool
) -> Tensor:
    return affine.fake_quantize(
        x,
        scale.to(torch.float32),
        zero_point.round().clamp(quant_min, quant_max).to(torch.int32),
        block,
        qmin=quant_min,
        qmax=quant_max,
        beyond=Beyond.int64_low if per_channel else Beyond.nan_low,
        way_back=WayBack.exact_product if per_channel else WayBack.exact,
    )[0]


def _gradients(
    dy: Tensor,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    block: Block,
    quant_min: int,
    quant_max: int,
    grad_factor: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """dx, and the terms of d(scale) and d(zero_point), still to be summed over their blocks.

    Inside the range ``y = q * scale`` with ``q = rne(x / scale)``, rounding being treated as the identity:
    ``dy/dscale = q - x / scale``, spelled ``(q * scale - x) / scale`` with one rounding of the difference. Outside,
    ``y = (bound - zero_point) * scale``. `zero_point` is an integer already.
    """
    flat_scale = scale
    scale = expand(flat_scale, x.shape, block)
    inv = expand(1.0 / flat_scale, x.shape, block)
    nudged = expand(zero_point, x.shape, block)
    q = torch.round(x * inv) + nudged
    below, above = q < quant_min, q > quant_max
    inside = ~(below | above)
    error = ((q - nudged).to(torch.float64) * scale.to(torch.float64) - x.to(torch.float64)).to(x.dtype)
    bound = torch.where(below, quant_min - nudged, quant_max - nudged)
    d_scale = torch.where(inside, dy * error * inv, dy * bound) * grad_factor
    d_zero_point = torch.where(inside, 0.0, dy * -1 * scale) * grad_factor
    return dy * inside, d_scale, d_zero_point


def _fake(self: Tensor) -> Tensor:
    return torch.empty_like(self)


@operator(fake=_fake)
def fake_quantize_learnable_per_tensor_affine(
    self: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    """Fake-quantize with one trained scale and zero point; gradients flow to all three.

    The zero point is rounded and clamped to the range. Gradients of scale and zero point are multiplied by
    `grad_factor`.

    Args:
        self: float, any shape.
        scale, zero_point: ``(1,)``, float.

    Example:
        >>> scale, zero_point = torch.tensor([0.25], requires_grad=True), torch.tensor([0.0], requires_grad=True)
        >>> y = torch.ops.zeropoint.fake_quantize_learnable_per_tensor_affine(
        ...     torch.tensor([0.3, 9.0]), scale, zero_point, 0, 15
        ... )
        >>> y.sum().backward()
        >>> y.detach(), scale.grad, zero_point.grad
        (tensor([0.2500, 3.7500]), tensor([14.8000]), tensor([-0.2500]))
    """
    _check(_PER_TENSOR, self, scale, zero_point, quant_min, quant_max, 1)
    return _learnable(self, scale, zero_point, blocks.per_tensor(self.shape), quant_min, quant_max, False)


def _save_per_tensor(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, scale, zero_point, *ctx.range = inputs
    ctx.save_for_backward(x, scale, zero_point)


def _per_tensor_backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    x, scale, zero_point = ctx.saved_tensors
    nudged = (zero_point + 0.5).clamp(*ctx.range[:2]).trunc()
    dx, d_scale, d_zero_point = _gradients(dy, x, scale, nudged, blocks.per_tensor(x.shape), *ctx.range)
    return dx, d_scale.sum().reshape(1), d_zero_point.sum().reshape(1), None, None, None


differentiable(_PER_TENSOR, _per_tensor_backward, _save_per_tensor)


@operator(fake=_fake)
def fake_quantize_learnable_per_channel_affine(
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """As `fake_quantize_learnable_per_tensor_affine`, with a scale and zero point for each index of `axis`.

    Args:
        scale, zero_point: ``(self.shape[axis],)``, float.

    Example:
        >>> scale, zero_point = torch.tensor([0.25, 1.0], requires_grad=True), torch.zeros(2, requires_grad=True)
        >>> y = torch.ops.zeropoint.fake_quantize_learnable_per_channel_affine(
        ...     torch.tensor([[0.3, 9.2]]), scale, zero_point, 1, 0, 15
        ... )
        >>> y.sum().backward()
        >>> y.detach(), scale.grad
        (tensor([[0.2500, 9.0000]]), tensor([-0.2000, -0.2000]))
    """
    axis = checks.require_axis(_PER_CHANNEL, self, axis)
    _check(_PER_CHANNEL, self, scale, zero_point, quant_min, quant_max, self.shape[axis])
    return _learnable(self, scale, zero_point, blocks.per_channel(self.shape, axis), quant_min, quant_max, True)


def _save_per_channel(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, scale, zero_point, ctx.axis, *ctx.range = inputs
    ctx.save_for_backward(x, scale, zero_point)


def _per_channel_backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    x, scale, zero_point = ctx.saved_tensors
    axis = ctx.axis % x.dim()
    block = blocks.per_channel(x.shape, axis)
    nudged = (zero_point + 0.5).clamp(*ctx.range[:2]).floor()
    dx, d_scale, d_zero_point = _gradients(dy, x, scale, nudged, block, *ctx.range)
    others = [d for d in range(x.dim()) if d != axis]
    if not others:
        return dx, d_scale, d_zero_point, None, None, None, None
    return dx, d_scale.sum(others), d_zero_point.sum(others), None, None, None, None


differentiable(_PER_CHANNEL, _per_channel_backward, _save_per_channel)
