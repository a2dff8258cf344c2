"""What operators demand of their arguments, and the words they refuse with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

INTEGER_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32)
FLOAT8_DTYPES = (torch.float8_e5m2, torch.float8_e4m3fn)
QUANTIZED_DTYPES = INTEGER_DTYPES + FLOAT8_DTYPES
INPUT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


_BOUNDS = {dtype: (torch.iinfo(dtype).min, torch.iinfo(dtype).max) for dtype in INTEGER_DTYPES} | {
    dtype: (int(torch.finfo(dtype).min), int(torch.finfo(dtype).max)) for dtype in FLOAT8_DTYPES
}


def names(dtypes: Sequence[torch.dtype]) -> str:
    return ", ".join(str(d).removeprefix("torch.") for d in dtypes)


def bounds(dtype: torch.dtype) -> tuple[int, int]:
    """The smallest and largest value of a quantized dtype, as integers.

    Example:
        >>> bounds(torch.int8), bounds(torch.float8_e4m3fn)
        ((-128, 127), (-448, 448))
    """
    return _BOUNDS[dtype]


def require_dtype(op: str, name: str, got: torch.dtype, allowed: Sequence[torch.dtype]) -> None:
    if got not in allowed:
        raise TypeError(f"{op}: {name} must be one of {names(allowed)}, got {str(got).removeprefix('torch.')}")


def require_order(op: str, qmin: int, qmax: int) -> None:
    if qmin >= qmax:
        raise ValueError(f"{op}: quant_min must be below quant_max, got {qmin} and {qmax}")


def require_range(op: str, qmin: int, qmax: int, dtype: torch.dtype) -> None:
    """``lowest(dtype) <= qmin < qmax <= highest(dtype)``."""
    require_dtype(op, "dtype", dtype, QUANTIZED_DTYPES)
    low, high = bounds(dtype)
    kind = str(dtype).removeprefix("torch.")
    if qmin < low:
        raise ValueError(f"{op}: quant_min {qmin} is below {low}, the smallest value of {kind}")
    if qmax > high:
        raise ValueError(f"{op}: quant_max {qmax} is above {high}, the largest value of {kind}")
    require_order(op, qmin, qmax)


def require_stored(op: str, q: torch.Tensor, dtype: torch.dtype) -> None:
    """The tensor really has the dtype that the metadata argument claims."""
    require_dtype(op, "dtype", dtype, QUANTIZED_DTYPES)
    if q.dtype != dtype:
        raise TypeError(f"{op}: input has dtype {names([q.dtype])}, but the dtype argument says {names([dtype])}")


def require_axis(op: str, x: torch.Tensor, axis: int) -> int:
    """`axis` counted from the front."""
    if not -x.dim() <= axis < x.dim():
        raise ValueError(f"{op}: axis {axis} is out of range for an input of {x.dim()} dimensions")
    return axis % x.dim()


def require_length(op: str, name: str, t: torch.Tensor, length: int, why: str) -> None:
    if t.numel() != length:
        raise ValueError(f"{op}: {name} has {t.numel()} values, expected {length} ({why})")


def require_scalar(op: str, name: str, t: torch.Tensor) -> None:
    if t.numel() != 1:
        raise ValueError(f"{op}: {name} must have one element, got shape {tuple(t.shape)}")


def require_dims(op: str, x: torch.Tensor, least: int) -> None:
    if x.dim() < least:
        raise ValueError(f"{op}: input must have at least {least} dimension(s), got shape {tuple(x.shape)}")


class OperandError(ValueError, RuntimeError):
    """An operand that an operator refuses. PyTorch's operators raise RuntimeError, which old code catches."""


def require_zero_point_inside(op: str, zero_point: int, qmin: int, qmax: int) -> None:
    if not qmin <= zero_point <= qmax:
        raise OperandError(
            f"{op}: `zero_point` must be between `quant_min` and `quant_max`: zero_point {zero_point} is not"
            f" between quant_min {qmin} and quant_max {qmax}"
        )


def require_no_trace(op: str) -> None:
    """Refuse a kernel that is called past its operator while torch.jit.trace records: it would leave no trace.

    Inside an operator nothing is recorded.
    """
    if torch._C._get_tracing_state() is not None:
        raise NotImplementedError(
            f"torch.jit.trace cannot record {op} on packed weights: trace a module of zeropoint.nn, or call an operator"
            " of torch.ops.zeropoint"
        )
