"""Functions of quantized values: dequantize, a float function, quantize. On 8 bits that is a table of 256 bytes.

The formulas are those of PyTorch 2.13's vectorized quantized kernels, measured on all 256 integers and thousands of
qparams. (Its kernels spell a tensor's last few elements in another way, as `joined`, so that the same integer may give
another result there: leaky_relu with slope 0.5 does for some 30 of the 256. On 8 bits ours gives one result everywhere;
32 bits go through torch's float kernels, whose last few elements may differ in the last place of a float32.)

======================  =====================================  ===========================================
step                    8 bit                                  32 bit
======================  =====================================  ===========================================
dequantize              ``fma(scale, q, -(scale * zero_point))``; sigmoid: ``(q - zero_point) * scale``
quantize                `split`; requantize: `fused`           `saturating`
======================  =====================================  ===========================================
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from zeropoint import _native
from zeropoint.numerics import affine
from zeropoint.numerics.affine import INTEGER_CODES, RoundingVariant
from zeropoint.numerics.blocks import dense, is_dense
from zeropoint.numerics.dtypes import QuantizedDtype


@dataclass(frozen=True)
class FloatFunction:
    """What happens between dequantize and quantize: ``function(x, *arguments)`` on a flat float32 tensor.

    Args:
        arguments: their names.
        fused: how x is computed; see the table above.
        variant: how 8-bit results are rounded.
        operator: whether it is an operator, ``torch.ops.zeropoint.<name>``.
        on_qtensors: whether that is a function on quantized tensors too; its parameters behind those of the result,
            as in a schema, or None.
        in_place: whether quantized tensors have it as a method that keeps their parameters, and in place.
        of_qnnpack: the entry that takes its place for uint8 where values round as QNNPACK's.
    """

    function: Callable[..., torch.Tensor]
    arguments: tuple[str, ...] = ()
    fused: bool = True
    variant: RoundingVariant = RoundingVariant.split
    operator: bool = False
    on_qtensors: str | None = None
    in_place: bool = False
    of_qnnpack: str = ""


class Step(NamedTuple):
    """The qparams on both sides of a function, and the range of the integers."""

    scale: float
    zero_point: int
    out_scale: float
    out_zero_point: int
    qmin: int
    qmax: int


def _leaky_relu(x: torch.Tensor, negative_slope: float) -> torch.Tensor:
    return torch.where(x > 0, x, x * negative_slope)


def _threshold(x: torch.Tensor, threshold: float, value: float) -> torch.Tensor:
    return torch.where(x > threshold, x, value)


def _elu(x: torch.Tensor, alpha: float, scale: float, input_scale: float) -> torch.Tensor:
    # float elu would multiply by (alpha * scale), here they come one after the other.
    return F.elu(x * input_scale, alpha).where(x <= 0, x) * scale


def _celu(x: torch.Tensor, alpha: float) -> torch.Tensor:
    if alpha == 0 or math.isnan(alpha):
        raise ValueError(f"celu: alpha must not be zero, got {alpha}")
    return _elu(x, alpha, 1.0, 1.0 / alpha)


def _hardswish_of_qnnpack(x: torch.Tensor) -> torch.Tensor:
    return x * (x + 3).clamp(0, 6) / 6


def _tanh(x: torch.Tensor) -> torch.Tensor:
    # torch.tanh is MKL's, quantized tanh SLEEF's. Both round to the nearest float nearly always, which this does.
    return torch.tanh(x.to(torch.float64)).to(torch.float32)


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * torch.tensor(factor, dtype=torch.float32, device=x.device)


def _gelu(x: torch.Tensor, tanh: float) -> torch.Tensor:
    # oneDNN takes over contiguous tensors, with another erf. A transposed one stays with torch's vector code.
    n = x.numel()
    transposed = F.pad(x, (0, n % 2)).view(2, -1).t()
    return F.gelu(transposed, approximate="tanh" if tanh else "none").t().reshape(-1)[:n]


def _operator(
    function: Callable[..., torch.Tensor], arguments: str = "", on_qtensors: str | None = "", **more: Any
) -> FloatFunction:
    return FloatFunction(function, tuple(arguments.split()), operator=True, on_qtensors=on_qtensors, **more)


FUNCTIONS = MappingProxyType(
    {
        "celu": _operator(_celu, "alpha", "Scalar alpha=1", in_place=True),
        # factor * elu(inner_factor * x, alpha); PyTorch calls the factors scale and input_scale
        "elu": _operator(
            _elu, "alpha factor inner_factor", "Scalar alpha=1, Scalar scale=1, Scalar input_scale=1", in_place=True
        ),
        "exp": _operator(torch.exp),
        "gelu": _operator(_gelu, "tanh", None),  # 1 for the tanh approximation
        "hardsigmoid": _operator(F.hardsigmoid),
        "hardswish": _operator(F.hardswish, of_qnnpack="hardswish_of_qnnpack"),
        "leaky_relu": _operator(_leaky_relu, "negative_slope", None, in_place=True),
        "mish": _operator(F.mish),
        "sigmoid": _operator(torch.sigmoid, fused=False),
        "silu": _operator(F.silu),
        "tanh": _operator(_tanh),
        "clamp": FloatFunction(torch.clamp, ("low", "high")),
        "threshold": FloatFunction(_threshold, ("threshold", "value"), in_place=True),
        "hardswish_of_qnnpack": FloatFunction(_hardswish_of_qnnpack, fused=False, variant=RoundingVariant.joined),
        # The values themselves: as quantize_per_tensor rounds them, and as kernels do.
        "requantize": FloatFunction(_same, fused=False, variant=RoundingVariant.fused),
        "same": FloatFunction(_same),
        "scaled": FloatFunction(_scaled, ("factor",), fused=False),
    }
)


def apply(
    q: torch.Tensor, name: str, arguments: tuple[float, ...], step: Step, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """``quantize(function(dequantize(q), *arguments))`` for the function of that name in `FUNCTIONS`.

    Args:
        q: uint8, int8 or int32 tensor of any shape.
        dtype: of the result, if it is not that of `q`.

    Returns:
        tensor of the shape and layout of `q`.

    Example:
        >>> apply(torch.tensor([8, 12], dtype=torch.uint8), "leaky_relu", (0.5,), Step(1.0, 10, 1.0, 10, 0, 255))
        tensor([ 9, 12], dtype=torch.uint8)
    """
    q = dense(q)
    dtype = dtype or q.dtype
    y = torch.empty_like(q, dtype=dtype)
    if not q.numel():
        return y
    if q.element_size() > 1 or y.element_size() > 1:
        flat = q.as_strided((q.numel(),), (1,), q.storage_offset())
        return _formula(flat, name, arguments, step, dtype).as_strided(q.size(), q.stride())
    table = table_of(name, arguments, step, q.dtype, dtype)
    if not q.is_cpu:
        return table.to(q.device)[q.view(torch.uint8).to(torch.int64)].view(dtype)
    _native.lookup(q.data_ptr(), table.data_ptr(), y.data_ptr(), q.numel())
    return y


def look_up_rows(q: torch.Tensor, tables: torch.Tensor, rows: int) -> torch.Tensor:
    """Each byte of `q` through the table of its row; row r, of `rows` equal parts of the memory, has table r % tables.

    Args:
        q: dense 8-bit tensor on the CPU.
        tables: ``(..., tables, 256)`` of the same dtype, contiguous.

    Returns:
        tensor of the shape and layout of `q`.

    Example:
        >>> tables = torch.arange(256, dtype=torch.uint8).repeat(2, 1)
        >>> tables[1] = 7
        >>> look_up_rows(torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8), tables, 2)
        tensor([[1, 2],
                [7, 7]], dtype=torch.uint8)
    """
    y = torch.empty_like(q)
    if rows:
        addresses = q.data_ptr(), tables.data_ptr(), tables.numel() // 256, y.data_ptr()
        _native.lookup_rows(*addresses, rows, q.numel() // rows)
    return y


def apply_(q: torch.Tensor, name: str, arguments: tuple[float, ...], step: Step) -> None:
    """The same in place.

    Example:
        >>> q = torch.tensor([8, 12], dtype=torch.uint8)
        >>> apply_(q, "leaky_relu", (0.5,), Step(1.0, 10, 1.0, 10, 0, 255))
        >>> q
        tensor([ 9, 12], dtype=torch.uint8)
    """
    if q.element_size() > 1 or q.device.type != "cpu" or not is_dense(q):
        q.copy_(apply(q, name, arguments, step))
        return
    table = table_of(name, arguments, step, q.dtype, q.dtype)
    _native.lookup(q.data_ptr(), table.data_ptr(), q.data_ptr(), q.numel())


def compare(q: torch.Tensor, scale: float, zero_point: int, comparison: str, number: int | float) -> torch.Tensor:
    """Whether ``(q - zero_point) * scale`` is eq, ne, lt, le, gt or ge `number`, for 8-bit integers.

    Example:
        >>> compare(torch.tensor([4, 5], dtype=torch.uint8), 0.5, 3, "gt", 0.5)
        tensor([False,  True])
    """
    q = dense(q)
    table = _comparison_table(scale, zero_point, comparison, number, q.dtype)
    if q.device.type != "cpu":
        return table.to(q.device)[q.view(torch.uint8).to(torch.int64)]
    y = torch.empty_like(q, dtype=torch.bool)
    _native.lookup(q.data_ptr(), table.data_ptr(), y.data_ptr(), q.numel())
    return y


@functools.lru_cache(maxsize=256, typed=True)  # 2 and 2.0 may compare differently
def _comparison_table(
    scale: float, zero_point: int, comparison: str, number: int | float, dtype: torch.dtype
) -> torch.Tensor:
    with torch.no_grad():
        every = torch.arange(256, dtype=torch.uint8, device="cpu").view(dtype)
        values = affine.dequantize_tensor(every, scale, zero_point, exact=True)
        return getattr(torch.ops.aten, comparison).Scalar(values, number)


@functools.lru_cache(maxsize=256)  # a model has a few dozen; 64 kB when full
def table_of(
    name: str, arguments: tuple[float, ...], step: Step, dtype: torch.dtype, out_dtype: torch.dtype
) -> torch.Tensor:
    """The results for all 256 bytes, in the order of their bit patterns, as bytes.

    Example:
        >>> table_of("leaky_relu", (0.5,), Step(1.0, 10, 1.0, 10, 0, 255), torch.uint8, torch.uint8)[8:13]
        tensor([ 9, 10, 10, 11, 12], dtype=torch.uint8)
    """
    with torch.no_grad():
        every = torch.arange(256, dtype=torch.uint8, device="cpu").view(dtype)
        return _formula(every, name, arguments, step, out_dtype).view(torch.uint8)


def _formula(q: torch.Tensor, name: str, arguments: tuple[float, ...], step: Step, dtype: torch.dtype) -> torch.Tensor:
    entry = FUNCTIONS[name]
    if entry.fused:
        x = dequantize_fused(q, step.scale, step.zero_point)
    else:
        x = affine.dequantize_tensor(q, step.scale, step.zero_point)
    y = entry.function(x, *arguments)
    wide = dtype == torch.int32
    if not wide:
        y = torch.where(y.isnan(), torch.inf, y)  # NaN gives qmax here, where `split` would say 0
    return affine.quantize_tensor(
        y,
        single(step.out_scale),  # so that 1 / scale is the quotient of float32 numbers
        step.out_zero_point,
        qmin=step.qmin,
        qmax=step.qmax,
        dtype=dtype,
        variant=RoundingVariant.saturating if wide else entry.variant,
    )


def dequantize_fused(q: torch.Tensor, scale: float, zero_point: int) -> torch.Tensor:
    """``fma(scale, q, -(scale * zero_point))`` in float32, `q` converted to float32 first.

    The product of two float32 numbers is exact in float64. Their sum with a third is not always: rounding it to odd
    first makes the second rounding, to float32, the only one that counts.

    Example:
        >>> dequantize_fused(torch.tensor([8, 12], dtype=torch.uint8), 0.5, 10)
        tensor([-1.,  1.])
    """
    step = torch.tensor(scale, dtype=torch.float32, device=q.device)
    offset = -(step * torch.tensor(zero_point, dtype=torch.float32, device=q.device)).to(torch.float64)
    product = q.to(torch.float32).to(torch.float64) * step.to(torch.float64)
    total = product + offset
    if q.element_size() == 1:
        return total.to(torch.float32)  # 8 more bits than a float32 has: the sum is exact
    part = total - product
    lost = (product - (total - part)) + (offset - part)
    bits = total.view(torch.int64)
    away = torch.where((lost > 0) == (total > 0), 1, -1)
    odd = torch.where((lost != 0) & (bits % 2 == 0), bits + away, bits)
    return odd.view(torch.float64).to(torch.float32)


def single(x: float) -> float:
    """`x` rounded to float32.

    Example:
        >>> single(0.1)
        0.10000000149011612
    """
    return ctypes.c_float(x).value


def ratio(scale: float, out_scale: float) -> float:
    """``scale * (1 / out_scale)`` in float32, as kernels that requantize integers have it.

    Example:
        >>> ratio(0.5, 0.25)
        2.0
    """
    return (torch.tensor(scale, dtype=torch.float32) * (torch.tensor(1.0, dtype=torch.float32) / out_scale)).item()


@functools.lru_cache(maxsize=256)  # a model clamps to the same few bounds again and again
def quantize_number(x: float, scale: float, zero_point: int, dtype: QuantizedDtype) -> int:
    """One number as the integer that stands for it; `saturating`, as torch quantizes the bounds of clamp.

    Example:
        >>> import zeropoint
        >>> quantize_number(0.5, 1.0, 3, zeropoint.quint8)
        4
    """
    x_in, q = ctypes.c_float(x), np.zeros(1, dtype=dtype.storage)
    code = INTEGER_CODES[dtype.torch_storage]
    _native.quantize_tensor(
        ctypes.addressof(x_in),
        q.ctypes.data,
        code,
        1,
        scale,
        zero_point,
        RoundingVariant.saturating,
        dtype.qmin,
        dtype.qmax,
    )
    return int(q[0])
