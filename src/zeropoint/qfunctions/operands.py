"""Quantized tensors as the operators see them: integers, one scale and one zero point."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics.dtypes import QuantizedDtype
from zeropoint.ops.checks import OperandError
from zeropoint.tensor.qtensor import QTensor, from_values
from zeropoint.tensor.quantizer import PerTensorQuantizer
from zeropoint.tensor.recording import is_recorded, is_watched

BYTES = ("qint8", "quint8")


def require_quantized(op: str, name: str, q: Any, dtypes: tuple[str, ...] = BYTES) -> QTensor:
    """`q`, which must be a quantized tensor of one of these dtypes."""
    if not isinstance(q, QTensor):
        raise TypeError(
            f"{op}: {name} must be a quantized tensor, got {type(q).__name__}"
            f"{f' of {q.dtype}' if isinstance(q, Tensor) else ''}; create one with zeropoint.quantize_per_tensor"
        )
    if q._qdtype.name not in dtypes:
        raise TypeError(f"{op}: {name} must be {' or '.join(reversed(dtypes))}, got {q._qdtype.name}")
    return q


def activation(op: str, q: Any, name: str = "input", dtypes: tuple[str, ...] = BYTES) -> tuple[Tensor, float, int]:
    """Integers, scale and zero point of `q`, which must be quantized per tensor."""
    if type(q) is not QTensor or q._qdtype.name not in dtypes:
        require_quantized(op, name, q, dtypes)
    if is_watched() and is_recorded():
        return torch.ops.zeropoint.int_repr(q), q.q_scale(), q.q_zero_point()
    quantizer = q._qparams.quantizer
    if type(quantizer) is not PerTensorQuantizer:
        raise OperandError(
            f"{op}: {name} must be quantized per tensor, got {quantizer.scheme}; only per-tensor scales are supported"
            f" by {op}"
        )
    return q._data, quantizer.scale, quantizer.zero_point


def result(data: Tensor, scale: float, zero_point: int, dtype: QuantizedDtype) -> QTensor:
    """Integers with their scale and zero point as a quantized tensor."""
    if not dtype.qmin <= zero_point <= dtype.qmax:
        raise ValueError(f"zero_point {zero_point} is outside the range of {dtype.name}, {dtype.qmin}..{dtype.qmax}")
    if is_watched() and is_recorded():
        return torch.ops.zeropoint.qtensor(data, scale, zero_point, dtype.name)
    return from_values(data, PerTensorQuantizer(scale, zero_point), dtype)
