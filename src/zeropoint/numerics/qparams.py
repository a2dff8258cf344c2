"""From the range of the data to (scale, zero_point)."""

from __future__ import annotations

import math

import torch

from zeropoint import _native
from zeropoint.numerics.affine import minmax
from zeropoint.numerics.blocks import per_tensor
from zeropoint.numerics.schemes import QScheme, per_tensor_affine, qscheme

HALF_MAX = 65504.0


def qparams_from_range(
    min_val: torch.Tensor,
    max_val: torch.Tensor,
    qmin: int,
    qmax: int,
    *,
    eps: torch.Tensor,
    scheme: QScheme = per_tensor_affine,
    symmetric_zero_point: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(scale, zero_point) that map ``[min_val, max_val]``, widened to contain 0, onto ``[qmin, qmax]``.

    - affine: ``scale = (max - min) / (qmax - qmin)``, ``zero_point = clamp(qmin - rne(min / scale), qmin, qmax)``
    - symmetric: ``scale = max(-min, max) / ((qmax - qmin) / 2)``, ``zero_point = symmetric_zero_point``
    - float zero points: ``scale = (max - min) / (qmax - qmin)`` or 1, ``zero_point = -min / scale``, range not widened

    and no scale is below `eps`.

    Args:
        min_val, max_val: ``()`` or ``(channels,)``, float, finite, ``min_val <= max_val``.
        eps: ``(1,)``, float.
        symmetric_zero_point: the middle of an unsigned range (128 for uint8), 0 for a signed one.

    Returns:
        `scale` in the widest type of the range and `eps`, and `zero_point`, int64 unless the scheme has float ones;
        both ``(1,)`` or ``(channels,)``.

    Raises:
        ValueError: if the range is upside down, or holds a NaN.

    Example:
        >>> eps = torch.tensor([torch.finfo(torch.float32).eps])
        >>> qparams_from_range(torch.tensor(-1.0), torch.tensor(4.1), 0, 255, eps=eps)
        (tensor([0.0200]), tensor([50]))
    """
    scheme = qscheme(scheme)
    if not torch.all(min_val <= max_val):
        raise ValueError(
            f"the minimum must not be above the maximum, and neither NaN: got min {min_val}, max {max_val}"
        )
    zero = torch.zeros_like(min_val)
    low, high = torch.minimum(min_val, zero), torch.maximum(max_val, zero)
    steps = float(qmax - qmin)
    if scheme.float_zero_point:
        scale = (max_val - min_val) / steps
        scale = torch.where(scale > eps, scale, torch.ones_like(scale))
        zero_point = -1 * min_val / scale
    elif scheme.symmetric:
        scale = torch.maximum(torch.maximum(-low, high) / (steps / 2), eps)
        zero_point = torch.full_like(low, symmetric_zero_point, dtype=torch.int64)
    else:
        scale = torch.maximum((high - low) / steps, eps)
        zero_point = (qmin - torch.round(low / scale).to(torch.int32)).clamp(qmin, qmax).to(torch.int64)
    return scale.reshape(-1), zero_point.reshape(-1)


def choose_qparams(x: torch.Tensor, reduce_range: bool = False) -> tuple[float, int]:
    """(scale, zero_point) for quantizing all of `x` to quint8, as dynamic quantization does.

    ``scale = (max - min) / qmax`` over the range widened to contain 0 (0.1 if that is 0); ranges so narrow that
    ``scale < 6.1e-5`` are stretched to it. The zero point is taken from the side where it is rounded less.

    Args:
        x: float32 tensor, not empty.
        reduce_range: use 7 bits (0..127), as CPUs without VNNI need elsewhere; our kernels never do.

    Raises:
        ValueError: if `x` is empty or holds NaN or infinity.

    Example:
        >>> choose_qparams(torch.tensor([-27.5, 0.0, 100.0]))
        (0.5, 55)
    """
    return dynamic_qparams(x, 0, 127 if reduce_range else 255)


def dynamic_qparams(x: torch.Tensor, qmin: int, qmax: int) -> tuple[float, int]:
    """As `choose_qparams`, for any range.

    Example:
        >>> dynamic_qparams(torch.tensor([-1.0, 1.0]), -128, 127)
        (0.00784313725490196, 0)
    """
    if x.numel() == 0:
        raise ValueError("choose_qparams: x is empty, so it has no range; got shape " + str(tuple(x.shape)))
    low, high = (float(v) for v in minmax(x.to(torch.float32), per_tensor(x.shape)))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"choose_qparams: x must be finite to have a scale, got a range of [{low}, {high}]")
    return _native.qparams_of_range(low, high, qmin, qmax, False, False)


class _OutOfBounds(ValueError, RuntimeError):
    """A ValueError where PyTorch raises a RuntimeError."""


def choose_qparams_optimized(
    x: torch.Tensor, numel: int, n_bins: int = 200, ratio: float = 0.16, bit_width: int = 4
) -> tuple[torch.Tensor, torch.Tensor]:
    """The clipping range of `x` that loses least when quantized to very few bits: ``(xmax, xmin)``.

    A greedy search: from ``[min, max]``, cut one of `n_bins` steps off the side where the l2 error grows less, until
    `ratio` of the range is gone; the best local optimum on the way wins. Scale and offset are rounded to float16, as
    embedding tables store them.

    Args:
        x: float32 tensor; its first `numel` elements are used.

    Returns:
        ``(1,)`` and ``(1,)``.

    Raises:
        ValueError: if `numel`, `n_bins`, `ratio` or `bit_width` is out of range, or `x` is empty or holds NaN.

    Example:
        >>> x = torch.linspace(-1, 1, 100)
        >>> choose_qparams_optimized(x, numel=100, bit_width=4)
        (tensor([0.9500]), tensor([-0.9500]))
    """
    if x.numel() == 0:
        raise ValueError(f"choose_qparams_optimized: the input tensor is empty and has no data: {tuple(x.shape)}")
    if not 1 <= numel <= x.numel():
        raise _OutOfBounds(
            "choose_qparams_optimized: numel is out of the bound of input tensor: it must be between 1 and"
            f" {x.numel()} (x.numel()), got {numel}"
        )
    if n_bins < 1:
        raise ValueError(f"choose_qparams_optimized: n_bins must be at least 1, got {n_bins}")
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"choose_qparams_optimized: ratio must be between 0 and 1, got {ratio}")
    if not 1 <= bit_width <= 8:
        raise ValueError(f"choose_qparams_optimized: bit_width must be between 1 and 8, got {bit_width}")
    values = x.detach().to(device="cpu", dtype=torch.float32).contiguous().reshape(-1)[:numel]
    low, high = _native.least_loss_range(values.data_ptr(), numel, n_bins, ratio, bit_width)
    if math.isnan(low) or math.isnan(high):
        raise ValueError("choose_qparams_optimized: x contains NaN, so it has no range")
    return torch.tensor([high], device=x.device), torch.tensor([low], device=x.device)


def saturate_weight_to_fp16(weight: torch.Tensor) -> torch.Tensor:
    """`weight` with every value beyond float16 moved to its largest: ``clamp(weight, -65504, 65504)``.

    Values are not rounded to float16, and NaN stays NaN.

    Example:
        >>> saturate_weight_to_fp16(torch.tensor([1.0, -1e9, float("inf")]))
        tensor([ 1.0000e+00, -6.5504e+04,  6.5504e+04])
    """
    return weight.clamp(-HALF_MAX, HALF_MAX)
