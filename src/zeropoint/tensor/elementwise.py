"""Functions of each element: bounds are applied to the integers, the rest on 8 bits is a table of 256 results."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch

from zeropoint.numerics.dtypes import QuantizedDtype, qint8, qint32, quint8
from zeropoint.numerics.functions import FUNCTIONS, quantize_number, single
from zeropoint.ops.qtensor_storage import stored_function
from zeropoint.tensor.errors import QTensorError
from zeropoint.tensor.qtensor import QTensor, implements
from zeropoint.tensor.quantizer import PerTensorQuantizer
from zeropoint.tensor.recording import run
from zeropoint.tensor.write import copy_, write

aten = torch.ops.aten

# Functions whose results fill a known interval have qparams of their own, whatever those of the input.
_UNIT = {
    qint8: PerTensorQuantizer(2.0**-8, -128),
    quint8: PerTensorQuantizer(2.0**-8, 0),
    qint32: PerTensorQuantizer(2.0**-32, 0),
}  # [0, 1]
_SYMMETRIC = {
    qint8: PerTensorQuantizer(2.0**-7, 0),
    quint8: PerTensorQuantizer(2.0**-7, 128),
    qint32: PerTensorQuantizer(2.0**-31, 0),
}  # [-1, 1]
FIXED_QPARAMS = MappingProxyType({"sigmoid": _UNIT, "hardsigmoid": _UNIT, "tanh": _SYMMETRIC})


def per_tensor_only(name: str, q: QTensor) -> PerTensorQuantizer:
    """The one scale and zero point of `q`, which `name` needs."""
    quantizer = q._qparams.quantizer
    if type(quantizer) is PerTensorQuantizer:
        return quantizer
    raise QTensorError(
        f"{name} needs per-tensor quantization, this tensor is {q._quantizer.scheme.name}: call .dequantize() first"
    )


# ------------------------------------------------------------------------------------------------ bounds on integers


def _bounds(name: str, q: QTensor, low: Any, high: Any) -> tuple[int | None, int | None]:
    """Float bounds as integers of `q`."""
    p = per_tensor_only(name, q)
    if low is None and high is None:
        raise QTensorError(f"{name}: at least one of min and max must be given")

    def integer(bound: Any) -> int | None:
        return None if bound is None else quantize_number(bound, p.scale, p.zero_point, q._qdtype)

    return integer(low), integer(high)


def _clamped(name: str, q: QTensor, low: Any, high: Any) -> QTensor:
    low, high = _bounds(name, q, low, high)
    return q.with_values(torch.clamp(q.values(), low, high))


def _clamped_(name: str, q: QTensor, low: Any, high: Any) -> QTensor:
    low, high = _bounds(name, q, low, high)
    return write(q, lambda values: values.clamp_(low, high))


@implements(aten.relu.default)
def relu(q: QTensor) -> QTensor:
    return q.with_values(q.values().clamp_min(per_tensor_only("relu", q).zero_point))


@implements(aten.relu_.default)
def relu_(q: QTensor) -> QTensor:
    zero_point = per_tensor_only("relu_", q).zero_point
    return write(q, lambda values: values.clamp_min_(zero_point))


def _define_bounds(name: str, bounds: Callable[..., tuple[Any, Any]]) -> None:
    """Implement an operator that clamps, and its form in place; `bounds` gives (low, high) of its other arguments."""

    @implements(getattr(aten, name).default)
    def clamped(q: QTensor, *arguments: Any, **more: Any) -> QTensor:
        return _clamped(name, q, *bounds(*arguments, **more))

    @implements(getattr(aten, f"{name}_").default)
    def clamped_(q: QTensor, *arguments: Any, **more: Any) -> QTensor:
        return _clamped_(f"{name}_", q, *bounds(*arguments, **more))


_define_bounds("clamp", lambda min=None, max=None: (min, max))
_define_bounds("clamp_min", lambda min: (min, None))
_define_bounds("clamp_max", lambda max: (None, max))
_define_bounds("hardtanh", lambda min_val=-1.0, max_val=1.0: (min_val, max_val))


# -------------------------------------------------------------------------------------------- functions with a table


def _step(q: QTensor, name: str, arguments: tuple[Any, ...], out: PerTensorQuantizer | None = None) -> tuple[Any, ...]:
    """What zeropoint::stored_function wants beside the integers; `out` are the qparams of the result if they change."""
    p = per_tensor_only(name, q)
    out = out or p
    numbers = [float(x) for x in arguments]
    return name, numbers, p.scale, p.zero_point, out.scale, out.zero_point, q._qdtype.qmin, q._qdtype.qmax


def _function(q: QTensor, name: str, *arguments: Any, out: PerTensorQuantizer | None = None) -> QTensor:
    step = _step(q, name, arguments, out)
    return q.with_values(run(stored_function, q.values(), *step), out)


def _function_(q: QTensor, name: str, *arguments: Any) -> QTensor:
    step = _step(q, name, arguments)
    return write(q, lambda values: torch.ops.zeropoint.stored_function_(values, *step))


def fixed_qparams(name: str, dtype: QuantizedDtype) -> PerTensorQuantizer:
    """What the result of sigmoid, hardsigmoid or tanh on a tensor of this dtype has."""
    found = FIXED_QPARAMS[name].get(dtype)
    if found is None:
        raise QTensorError(
            f"{name} has output qparams for {', '.join(d.name for d in FIXED_QPARAMS[name])} only, this tensor is"
            f" {dtype.name}: call .dequantize() first"
        )
    return found


def _fixed(q: QTensor, name: str) -> QTensor:
    per_tensor_only(name, q)
    return _function(q, name, out=fixed_qparams(name, q._qdtype))


@implements(aten.sigmoid.default)
def sigmoid(q: QTensor) -> QTensor:
    return _fixed(q, "sigmoid")


@implements(aten.tanh.default)
def tanh(q: QTensor) -> QTensor:
    return _fixed(q, "tanh")


@implements(aten.hardsigmoid.default)
def hardsigmoid(q: QTensor) -> QTensor:
    return _fixed(q, "hardsigmoid")


@implements(aten.hardsigmoid_.default)
def hardsigmoid_(q: QTensor) -> QTensor:
    """Takes over the fixed qparams; a view, whose base keeps its own, is requantized to them instead."""
    return copy_(q, _fixed(q, "hardsigmoid"))


def _define_method(name: str) -> None:
    """A function that keeps the parameters, and the same in place; ATen's schema has the defaults of its arguments."""
    op, op_ = getattr(aten, name).default, getattr(aten, f"{name}_").default
    names = [argument.name for argument in op._schema.arguments[1:]]
    defaults = {argument.name: argument.default_value for argument in op._schema.arguments[1:]}

    def arguments(given: tuple[Any, ...], more: dict[str, Any]) -> list[Any]:
        return list((defaults | dict(zip(names, given)) | more).values())

    @implements(op)
    def function(q: QTensor, *given: Any, **more: Any) -> QTensor:
        return _function(q, name, *arguments(given, more))

    @implements(op_)
    def function_(q: QTensor, *given: Any, **more: Any) -> QTensor:
        return _function_(q, name, *arguments(given, more))


for _name, _entry in FUNCTIONS.items():
    if _entry.in_place:
        _define_method(_name)


@implements(aten.gelu.default)
def gelu(q: QTensor, *, approximate: str = "none") -> QTensor:
    if approximate not in ("none", "tanh"):
        raise QTensorError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    p = per_tensor_only("gelu", q)
    out = PerTensorQuantizer(single(p.scale), p.zero_point)  # PyTorch hands the scale on as a float32
    return _function(q, "gelu", approximate == "tanh", out=out)
