"""Norms and softmax of 8-bit integers with their scale and zero point beside them.

Sums of integers and of their squares are exact; what follows is float32, in the order written. PyTorch 2.13's vector
loops have the same formulas. The zero point is added after rounding, ``rne(v / scale) + zero_point``, with two
exceptions, as PyTorch has it: softmax, and group and instance norm of channels-last input with fewer than 32 channels
in a group, where it is added before.

==========  ======================================================================================================
batch norm  ``v = (x - x_zero_point) * alpha + beta``, fused; ``alpha = weight / sqrt(var + eps) * (x_scale / scale)``
layer norm  ``v = ((x - m) * r) * weight + bias``, fused; ``m = sum(x) / n``, ``r = x_scale / sqrt(var + eps)``
group norm  ``v = (x - m) * (r * weight) + bias``, fused, with m and r of the channels of a group
softmax     ``v = e * (1 / sum(e))``, ``e = exp(x_scale * (x - max(x)))``
==========  ======================================================================================================

Results are laid out as the input: channels last if it is, else contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.affine import INTEGER_CODES
from zeropoint.numerics.blocks import CHANNELS_LAST
from zeropoint.ops import checks
from zeropoint.ops.library import named, operator

BYTES = (torch.uint8, torch.int8)
_TO = "float output_scale, int output_zero_point"
_NORM = f"Tensor? weight, Tensor? bias, float eps, {_TO}"

# --------------------------------------------------------------------------------------------------------- arguments


def _is_channels_last(x: Tensor) -> bool:
    rank = x.dim()
    return rank in CHANNELS_LAST and x.is_contiguous(memory_format=CHANNELS_LAST[rank]) and not x.is_contiguous()


def _empty(x: Tensor) -> Tensor:
    """Memory for a result that is laid out as `x`."""
    if _is_channels_last(x):
        return torch.empty_like(x, memory_format=CHANNELS_LAST[x.dim()])
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fake(input: Tensor) -> Tensor:
    return _empty(input)


def _checked(op: str, x: Tensor, x_scale: float, scale: float, zero_point: int) -> Tensor:
    """`x`, dense: contiguous unless it is channels last."""
    checks.require_dtype(op, "input", x.dtype, BYTES)
    if x.device.type != "cpu":
        raise NotImplementedError(f"{op}: input is on {x.device}, its kernels run on the CPU: call .cpu() first")
    for name, value in (("the scale of the input", x_scale), ("scale", scale)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{op}: {name} must be positive and finite, got {value}")
    checks.require_zero_point_inside(op, zero_point, *checks.bounds(x.dtype))
    return x if _is_channels_last(x) else x.contiguous()


def _native_tensor(
    x: Tensor, x_scale: float, x_zero_point: int, y: Tensor, scale: float, zero_point: int, relu: bool = False
) -> _native.Normalized:
    low, high = checks.bounds(x.dtype)
    low = zero_point if relu else low
    return x.data_ptr(), INTEGER_CODES[x.dtype], x_scale, x_zero_point, y.data_ptr(), scale, zero_point, low, high


def _parameter(op: str, name: str, values: Tensor, shape: tuple[int, ...], why: str) -> Tensor:
    if tuple(values.shape) != shape:
        raise ValueError(f"{op}: {name} must have shape {shape} ({why}), got {tuple(values.shape)}")
    return values.detach().to(torch.float32).contiguous()


def _weight_and_bias(
    op: str, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...], why: str
) -> tuple[Tensor | None, Tensor | None]:
    return (
        None if weight is None else _parameter(op, "weight", weight, shape, why),
        None if bias is None else _parameter(op, "bias", bias, shape, why),
    )


def _address(t: Tensor | None) -> int:
    return 0 if t is None else t.data_ptr()


def _shape(x: Tensor) -> tuple[int, int, int, bool]:
    """Images, channels, places, and whether the channels are innermost."""
    return x.shape[0], x.shape[1], math.prod(x.shape[2:]), _is_channels_last(x)


# -------------------------------------------------------------------------------------------------------- batch norm


def run_batch_norm(
    op: str,
    x: Tensor,
    x_scale: float,
    x_zero_point: int,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    scale: float,
    zero_point: int,
    ranks: Sequence[int] = (2, 3, 4, 5),
    relu: bool = False,
) -> Tensor:
    """``weight * (x - mean) / sqrt(var + eps) + bias`` for each channel of ``(N, C, ...)``, rounded once.

    Example:
        >>> x, mean, var = torch.tensor([[10, 14]], dtype=torch.uint8), torch.zeros(2), torch.ones(2)
        >>> run_batch_norm("batch_norm", x, 0.5, 10, None, None, mean, var, 0.0, 0.25, 100)
        tensor([[100, 108]], dtype=torch.uint8)
    """
    if x.dim() not in ranks:
        wanted = " or ".join(str(rank) for rank in ranks)
        raise ValueError(f"{op}: input must have {wanted} dimensions, (N, C, ...), got shape {tuple(x.shape)}")
    x = _checked(op, x, x_scale, scale, zero_point)
    channels, why = (x.shape[1],), f"one for each channel of an input of shape {tuple(x.shape)}"
    w, b = _weight_and_bias(op, weight, bias, channels, why)
    m, v = _parameter(op, "mean", mean, channels, why), _parameter(op, "var", var, channels, why)
    y = _empty(x)
    tensor = _native_tensor(x, x_scale, x_zero_point, y, scale, zero_point, relu)
    _native.batch_norm(tensor, _shape(x), _address(w), _address(b), m.data_ptr(), v.data_ptr(), eps)
    return y


def _define_batch_norm(name: str, ranks: tuple[int, ...], relu: bool) -> Callable[..., Tensor]:
    statistics = "Tensor? weight, Tensor? bias, Tensor mean, Tensor var, float eps"

    def batch_norm(
        input: Tensor,
        input_scale: float,
        input_zero_point: int,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        var: Tensor,
        eps: float,
        scale: float,
        zero_point: int,
    ) -> Tensor:
        arguments = input, input_scale, input_zero_point, weight, bias, mean, var, eps, scale, zero_point
        return run_batch_norm(name, *arguments, ranks=ranks, relu=relu)

    what = f"Batch norm with fixed statistics{', with a ReLU' if relu else ''}; see `run_batch_norm`."
    declare = operator(fake=_fake, name=name, on_qtensors=f"Tensor qx, {statistics}, {_TO}")
    return declare(named(name, batch_norm, what))


RANKS = {"batch_norm": (2, 3, 4, 5), "batch_norm1d": (2, 3), "batch_norm2d": (4,), "batch_norm3d": (5,)}

batch_norm = _define_batch_norm("batch_norm", RANKS["batch_norm"], relu=False)
batch_norm_relu = _define_batch_norm("batch_norm_relu", RANKS["batch_norm"], relu=True)
batch_norm1d = _define_batch_norm("batch_norm1d", RANKS["batch_norm1d"], relu=False)
batch_norm1d_relu = _define_batch_norm("batch_norm1d_relu", RANKS["batch_norm1d"], relu=True)
batch_norm2d = _define_batch_norm("batch_norm2d", RANKS["batch_norm2d"], relu=False)
batch_norm2d_relu = _define_batch_norm("batch_norm2d_relu", RANKS["batch_norm2d"], relu=True)
batch_norm3d = _define_batch_norm("batch_norm3d", RANKS["batch_norm3d"], relu=False)
batch_norm3d_relu = _define_batch_norm("batch_norm3d_relu", RANKS["batch_norm3d"], relu=True)

# ------------------------------------------------------------------------------------ norms of the values themselves


def _fake_contiguous(input: Tensor) -> Tensor:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


@operator(fake=_fake_contiguous, on_qtensors=f"Tensor input, int[] normalized_shape, {_NORM}")
def layer_norm(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    scale: float,
    zero_point: int,
) -> Tensor:
    """``weight * (x - mean) / sqrt(var + eps) + bias``, mean and variance over the last axes, `normalized_shape`.

    `weight` and `bias` have the shape `normalized_shape`; the result is contiguous.

    Example:
        >>> x = torch.tensor([[10, 14]], dtype=torch.uint8)
        >>> layer_norm(x, 0.5, 10, [2], None, None, 0.0, 0.25, 100)
        tensor([[ 96, 104]], dtype=torch.uint8)
    """
    op, normalized = "layer_norm", tuple(normalized_shape)
    rank = len(normalized)
    if not 0 < rank <= input.dim() or tuple(input.shape[input.dim() - rank :]) != normalized:
        raise ValueError(
            f"{op}: an input of shape {tuple(input.shape)} does not end with normalized_shape {normalized}"
        )
    x = _checked(op, input, input_scale, scale, zero_point).contiguous()
    w, b = _weight_and_bias(op, weight, bias, normalized, "normalized_shape")
    y = torch.empty_like(x)
    tensor = _native_tensor(x, input_scale, input_zero_point, y, scale, zero_point)
    rows = math.prod(x.shape[: x.dim() - rank])
    _native.layer_norm(tensor, rows, math.prod(normalized), _address(w), _address(b), eps)
    return y


def run_group_norm(
    op: str,
    x: Tensor,
    x_scale: float,
    x_zero_point: int,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    scale: float,
    zero_point: int,
) -> Tensor:
    """``weight * (x - mean) / sqrt(var + eps) + bias``, mean and variance over each group of the C of ``(N, C, ...)``.

    Example:
        >>> x = torch.tensor([[10, 14, 20, 28]], dtype=torch.uint8)
        >>> run_group_norm("group_norm", x, 0.5, 10, 2, None, None, 0.0, 0.25, 100)
        tensor([[ 96, 104,  96, 104]], dtype=torch.uint8)
    """
    checks.require_dims(op, x, 2)
    if num_groups < 1 or x.shape[1] % num_groups:
        raise ValueError(f"{op}: num_groups {num_groups} does not divide the {x.shape[1]} channels of the input")
    x = _checked(op, x, x_scale, scale, zero_point)
    channels, why = (x.shape[1],), f"one for each channel of an input of shape {tuple(x.shape)}"
    w, b = _weight_and_bias(op, weight, bias, channels, why)
    y = _empty(x)
    tensor = _native_tensor(x, x_scale, x_zero_point, y, scale, zero_point)
    _native.group_norm(tensor, _shape(x), num_groups, _address(w), _address(b), eps)
    return y


@operator(fake=_fake, on_qtensors=f"Tensor input, int num_groups, {_NORM}")
def group_norm(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    scale: float,
    zero_point: int,
) -> Tensor:
    """A norm over groups of channels; see `run_group_norm`."""
    arguments = input, input_scale, input_zero_point, num_groups, weight, bias, eps, scale, zero_point
    return run_group_norm("group_norm", *arguments)


@operator(fake=_fake, on_qtensors=f"Tensor input, {_NORM}")
def instance_norm(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    scale: float,
    zero_point: int,
) -> Tensor:
    """A norm over each channel of each image: `run_group_norm` with as many groups as channels."""
    checks.require_dims("instance_norm", input, 2)
    groups = max(input.shape[1], 1)
    arguments = input, input_scale, input_zero_point, groups, weight, bias, eps, scale, zero_point
    return run_group_norm("instance_norm", *arguments)


# ----------------------------------------------------------------------------------------------------------- softmax


@operator(fake=_fake, on_qtensors=f"Tensor qx, int dim, {_TO}")
def softmax(
    input: Tensor, input_scale: float, input_zero_point: int, dim: int, scale: float, zero_point: int
) -> Tensor:
    """``exp(x) / sum(exp(x))`` along axis `dim`.

    Example:
        >>> softmax(torch.tensor([[10, 10, 10, 10]], dtype=torch.uint8), 0.5, 10, -1, 1 / 256, 0)
        tensor([[64, 64, 64, 64]], dtype=torch.uint8)
    """
    op = "softmax"
    x = _checked(op, input, input_scale, scale, zero_point)
    if x.dim() == 0:
        return softmax(x.reshape(1), input_scale, input_zero_point, dim, scale, zero_point).reshape(())
    axis = checks.require_axis(op, x, dim)
    y = _empty(x)
    order = [*range(x.dim())] if x.is_contiguous() else [0, *range(2, x.dim()), 1]  # outermost in memory first
    sizes, place = [x.shape[d] for d in order], order.index(axis)
    tensor = _native_tensor(x, input_scale, input_zero_point, y, scale, zero_point)
    _native.softmax(tensor, math.prod(sizes[:place]), sizes[place], math.prod(sizes[place + 1 :]))
    return y
