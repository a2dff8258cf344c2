"""The fused step of quantization-aware training: observe, derive the parameters, fake-quantize."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics import blocks
from zeropoint.numerics.moving_average import move_towards, observe_and_fake_quantize
from zeropoint.ops import checks
from zeropoint.ops.fake_quant import FLOATS
from zeropoint.ops.library import NAMESPACE, composite, operator

_ops = getattr(torch.ops, NAMESPACE)
_NAME = "fused_moving_avg_obs_fake_quant"
_STATE = dict.fromkeys(("running_min", "running_max", "scale", "zero_point"), "Written")


def _fake_cachemask(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


@operator(fake=_fake_cachemask, types=_STATE)
def fused_moving_avg_obs_fake_quant_cachemask(
    x: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Tensor, Tensor]:
    """`fused_moving_avg_obs_fake_quant` and which values were inside the range.

    Example:
        >>> on, state = torch.tensor([1]), (torch.tensor([float("inf")]), torch.tensor([float("-inf")]))
        >>> qparams = torch.ones(1), torch.zeros(1, dtype=torch.int32)
        >>> x = torch.tensor([-1.0, 0.1, 4.1])
        >>> fused_moving_avg_obs_fake_quant_cachemask(x, on, on, *state, *qparams, 0.1, 0, 255, 0)
        (tensor([-1.0000,  0.1000,  4.1000]), tensor([True, True, True]))
    """
    checks.require_dtype(_NAME, "self", x.dtype, FLOATS)
    checks.require_order(_NAME, quant_min, quant_max)
    if symmetric_quant and quant_max - quant_min < 2:
        raise ValueError(f"{_NAME}: a symmetric range needs a step on each side of 0, got {quant_min}..{quant_max}")
    if zero_point.dtype != torch.int32:
        raise ValueError(f"{_NAME}: zero_point must be int32, got {zero_point.dtype}; float zero points are not fused")
    if per_row_fake_quant:
        axis = checks.require_axis(_NAME, x, ch_axis)
        block = blocks.per_channel(x.shape, axis)
        count = x.shape[axis]
        why = f"self of shape {tuple(x.shape)} has {count} channels along axis {axis}"
    else:
        block, count, why = blocks.per_tensor(x.shape), 1, "there is one range for the whole tensor"
    state = {"running_min": running_min, "running_max": running_max, "scale": scale, "zero_point": zero_point}
    for name, tensor in state.items():
        checks.require_length(_NAME, name, tensor.reshape(-1), count, why)
    observe, fake = bool(observer_on.item()), bool(fake_quant_on.item())
    if not fake:
        if observe and x.numel():
            move_towards(x, block, (running_min, running_max), averaging_const)
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    output, mask, observed = observe_and_fake_quantize(
        x,
        block,
        (running_min, running_max),
        (scale, zero_point),
        averaging_constant=averaging_const,
        qmin=quant_min,
        qmax=quant_max,
        symmetric=symmetric_quant,
        per_channel=per_row_fake_quant,
        observe=observe,
    )
    if not observed:
        warnings.warn(
            f"{_NAME}: fake quantization is enabled, but the observer saw no data: the range is [0, 0]. Enable the "
            "observer for at least one step first",
            stacklevel=2,
        )
    return output, mask


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        output, mask = _ops.fused_moving_avg_obs_fake_quant_cachemask(*arguments)
        ctx.save_for_backward(mask)
        ctx.arguments = len(arguments)
        return output

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        return (_ops.mask_gradient(dy, mask), *(None for _ in range(ctx.arguments - 1)))


@composite(types=_STATE)
def fused_moving_avg_obs_fake_quant(
    self: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Tensor:
    """Observe `self` with a moving average and fake-quantize it, in one native call; straight-through gradient.

    If `observer_on`, the running range moves: ``min += averaging_const * (min(self) - min)``. If `fake_quant_on`, scale
    and zero point are written from the running range, and the output is ``fake_quantize(self, scale, zero_point)``;
    else it is a copy of `self`.

    Args:
        self: float, any shape.
        observer_on, fake_quant_on: one element each.
        running_min, running_max, scale, zero_point: one element, or one for each index of `ch_axis` if
            `per_row_fake_quant`; empty ones are resized to that.

    Raises:
        ValueError: if lengths disagree, or an observed `self` is not finite. Then nothing has changed.

    Example:
        >>> on, state = torch.tensor([1]), (torch.tensor([float("inf")]), torch.tensor([float("-inf")]))
        >>> qparams = torch.ones(1), torch.zeros(1, dtype=torch.int32)
        >>> x = torch.tensor([-1.0, 0.1, 4.1])
        >>> fused_moving_avg_obs_fake_quant(x, on, on, *state, *qparams, 0.1, 0, 255, 0)
        tensor([-1.0000,  0.1000,  4.1000])
    """
    if per_row_fake_quant and running_min.numel() == 0:
        channels = self.shape[checks.require_axis(_NAME, self, ch_axis)]
        running_min.resize_(channels).fill_(torch.inf)
        running_max.resize_(channels).fill_(-torch.inf)
        scale.resize_(channels).fill_(1.0)
        zero_point.resize_(channels).fill_(0)
    return _StraightThrough.apply(
        self,
        observer_on,
        fake_quant_on,
        running_min,
        running_max,
        scale,
        zero_point,
        averaging_const,
        quant_min,
        quant_max,
        ch_axis,
        per_row_fake_quant,
        symmetric_quant,
    )
