"""Affine quantization: ``q = clamp(rne(x / scale) + zero_point)`` and ``x' = (q - zero_point) * scale``.

Each function has two bodies: a native kernel for CPU tensors in float32 (and float64 scales), and the same formula in
torch operations for every other device and dtype. `Block` says which elements share a scale.

What happens to values that have no quantized counterpart (the answers are PyTorch 2.13's, on CPUs):

==================  =============================  =========================================================
input               8 and 16 bit                   32 bit
==================  =============================  =========================================================
NaN                 0; `fused`: qmax               INT_MIN
infinity, too large qmin or qmax;                  `saturating` and float64: qmin or qmax; float32 `split` and
                    `wrapping`: low 32 bits        `joined`: INT_MIN from 2**31 up
==================  =============================  =========================================================
"""

from __future__ import annotations

import enum

import torch

from zeropoint import _native
from zeropoint.numerics.blocks import Block, Grid, dense, expand, grid
from zeropoint.numerics.dtypes import qint8, quint8

# torch is here, and so are its threads: share them instead of competing with them.
_native.adopt_openmp()


class RoundingVariant(enum.IntEnum):
    """The form of the rounding formula. Variants differ only at ties and out of range; see native/kernels/types.h.

    With x = 0.5, scale = 1, zero_point = 3: `split` rounds 0.5 to 0 and gives 3; the others round 3.5 and give 4.
    """

    split = 0  # rne(x * inv) + zero_point: decomposed per tensor and per channel, fake quantize
    joined = 1  # rne(x * inv + zero_point): decomposed per token and per group
    fused = 2  # rne(fma(x, inv, zero_point)): quantize_per_tensor to 8 bits
    saturating = 3  # as joined, and int32 saturates: quantize_per_channel, quantize_per_tensor to qint32
    wrapping = 4  # as joined, through the low 32 bits of an int64: quantize_per_channel with float zero points


class Beyond(enum.IntEnum):
    """The result of fake quantization for NaN and for values too large for an integer."""

    keep_nan = 0  # NaN stays NaN, infinities saturate
    nan_low = 1  # NaN counts as qmin, infinities saturate
    int64_low = 2  # NaN and everything from 2**63 up counts as qmin


class WayBack(enum.IntEnum):
    """How fake quantization computes (q - zero_point) * scale where float32 would not be exact."""

    single = 0
    exact = 1  # difference exact, product float32
    exact_product = 2  # difference and product float64, rounded once


INTEGER_CODES = {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3}
BYTE_LIMITS = {kind.torch_storage: (kind.qmin, kind.qmax) for kind in (quint8, qint8)}
_SCALAR_CODES = {**INTEGER_CODES, torch.int64: 4, torch.float32: 5, torch.float64: 6}
_NATIVE_INPUTS = (torch.float32, torch.float16, torch.bfloat16)
_NONE = (0, 5, 0)


def _view(t: torch.Tensor) -> tuple[int, int, int]:
    return t.data_ptr(), _SCALAR_CODES[t.dtype], t.numel()


def _float32(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float32 and x.is_contiguous():
        return x
    return dense(x.detach().to(torch.float32))


def _placed(x: torch.Tensor, block: Block) -> tuple[torch.Tensor, Grid]:
    """`x` dense and its grid; contiguous where its own layout has none."""
    found = grid(x, block)
    if found is None:
        x = x.contiguous()
        found = grid(x, block)
        assert found is not None
    return x, found


def _laid_out(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """`y` in the layout ``torch.empty_like(x)`` has; a copy only where `_placed` had to make one."""
    if y.stride() == x.stride():
        return y
    laid_out = torch.empty_like(x, dtype=y.dtype)
    return y if y.stride() == laid_out.stride() else laid_out.copy_(y)


def _require_invertible(operation: str, scale: torch.Tensor) -> None:
    """The native operators' check and its words, for tensors that do not get there."""
    wrong = torch.nonzero(~(torch.isfinite(scale) & (scale != 0)))
    if len(wrong):
        index = int(wrong[0])
        where = f" at index {index}" if scale.numel() > 1 else ""
        raise ValueError(f"{operation}: every scale must be finite and not zero, got {scale[index].item():f}{where}")


def _native_quantize(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, dtype: torch.dtype) -> bool:
    return (
        x.device.type == "cpu"
        and dtype in INTEGER_CODES
        and x.dtype in _NATIVE_INPUTS
        and scale.dtype in (torch.float32, torch.float64)
        and zero_point.dtype in _SCALAR_CODES
        # A float64 zero point widens the addition only; the kernels widen all or nothing.
        and not (zero_point.dtype == torch.float64 and scale.dtype == torch.float32)
    )


def quantize(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    block: Block,
    *,
    qmin: int,
    qmax: int,
    dtype: torch.dtype,
    variant: RoundingVariant = RoundingVariant.split,
) -> torch.Tensor:
    """Quantize `x` with flat `scale` and `zero_point`, one for each block, to integers of type `dtype`.

    Computes in the widest float type of `x` and `scale`, as torch operations on them would.

    Args:
        x: float tensor of any shape.
        scale: ``(blocks,)``, float; not zero, finite.
        zero_point: ``(blocks,)``, integer or float.

    Returns:
        tensor of the shape and layout of `x`.

    Raises:
        ValueError: if a scale is zero or not finite.

    Example:
        >>> x = torch.tensor([[0.5, 1.0], [0.5, 1.0]])
        >>> quantize(x, torch.tensor([0.5, 0.25]), torch.tensor([0, 0]), (1, 2), qmin=0, qmax=255, dtype=torch.uint8)
        tensor([[1, 2],
                [2, 4]], dtype=torch.uint8)
    """
    if _native_quantize(x, scale, zero_point, dtype):
        values, places = _placed(_float32(x), block)
        y = torch.empty_like(values, dtype=dtype)
        scale, zero_point = scale.detach().contiguous(), zero_point.detach().contiguous()
        _native.quantize(
            values.data_ptr(),
            y.data_ptr(),
            INTEGER_CODES[dtype],
            places.native,
            _view(scale),
            _view(zero_point),
            variant,
            qmin,
            qmax,
        )
        return _laid_out(y, x)
    _require_invertible("quantize", scale)
    inv, zero_point = expand(1.0 / scale, x.shape, block), expand(zero_point, x.shape, block)
    return _quantize_formula(x, inv, zero_point, variant, qmin, qmax).to(dtype)


def quantize_tensor(
    x: torch.Tensor,
    scale: float,
    zero_point: float,
    *,
    qmin: int,
    qmax: int,
    dtype: torch.dtype,
    variant: RoundingVariant = RoundingVariant.split,
) -> torch.Tensor:
    """Quantize `x` with one scale. Computes in float32; see `quantize`.

    Example:
        >>> quantize_tensor(torch.tensor([0.5, 1.0]), 0.25, 10, qmin=0, qmax=255, dtype=torch.uint8)
        tensor([12, 14], dtype=torch.uint8)
    """
    code = INTEGER_CODES.get(dtype)
    if code is not None and x.is_cpu:
        x = _float32(x)
        y = torch.empty_like(x, dtype=dtype)
        _native.quantize_tensor(x.data_ptr(), y.data_ptr(), code, x.numel(), scale, zero_point, variant, qmin, qmax)
        return y
    _require_invertible("quantize", torch.tensor([scale]))
    return _quantize_formula(x.to(torch.float32), 1.0 / scale, zero_point, variant, qmin, qmax).to(dtype)


def _quantize_formula(
    x: torch.Tensor,
    inv: torch.Tensor | float,
    zero_point: torch.Tensor | float,
    variant: RoundingVariant,
    qmin: int,
    qmax: int,
) -> torch.Tensor:
    """The quantized values, still as floats."""
    if variant == RoundingVariant.split:
        return (torch.round(x * inv) + zero_point).clamp(qmin, qmax)
    if variant == RoundingVariant.joined:
        return torch.round(x * inv + zero_point).clamp(qmin, qmax)
    if variant == RoundingVariant.fused:
        # A product of two float32 is exact in float64: one rounding to float32 is left, as in the fused addition.
        v = torch.round((x.to(torch.float64) * inv + zero_point).to(torch.float32))
        return torch.where(v.isnan(), qmax, v).clamp(qmin, qmax)
    return torch.round(x * inv + zero_point).to(torch.float64).clamp(qmin, qmax)


def _native_dequantize(
    q: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, out_dtype: torch.dtype
) -> bool:
    if torch.is_grad_enabled() and (scale.requires_grad or (zero_point is not None and zero_point.requires_grad)):
        return False
    wide = scale.dtype == torch.float64
    return (
        q.device.type == "cpu"
        and q.dtype in INTEGER_CODES
        and scale.dtype in (torch.float32, torch.float64)
        # A float64 product must go to the output type in one rounding.
        and (out_dtype == torch.float32 or (not wide and out_dtype.is_floating_point))
        and (zero_point is None or (zero_point.dtype in _SCALAR_CODES and (wide or zero_point.dtype != torch.float64)))
    )


def dequantize(
    q: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    block: Block,
    *,
    out_dtype: torch.dtype = torch.float32,
    exact: bool = True,
) -> torch.Tensor:
    """``(q - zero_point) * scale`` with flat parameters, one for each block.

    The difference of integers is exact; the product is taken in the type of `scale` and rounded once to `out_dtype`.

    Args:
        q: integer or float8 tensor of any shape.
        scale: ``(blocks,)``, float.
        zero_point: ``(blocks,)``, integer or float; None is 0.
        exact: False takes the difference in float32, as torch's per-channel dequantize does; only int32 can tell.

    Returns:
        tensor of the shape and layout of `q`.

    Example:
        >>> dequantize(torch.tensor([[1, 2]], dtype=torch.uint8), torch.tensor([0.5, 2.0]), None, (1, 1))
        tensor([[0.5000, 4.0000]])
    """
    if _native_dequantize(q, scale, zero_point, out_dtype):
        values, places = _placed(dense(q), block)
        y = torch.empty_like(values, dtype=torch.float32)
        scale = scale.contiguous()
        zero_view = _NONE
        if zero_point is not None:
            zero_point = zero_point.contiguous()
            zero_view = _view(zero_point)
            exact = exact and zero_point.dtype != torch.float32
        wide = scale.dtype == torch.float64
        _native.dequantize(
            values.data_ptr(), INTEGER_CODES[q.dtype], y.data_ptr(), places.native, _view(scale), zero_view, exact, wide
        )
        return _laid_out(y, q).to(out_dtype)
    values = q if q.dtype in INTEGER_CODES else q.to(torch.float32)
    difference = values if zero_point is None else _wider(values) - expand(zero_point, q.shape, block)
    return (difference * expand(scale, q.shape, block)).to(out_dtype)


def _wider(q: torch.Tensor) -> torch.Tensor:
    """Integers in a type where subtracting a zero point of the same type cannot wrap around."""
    return q if q.dtype.is_floating_point else q.to(torch.int64)


def dequantize_tensor(
    q: torch.Tensor,
    scale: float,
    zero_point: float,
    *,
    out_dtype: torch.dtype = torch.float32,
    exact: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``(q - zero_point) * scale`` with one scale, each step in `out_dtype`.

    Args:
        exact: take the difference as integers first; only int32 can tell.
        out: write here instead of to new memory, whose first touch costs more than the arithmetic when it is large.

    Raises:
        ValueError: if `out` has another shape, dtype or layout than the result.

    Example:
        >>> dequantize_tensor(torch.tensor([12, 14], dtype=torch.uint8), 0.25, 10)
        tensor([0.5000, 1.0000])
    """
    code = INTEGER_CODES.get(q.dtype)
    if code is not None and q.is_cpu and out_dtype is torch.float32:
        q = dense(q)
        y = torch.empty_like(q, dtype=torch.float32) if out is None else _fitting(out, q)
        _native.dequantize_tensor(q.data_ptr(), code, y.data_ptr(), q.numel(), scale, zero_point, exact)
        return y
    difference = (q.to(torch.int64) - zero_point).to(out_dtype) if exact else q.to(out_dtype) - zero_point
    return difference * scale if out is None else _fitting(out, q, out_dtype).copy_(difference * scale)


def _fitting(out: torch.Tensor, q: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """`out`, if a kernel can write the result for `q` there."""
    if out.dtype != dtype or out.shape != q.shape or out.stride() != q.stride() or out.device != q.device:
        raise ValueError(
            f"dequantize: out must be a {dtype} tensor of shape {tuple(q.shape)}, strides {q.stride()}, on {q.device};"
            f" got {out.dtype}, {tuple(out.shape)}, {out.stride()}, on {out.device}"
        )
    return out


def fake_quantize(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    block: Block,
    *,
    qmin: int,
    qmax: int,
    beyond: Beyond,
    way_back: WayBack = WayBack.single,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize and dequantize in one pass: ``(y, mask)``, the mask telling which values were inside the range.

    ``v = rne(x / scale) + zero_point``, ``y = (clamp(v, qmin, qmax) - zero_point) * scale``, and the mask is
    ``qmin <= v <= qmax``. A float zero point is added before rounding: fused with the product, or, being float16, not.

    Args:
        x: float tensor of any shape.
        scale: ``(blocks,)``, float32.
        zero_point: ``(blocks,)``, integer or float32.

    Returns:
        `y` of the dtype and layout of `x`, and `mask` (bool).

    Raises:
        ValueError: if a scale is zero or not finite.

    Example:
        >>> x = torch.tensor([0.3, 9.0])
        >>> one = torch.tensor([0.25]), torch.tensor([0])
        >>> fake_quantize(x, *one, (2,), qmin=0, qmax=15, beyond=Beyond.nan_low)
        (tensor([0.2500, 3.7500]), tensor([ True, False]))
    """
    if x.device.type == "cpu" and x.dtype == torch.float32 and zero_point.dtype != torch.float16:
        x, places = _placed(dense(x.detach()), block)
        y = torch.empty_like(x)
        mask = torch.empty_like(x, dtype=torch.bool)
        scale, zero_point = scale.detach().contiguous(), zero_point.detach().contiguous()
        _native.fake_quantize(
            x.data_ptr(),
            y.data_ptr(),
            mask.data_ptr(),
            places.native,
            _view(scale),
            _view(zero_point),
            beyond,
            way_back,
            qmin,
            qmax,
        )
        return y, mask
    _require_invertible("fake_quantize", scale)
    return _fake_quantize_formula(x, scale, zero_point, block, qmin, qmax, beyond, way_back)


def _fake_quantize_formula(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    block: Block,
    qmin: int,
    qmax: int,
    beyond: Beyond,
    way_back: WayBack,
) -> tuple[torch.Tensor, torch.Tensor]:
    compute = torch.promote_types(x.dtype, torch.float32)
    scale = expand(scale, x.shape, block)
    zero_point = expand(zero_point, x.shape, block)
    if zero_point.dtype == torch.float16:
        v = torch.round((x.to(compute) * (1.0 / scale) + zero_point.to(compute)).to(torch.float32))
    elif zero_point.is_floating_point():
        # A fused multiply-add to float32: the product is exact in float64, then one rounding.
        v = torch.round((x.to(torch.float64) * (1.0 / scale) + zero_point).to(torch.float32))
    else:
        v = torch.round(x.to(compute) * (1.0 / scale)) + zero_point
    compared = v.to(torch.float64) if beyond == Beyond.int64_low else v
    mask = (compared >= qmin) & (compared <= qmax)
    if beyond == Beyond.nan_low:
        v = torch.where(v.isnan(), qmin, v)
    elif beyond == Beyond.int64_low:
        v = torch.where(v < 2.0**63, v, qmin)
    difference = v.to(torch.float64).clamp(qmin, qmax) - zero_point
    if way_back == WayBack.exact_product:
        return (difference * scale.to(torch.float64)).to(x.dtype), mask
    return (difference.to(torch.float32) * scale).to(x.dtype), mask


def mask_gradient(dy: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``dx = dy * mask``, the straight-through gradient of fake quantization.

    Example:
        >>> mask_gradient(torch.tensor([2.0, 3.0]), torch.tensor([True, False]))
        tensor([2., 0.])
    """
    same_layout = dy.stride() == mask.stride() and dense(mask) is mask
    if dy.device.type == "cpu" and dy.dtype == torch.float32 and same_layout:
        dx = torch.empty_like(dy)
        _native.mask_gradient(dy.data_ptr(), mask.data_ptr(), dx.data_ptr(), dy.numel())
        return dx
    return dy * mask


def minmax(x: torch.Tensor, block: Block) -> tuple[torch.Tensor, torch.Tensor]:
    """Smallest and largest element of each block in one pass, flat; NaN where the block holds one.

    Args:
        x: float tensor, not empty.

    Returns:
        ``(blocks,)`` and ``(blocks,)`` of the dtype of `x`.

    Example:
        >>> minmax(torch.tensor([[1.0, -2.0], [3.0, 4.0]]), (1, 2))
        (tensor([-2.,  3.]), tensor([1., 4.]))
    """
    if x.device.type == "cpu" and x.dtype in _NATIVE_INPUTS:
        # float16 and bfloat16 are exact in float32, and so is the way back.
        values, places = _placed(_float32(x), block)
        low = torch.empty(places.parts, dtype=torch.float32)
        high = torch.empty(places.parts, dtype=torch.float32)
        _native.minmax(values.data_ptr(), places.native, places.parts, low.data_ptr(), high.data_ptr())
        return low.to(x.dtype), high.to(x.dtype)
    sizes = [side for n, b in zip(x.shape, block) for side in (n // b, b)]
    inside = tuple(range(1, len(sizes), 2))
    parts = x.reshape(sizes)
    return parts.amin(inside).reshape(-1), parts.amax(inside).reshape(-1)
