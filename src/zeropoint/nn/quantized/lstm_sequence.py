"""A quantized LSTM cell over a sequence in one native call, where its parts are not looked at."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint import _native
from zeropoint.nn.quantized.activation import Sigmoid
from zeropoint.nn.quantized.functional_modules import QFunctional
from zeropoint.nn.quantized.linear import Linear
from zeropoint.numerics.affine import INTEGER_CODES
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, quint8
from zeropoint.tensor.qtensor import QTensor, from_values
from zeropoint.tensor.quantizer import PerTensorQuantizer
from zeropoint.tensor.recording import has_hooks, is_recorded, is_watched

_FUNCTIONS = (Sigmoid, nn.Tanh, nn.Sigmoid)
_Parameters = tuple[float, int]


def whole_sequence(cell: Any, given: list[Tensor], h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Results, hidden and cell state of `cell` over a sequence: the bytes of `cell.step`, called for each step.

    Args:
        cell: a quantized LSTM cell.
        given: what the inputs of all steps give to the gates, ``(steps, batch, 4 * hidden)``.

    Returns:
        None where the parts of the cell have to be called: somebody records or watches them, or they are others than
        an LSTM is converted to.
    """
    if is_recorded() or is_watched() or cell.split_gates or not _are_plain(given[0], h, c):
        return None
    parts = cell.gates, cell.fgate_cx, cell.igate_cgate, cell.fgate_cx_igate_cgate, cell.ogate_cy
    functions = cell.input_gate, cell.forget_gate, cell.cell_gate, cell.output_gate
    linear = cell.hgates
    known = (
        type(linear) is Linear
        and linear._packed_params.dtype != torch.float16
        and all(type(part) is QFunctional and not part._modules for part in parts)
        and all(type(function) in _FUNCTIONS and not function._modules for function in functions)
    )
    if not known or any(map(has_hooks, (cell, linear, *parts, *functions))):
        return None
    x: Any = given[0]
    hidden = linear.in_features
    steps, batch = x.shape[:2]
    if not steps or not batch or h.shape != (batch, hidden) or c.shape != h.shape:
        return None
    sums, kept, fresh, new, result = ((part.scale, part.zero_point) for part in parts)
    kinds = tuple((type(f), *(getattr(f, name, None) for name in ("scale", "zero_point"))) for f in functions)
    tables, gates = _tables(kinds, sums, new, x._qdtype)
    rounded = [(linear.scale, linear.zero_point), sums, *gates[:4], kept, fresh, new, gates[4], result]
    if not all(_is_valid(scale, zero_point, x._qdtype) for scale, zero_point in rounded):
        return None
    # The tensors stay alive in here while their addresses are used.
    given_values, h_values, c_values = (q._data.contiguous() for q in (x, h, c))
    y = torch.empty((steps, batch, hidden), dtype=x._data.dtype)
    last_c = torch.empty((batch, hidden), dtype=x._data.dtype)
    _native.integer_lstm(
        linear._packed_params.layer(),
        INTEGER_CODES[y.dtype],
        (steps, batch, hidden),
        _state(x, given_values),
        _state(h, h_values),
        _state(c, c_values),
        rounded,
        tables.data_ptr(),
        y.data_ptr(),
        last_c.data_ptr(),
    )
    as_result = PerTensorQuantizer(*result)
    return (
        from_values(y, as_result, x._qdtype),
        from_values(y[-1].clone(), as_result, x._qdtype),
        from_values(last_c, PerTensorQuantizer(*new), x._qdtype),
    )


def _are_plain(*tensors: Any) -> bool:
    """Whether all are QTensors of one 8-bit dtype on the CPU, with one scale each."""
    dtype = getattr(tensors[0], "_qdtype", None)
    return dtype in (quint8, qint8) and all(
        type(q) is QTensor
        and q._qdtype == dtype
        and type(q._quantizer) is PerTensorQuantizer
        and type(q._data) is Tensor
        and q._data.is_cpu
        for q in tensors
    )


def _is_valid(scale: float, zero_point: int, dtype: QuantizedDtype) -> bool:
    return math.isfinite(scale) and scale > 0 and dtype.qmin <= zero_point <= dtype.qmax


def _state(q: Any, values: Tensor) -> tuple[int, float, int]:
    return values.data_ptr(), q._quantizer.scale, q._quantizer.zero_point


@functools.lru_cache(maxsize=256)
def _tables(
    kinds: tuple[tuple[Any, Any, Any], ...], sums: _Parameters, cell: _Parameters, dtype: QuantizedDtype
) -> tuple[Tensor, list[_Parameters]]:
    """What the functions of the gates make of all bytes of the sums, and tanh of those of the cell state.

    ``(5, 256)``, in the order of bytes; and the scales and zero points of the results.
    """
    every = torch.arange(256, dtype=torch.uint8).view(dtype.torch_storage)
    of_sums, of_cell = (from_values(every, PerTensorQuantizer(*p), dtype) for p in (sums, cell))
    functions = [kind() if scale is None else kind(scale, zero_point) for kind, scale, zero_point in kinds]
    results: list[Any] = [*(function(of_sums) for function in functions), torch.tanh(of_cell)]
    return torch.stack([r._data for r in results]), [(r.q_scale(), r.q_zero_point()) for r in results]
