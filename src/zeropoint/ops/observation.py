"""Observation: running ranges and histograms, updated in place, and the parameters that follow from them.

Observers are modules around these operators; being operators, they work in TorchScript files, too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zeropoint.numerics import blocks
from zeropoint.numerics.histogram import (
    add_to_histogram,
    least_divergence_range,
    least_error_range,
    least_l2_range,
    percentile_range,
)
from zeropoint.numerics.moving_average import observe_range
from zeropoint.numerics.qparams import qparams_from_range
from zeropoint.numerics.schemes import (
    QScheme,
    per_channel_affine_float_qparams,
    per_tensor_affine,
    per_tensor_symmetric,
)
from zeropoint.ops import checks
from zeropoint.ops.library import TwoTensors, Written, operator

# ------------------------------------------------------------------------------------------------- running ranges


def _fake_observe_range() -> None:
    return None


@operator(fake=_fake_observe_range)
def observe_range_(
    x: Tensor, min_val: Written, max_val: Written, axis: int | None = None, averaging_constant: float | None = None
) -> None:
    """Widen the running range by the range of `x`, or move it towards that: ``min += c * (min(x) - min)``, in place.

    Args:
        x: float, any shape; empty changes nothing.
        min_val, max_val: ``()``, or, with `axis`, ``(x.shape[axis],)``. A range of ``(inf, -inf)`` is empty: the first
            one seen is taken as it is.
        averaging_constant: None widens.

    Raises:
        ValueError: if `axis` is none of `x`, or has another length than the range.

    Example:
        >>> low, high = torch.tensor(float("inf")), torch.tensor(float("-inf"))
        >>> observe_range_(torch.tensor([1.0, 3.0]), low, high, averaging_constant=0.5)
        >>> observe_range_(torch.tensor([2.0, 9.0]), low, high, averaging_constant=0.5)
        >>> low, high
        (tensor(1.5000), tensor(6.))
    """
    if x.numel() == 0:
        return
    x = x.detach().to(min_val.dtype)
    if axis is None:
        block = blocks.per_tensor(x.shape)
    else:
        axis = checks.require_axis("observer", x, axis)
        why = f"the input of shape {tuple(x.shape)} has {x.shape[axis]} channels along axis {axis}"
        checks.require_length("observer", "the running range", min_val, x.shape[axis], why)
        block = blocks.per_channel(x.shape, axis)
    observe_range(x, block, (min_val, max_val), averaging_constant)


def _fake_observe_histogram() -> None:
    return None


@operator(fake=_fake_observe_histogram)
def observe_histogram_(
    x: Tensor, histogram: Written, min_val: Written, max_val: Written, upsample_rate: int = 16
) -> None:
    """Count the values of `x` into a histogram over ``[min_val, max_val]``, in place, widening the range first.

    See `zeropoint.numerics.histogram`.

    Raises:
        ValueError: if `x` holds NaN. Then nothing has changed.

    Example:
        >>> state = torch.zeros(2), torch.tensor(float("inf")), torch.tensor(float("-inf"))
        >>> observe_histogram_(torch.tensor([1.0, 2.0, 2.5, 3.0]), *state)
        >>> state
        (tensor([1., 3.]), tensor(1.), tensor(3.))
    """
    add_to_histogram(x, histogram, min_val, max_val, upsample_rate)


# --------------------------------------------------------------------------------------------- from range to qparams


def _scheme(symmetric: bool, float_zero_point: bool) -> QScheme:
    if float_zero_point:
        return per_channel_affine_float_qparams
    return per_tensor_symmetric if symmetric else per_tensor_affine


def _fake_range_to_qparams(min_val: Tensor, eps: Tensor, symmetric: bool, float_zero_point: bool) -> TwoTensors:
    scale_dtype = min_val.dtype if float_zero_point else torch.result_type(min_val, eps)
    dtype = scale_dtype if float_zero_point else torch.int64 if symmetric else torch.int32
    scale = min_val.new_empty(max(min_val.numel(), 1), dtype=scale_dtype)
    return scale, torch.empty_like(scale, dtype=dtype)


@operator(fake=_fake_range_to_qparams)
def range_to_qparams(
    min_val: Tensor,
    max_val: Tensor,
    eps: Tensor,
    quant_min: int,
    quant_max: int,
    symmetric: bool,
    float_zero_point: bool,
    symmetric_zero_point: int,
) -> TwoTensors:
    """`zeropoint.numerics.qparams.qparams_from_range` with the scheme in two flags.

    Returns:
        `scale`, and `zero_point` as PyTorch's observers have it: int32 if affine, int64 if symmetric, or float.

    Raises:
        ValueError: if the range is upside down, or holds a NaN.

    Example:
        >>> eps = torch.tensor([torch.finfo(torch.float32).eps])
        >>> range_to_qparams(torch.tensor(-1.0), torch.tensor(4.1), eps, 0, 255, False, False, 128)
        (tensor([0.0200]), tensor([50], dtype=torch.int32))
    """
    scheme = _scheme(symmetric, float_zero_point)
    scale, zero_point = qparams_from_range(
        min_val,
        max_val,
        quant_min,
        quant_max,
        eps=eps.to(min_val.device),
        scheme=scheme,
        symmetric_zero_point=symmetric_zero_point,
    )
    return scale, zero_point if symmetric or float_zero_point else zero_point.to(torch.int32)


# ------------------------------------------------------------------------------------------- ranges from a histogram


def _fake_range(min_val: Tensor, max_val: Tensor) -> TwoTensors:
    return torch.empty_like(min_val), torch.empty_like(max_val)


def _fresh(answer: TwoTensors) -> TwoTensors:
    """An operator may answer neither its own arguments nor a piece of another tensor."""
    low, high = answer
    return low.clone(), high.clone()


@operator(fake=_fake_range)
def histogram_l2_range(histogram: Tensor, min_val: Tensor, max_val: Tensor, levels: int) -> TwoTensors:
    """`zeropoint.numerics.histogram.least_l2_range` as an operator.

    Example:
        >>> bell = torch.exp(-torch.linspace(-8, 8, 64).square() / 2)
        >>> histogram_l2_range(bell, torch.tensor(-8.0), torch.tensor(8.0), 16)
        (tensor(-4.2500), tensor(2.5000))
    """
    return _fresh(least_l2_range(histogram, min_val, max_val, levels))


@operator(fake=_fake_range)
def histogram_percentile_range(histogram: Tensor, min_val: Tensor, max_val: Tensor, percentile: float) -> TwoTensors:
    """`zeropoint.numerics.histogram.percentile_range` as an operator.

    Example:
        >>> histogram_percentile_range(torch.ones(10), torch.tensor(0.0), torch.tensor(10.0), 80.0)
        (tensor(1.), tensor(9.))
    """
    return _fresh(percentile_range(histogram, min_val, max_val, percentile))


@operator(fake=_fake_range)
def histogram_error_range(
    histogram: Tensor,
    min_val: Tensor,
    max_val: Tensor,
    eps: Tensor,
    quant_min: int,
    quant_max: int,
    symmetric: bool,
    symmetric_zero_point: int,
) -> TwoTensors:
    """`zeropoint.numerics.histogram.least_error_range` as an operator.

    Example:
        >>> counts = torch.cat([torch.full((99,), 1000.0), torch.zeros(100), torch.ones(1)])
        >>> ends = torch.tensor(0.0), torch.tensor(2.0)
        >>> histogram_error_range(counts, *ends, torch.tensor([1e-7]), 0, 15, False, 0)
        (tensor(0.), tensor(0.9600))
    """
    answer = least_error_range(
        histogram,
        min_val,
        max_val,
        quant_min,
        quant_max,
        eps=eps,
        scheme=_scheme(symmetric, False),
        symmetric_zero_point=symmetric_zero_point,
    )
    return _fresh(answer)


@operator(fake=_fake_range)
def histogram_divergence_range(histogram: Tensor, min_val: Tensor, max_val: Tensor, levels: int) -> TwoTensors:
    """`zeropoint.numerics.histogram.least_divergence_range` as an operator.

    Example:
        >>> bell = torch.exp(-torch.linspace(-8, 8, 512).square() / 2) * 1000
        >>> histogram_divergence_range(bell, torch.tensor(-8.0), torch.tensor(8.0), 64)
        (tensor(-4.), tensor(4.))
    """
    return _fresh(least_divergence_range(histogram, min_val, max_val, levels))
