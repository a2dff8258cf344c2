"""Between float tensors and the integers a QTensor stores, exactly as PyTorch's quantized tensors did it.

These operators are what `zeropoint.tensor` is made of; being operators, they let QTensors pass through torch.compile.
They differ from the decomposed library at ties and in 32 bits; `RoundingVariant` says how.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics import affine, blocks, functions, packing
from zeropoint.numerics.affine import RoundingVariant
from zeropoint.ops.library import composite, operator


def _fake_stored(x: Tensor, *arguments: Any) -> Tensor:
    return torch.empty_like(x, dtype=arguments[-1])


def _fake_float(q: Tensor) -> Tensor:
    return torch.empty_like(q, dtype=torch.float32)


@operator(fake=_fake_stored)
def stored_quantize(x: Tensor, scale: float, zero_point: int, qmin: int, qmax: int, storage: torch.dtype) -> Tensor:
    """``clamp(rne(fma(x, 1 / scale, zero_point)), qmin, qmax)``; 32 bits without the fused addition.

    Below a byte (``qmax < 255`` in uint8) the zero point is added after rounding, ``rne(x / scale) + zero_point``, as
    an int64: what is beyond that, and NaN, becomes `qmin`.

    Example:
        >>> stored_quantize(torch.tensor([0.5]), 1.0, 3, 0, 255, torch.uint8)
        tensor([4], dtype=torch.uint8)
    """
    if storage == torch.uint8 and qmax < 255:
        # x = 0.5 with scale 1 and zero point 3 gives rne(0.5) + 3 = 3 here, where a whole byte gives rne(3.5) = 4.
        # The reciprocal is that of the float32 scale; 1 / inverse, in float64, is a scale with just this reciprocal.
        inverse = (1.0 / torch.tensor(scale, dtype=torch.float32)).item()
        step = 1.0 / inverse if 0 < abs(inverse) < math.inf else scale
        y = affine.quantize_tensor(
            x, step, zero_point, qmin=qmin, qmax=qmax, dtype=storage, variant=RoundingVariant.split
        )
        return y.masked_fill_(x * inverse >= 2.0**63, qmin)
    variant = RoundingVariant.saturating if storage == torch.int32 else RoundingVariant.fused
    return affine.quantize_tensor(x, scale, zero_point, qmin=qmin, qmax=qmax, dtype=storage, variant=variant)


@operator(fake=_fake_stored)
def stored_quantize_per_channel(
    x: Tensor, scales: Tensor, zero_points: Tensor, axis: int, qmin: int, qmax: int, storage: torch.dtype
) -> Tensor:
    """``clamp(rne(x * (1 / scale) + zero_point), qmin, qmax)`` in float32, with one scale for each index of `axis`.

    Example:
        >>> stored_quantize_per_channel(
        ...     torch.tensor([0.5]), torch.tensor([1.0]), torch.tensor([3]), 0, 0, 255, torch.uint8
        ... )
        tensor([4], dtype=torch.uint8)
    """
    variant = RoundingVariant.wrapping if zero_points.is_floating_point() else RoundingVariant.saturating
    block = blocks.per_channel(x.shape, axis)
    return affine.quantize(
        x, scales.to(torch.float32), zero_points, block, qmin=qmin, qmax=qmax, dtype=storage, variant=variant
    )


@operator(fake=_fake_float)
def stored_dequantize(q: Tensor, scale: float, zero_point: int) -> Tensor:
    """``(q - zero_point) * scale``: the difference of integers is exact, the product float32.

    Example:
        >>> stored_dequantize(torch.tensor([4], dtype=torch.uint8), 0.5, 3)
        tensor([0.5000])
    """
    return affine.dequantize_tensor(q, scale, zero_point, exact=True)


@operator(fake=_fake_float)
def stored_dequantize_per_channel(q: Tensor, scales: Tensor, zero_points: Tensor, axis: int) -> Tensor:
    """``(q - zero_point) * scale``, the product taken in the type of `scales` (float64 for integer zero points).

    Example:
        >>> scales, zero_points = torch.tensor([0.5], dtype=torch.float64), torch.tensor([3])
        >>> stored_dequantize_per_channel(torch.tensor([4], dtype=torch.uint8), scales, zero_points, 0)
        tensor([0.5000])
    """
    return affine.dequantize(q, scales, zero_points, blocks.per_channel(q.shape, axis), exact=False)


def _fake_pack(values: Tensor, bits: int) -> Tensor:
    return values.new_empty(packing.packed_columns(values.numel(), bits))


@operator(fake=_fake_pack)
def stored_pack(values: Tensor, bits: int) -> Tensor:
    """All values in row-major order, packed into bytes.

    Example:
        >>> stored_pack(torch.tensor([[1, 2], [3, 0]], dtype=torch.uint8), 4)
        tensor([33,  3], dtype=torch.uint8)
    """
    return packing.pack(values.contiguous().reshape(-1), bits)


def _fake_unpack(packed: Tensor, numel: int) -> Tensor:
    return packed.new_empty(numel)


@operator(fake=_fake_unpack)
def stored_unpack(packed: Tensor, numel: int, bits: int) -> Tensor:
    """The first `numel` packed values, one in a byte.

    Example:
        >>> stored_unpack(torch.tensor([33, 3], dtype=torch.uint8), 3, 4)
        tensor([1, 2, 3], dtype=torch.uint8)
    """
    return packing.unpack(packed[: packing.packed_columns(numel, bits)], numel, bits)


def _fake_function(q: Tensor) -> Tensor:
    return torch.empty_like(q)


@operator(fake=_fake_function)
def stored_function(
    q: Tensor,
    name: str,
    arguments: Sequence[float],
    scale: float,
    zero_point: int,
    out_scale: float,
    out_zero_point: int,
    qmin: int,
    qmax: int,
) -> Tensor:
    """``quantize(function(dequantize(q), *arguments))``; the names are those of `zeropoint.numerics.functions`.

    Example:
        >>> stored_function(torch.tensor([8, 12], dtype=torch.uint8), "leaky_relu", [0.5], 1.0, 10, 1.0, 10, 0, 255)
        tensor([ 9, 12], dtype=torch.uint8)
    """
    step = functions.Step(scale, zero_point, out_scale, out_zero_point, qmin, qmax)
    return functions.apply(q, name, tuple(arguments), step)


def _fake_function_(q: Tensor, *arguments: Any) -> None:
    pass


@operator(
    "stored_function_(Tensor(a!) q, str name, float[] arguments, float scale, int zero_point, float out_scale,"
    " int out_zero_point, int qmin, int qmax) -> ()",
    fake=_fake_function_,
)
def stored_function_(q: Tensor, name: str, arguments: Sequence[float], *step: Any) -> None:
    """`stored_function` in place.

    Example:
        >>> q = torch.tensor([8, 12], dtype=torch.uint8)
        >>> stored_function_(q, "leaky_relu", [0.5], 1.0, 10, 1.0, 10, 0, 255)
        >>> q
        tensor([ 9, 12], dtype=torch.uint8)
    """
    functions.apply_(q, name, tuple(arguments), functions.Step(*step))


def _fake_compare(q: Tensor) -> Tensor:
    return torch.empty_like(q, dtype=torch.bool)


@operator(fake=_fake_compare)
def stored_compare(q: Tensor, scale: float, zero_point: int, comparison: str, number: int | float) -> Tensor:
    """Whether the value of each byte is eq, ne, lt, le, gt or ge `number`.

    Example:
        >>> stored_compare(torch.tensor([4, 5], dtype=torch.uint8), 0.5, 3, "gt", 0.5)
        tensor([False,  True])
    """
    return functions.compare(q, scale, zero_point, comparison, number)


# What makes QTensors, per tensor and per channel; filled by zeropoint.tensor, which is built on this module.
MAKERS: dict[str, Callable[..., Tensor]] = {}


@composite()
def qtensor(x: Tensor, scale: float, zero_point: int, dtype: str) -> Tensor:
    """A QTensor of these floats or integers: what compilers see where Python code makes one. Needs zeropoint.tensor.

    Example:
        >>> import zeropoint.tensor
        >>> qtensor(torch.tensor([1.0]), 0.5, 3, "quint8").int_repr()
        tensor([5], dtype=torch.uint8)
    """
    return MAKERS["per_tensor"](x, scale, zero_point, dtype)


@composite()
def qtensor_per_channel(x: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: str) -> Tensor:
    """A QTensor of these floats or integers with a scale for each index of `axis`; see `qtensor`.

    Example:
        >>> import zeropoint.tensor
        >>> qtensor_per_channel(torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([3]), 0, "quint8").int_repr()
        tensor([5], dtype=torch.uint8)
    """
    return MAKERS["per_channel"](x, scales, zero_points, axis, dtype)
