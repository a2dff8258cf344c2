"""Pools, larger images, means and norms over axes of float32 tensors, for what a model leaves unquantized.

Each result has one sum of its own, in one fixed order, so that it depends neither on the CPU nor on the layout, and
programs of the engine give the bytes of their graph.

============  =======================================================================================================
average pool  the sum of a window in float32, along the last axis first, over the number of its elements
mean          the sum in float64 over the number of elements, rounded once
sum           in float64, rounded once
norm          ``sqrt(sum(x^2))`` in float64, rounded once
product       in float64, rounded once
variance      ``sum((x - mean(x))^2) / (n - correction)`` in float64, rounded once
============  =======================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.ops import checks
from zeropoint.ops.library import Sizes, named, operator
from zeropoint.ops.spatial import Layout, Windows, layout, three, windows


def _require(op: str, x: Tensor) -> None:
    checks.require_dtype(op, "input", x.dtype, (torch.float32,))
    if x.device.type != "cpu":
        raise NotImplementedError(f"{op}: input is on {x.device}, its kernels run on the CPU: call .cpu() first")


def _native_tensor(place: Layout, y: Tensor, sizes: Sequence[int]) -> tuple[Any, ...]:
    return place.tensor.data_ptr(), y.data_ptr(), *place.counts, three(place.sizes), three(sizes)


def _define_average(dims: int) -> Callable[..., Tensor]:
    name = f"float_avg_pool{dims}d"

    def sliding(
        input: Tensor, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool
    ) -> tuple[Layout, Windows]:
        place = layout(name, input, dims)
        return place, windows(name, place.sizes, kernel_size, stride or kernel_size, padding, [1], ceil_mode)

    def fake(
        input: Tensor, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool
    ) -> Tensor:
        place, w = sliding(input, kernel_size, stride, padding, ceil_mode)
        return place.empty(w.out)

    @operator(fake=fake, name=name)
    def pool(
        input: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        _require(name, input)
        if divisor_override == 0:
            raise ValueError(f"{name}: divisor_override must not be 0")
        place, w = sliding(input, kernel_size, stride, padding, ceil_mode)
        y = place.empty(w.out)
        kernel, step, around, _ = w.native
        tensor = _native_tensor(place, y, w.out)
        _native.float_average_pool(tensor, kernel, step, around, count_include_pad, divisor_override or 0)
        return y

    return named(name, pool, f"The means of windows over the last {dims} axes; arguments as in PyTorch.")


def _define_adaptive(dims: int) -> Callable[..., Tensor]:
    name = f"float_adaptive_avg_pool{dims}d"

    def each(sizes: Sequence[int]) -> list[int]:
        return list(sizes) * dims if len(sizes) == 1 else list(sizes)

    @operator(fake=lambda input, output_size: layout(name, input, dims).empty(each(output_size)), name=name)
    def pool(input: Tensor, output_size: Sizes) -> Tensor:
        _require(name, input)
        place, sizes = layout(name, input, dims), each(output_size)
        if len(sizes) != dims or min(sizes) < 1 or min(place.sizes) < 1:
            raise ValueError(
                f"{name}: output_size must have {dims} positive sizes, and input values, got {sizes} for shape"
                f" {tuple(input.shape)}"
            )
        y = place.empty(sizes)
        _native.float_adaptive_average_pool(_native_tensor(place, y, sizes))
        return y

    return named(name, pool, f"The means of windows that divide the last {dims} axes evenly among the outputs.")


float_avg_pool1d, float_avg_pool2d, float_avg_pool3d = (_define_average(d) for d in (1, 2, 3))
float_adaptive_avg_pool1d, float_adaptive_avg_pool2d, float_adaptive_avg_pool3d = (
    _define_adaptive(d) for d in (1, 2, 3)
)


def _fake_bilinear(input: Tensor, output_size: Sizes | None, scale_factors: Sequence[float] | None) -> Tensor:
    place = layout("float_bilinear", input, 2)
    return place.empty(_resized(place, output_size, scale_factors))


def _resized(place: Layout, output_size: Sizes | None, factors: Sequence[float] | None) -> list[int]:
    if output_size is not None:
        return list(output_size)
    return [int(size * factor) for size, factor in zip(place.sizes, factors or ())]


@operator(fake=_fake_bilinear)
def float_bilinear(
    input: Tensor, output_size: Sizes | None, align_corners: bool, scale_factors: Sequence[float] | None
) -> Tensor:
    """The weighted mean of the four inputs around each output, of a size, or of that times factors.

    Example:
        >>> float_bilinear(torch.tensor([[[[0.0, 1.0]]]]), [1, 3], True, None)
        tensor([[[[0.0000, 0.5000, 1.0000]]]])
    """
    _require("float_bilinear", input)
    place = layout("float_bilinear", input, 2)
    sizes = _resized(place, output_size, scale_factors)
    if input.dim() != 4 or len(sizes) != 2 or min(sizes) < 1 or min(place.sizes) < 1:
        raise ValueError(
            f"float_bilinear: input must be (N, C, H, W) and not empty, and the result too, got shape"
            f" {tuple(input.shape)} and sizes {sizes}"
        )
    y = place.empty(sizes)
    factors = scale_factors if output_size is None and scale_factors is not None else (0.0, 0.0)
    _native.float_bilinear(_native_tensor(place, y, sizes), align_corners, *factors)
    return y


# --------------------------------------------------------------------------------------------------------- over axes


def _dropped(op: str, x: Tensor, dim: Sequence[int] | None) -> list[int]:
    for axis in dim or ():
        if not -max(x.dim(), 1) <= axis < max(x.dim(), 1):
            raise IndexError(f"{op}: dim {axis} is out of range for an input of shape {tuple(x.shape)}")
    return sorted({axis % max(x.dim(), 1) for axis in dim} if dim else range(x.dim()))


def _without(x: Tensor, dropped: list[int], keepdim: bool) -> list[Any]:
    return [1 if d in dropped else n for d, n in enumerate(x.shape) if keepdim or d not in dropped]


def _over(op: str, native: Callable[..., None], x: Tensor, dim: Sequence[int] | None, keepdim: bool) -> Tensor:
    _require(op, x)
    dropped = _dropped(op, x, dim)
    y = x.new_empty(_without(x, dropped, keepdim))
    kept = [d for d in range(x.dim()) if d not in dropped]
    rows = x.permute(kept + [d for d in dropped if d < x.dim()]).contiguous()
    if y.numel():
        native(rows.data_ptr(), y.data_ptr(), y.numel(), x.numel() // y.numel())
    return y


def _fake_over(input: Tensor, dim: Sequence[int] | None, keepdim: bool) -> Tensor:
    return input.new_empty(_without(input, _dropped("float_mean", input, dim), keepdim))


def _over_axes(name: str) -> Callable[..., Tensor]:
    native = getattr(_native, name)

    @operator(fake=_fake_over, name=name)
    def over(input: Tensor, dim: Sequence[int] | None, keepdim: bool = False) -> Tensor:
        return _over(name, native, input, dim, keepdim)

    return over


float_mean = named(
    "float_mean",
    _over_axes("float_mean"),
    """The mean over some axes, or over all if none are named.

    Example:
        >>> float_mean(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), [1])
        tensor([1.5000, 4.5000])
    """,
)
float_sum = named(
    "float_sum",
    _over_axes("float_sum"),
    """The sum over some axes, or over all if none are named.

    Example:
        >>> float_sum(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), [1])
        tensor([3., 9.])
    """,
)
float_norm = named(
    "float_norm",
    _over_axes("float_norm"),
    """``sqrt(sum(x^2))`` over some axes, or over all if none are named.

    Example:
        >>> float_norm(torch.tensor([[3.0, 4.0]]), [-1], True)
        tensor([[5.]])
    """,
)
float_product = named(
    "float_product",
    _over_axes("float_product"),
    """The product over some axes, or over all if none are named.

    Example:
        >>> float_product(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), [1])
        tensor([ 2., 18.])
    """,
)


@operator(fake=lambda input, dim, correction=1.0, keepdim=False: _fake_over(input, dim, keepdim))
def float_variance(input: Tensor, dim: Sequence[int] | None, correction: float = 1.0, keepdim: bool = False) -> Tensor:
    """``sum((x - mean(x))^2) / max(n - correction, 0)`` over some axes, or over all if none are named.

    Example:
        >>> float_variance(torch.tensor([[1.0, 2.0, 3.0]]), [1])
        tensor([1.])
    """
    if not math.isfinite(correction):
        raise ValueError(f"float_variance: correction must be finite, got {correction}")

    def native(x: int, y: int, rows: int, length: int) -> None:
        _native.float_variance(x, y, rows, length, correction)

    return _over("float_variance", native, input, dim, keepdim)
