"""Comparing QTensors: the values they stand for, not their integers. With a number, 8 bits have a table."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from zeropoint.tensor.errors import QTensorError
from zeropoint.tensor.qtensor import QTensor, implements
from zeropoint.tensor.quantizer import PerTensorQuantizer

aten = torch.ops.aten


@implements(aten.equal.default)
def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same integers with the same meaning: dtype and qparams count too."""
    if not (isinstance(a, QTensor) and isinstance(b, QTensor)):
        return False
    return a._qdtype == b._qdtype and a._quantizer.same(b._quantizer) and torch.equal(a.values(), b.values())


def _integers_decide(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the order of the values is the order of the integers: one scale, and no two integers share a float."""
    if not (isinstance(a, QTensor) and isinstance(b, QTensor) and a._qdtype == b._qdtype and a._qdtype.bits <= 8):
        return False
    p = a._quantizer
    return isinstance(p, PerTensorQuantizer) and p.same(b._quantizer) and 1e-30 < p.scale < 1e30


def _floats(x: torch.Tensor) -> torch.Tensor:
    return x.dequantize() if isinstance(x, QTensor) else x.to(torch.float32)


@implements(aten.allclose.default)
def allclose(
    a: torch.Tensor, b: torch.Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    return torch.allclose(_floats(a), _floats(b), rtol, atol, equal_nan)


@implements(aten.mul.Scalar)
def mul_scalar(q: QTensor, number: Any) -> NoReturn:
    # `q * number` arrives as mul.Tensor. This is how torch.isclose arrives, and torch.testing.assert_close with it.
    raise QTensorError(
        "aten.mul.Scalar is not defined for quantized tensors: call .dequantize() first. torch.isclose and"
        " torch.testing.assert_close call it for their tolerances; with rtol=0 and atol=0 they take quantized tensors,"
        " and torch.allclose takes them with any"
    )


def _comparison(name: str) -> None:
    """Implement one of eq, ne, lt, le, gt, ge: against a tensor of any kind, and against a number."""
    operator = getattr(aten, name)

    def with_tensor(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if _integers_decide(a, b):
            return operator.Tensor(a.values(), b.values())
        return operator.Tensor(_floats(a), _floats(b))

    def with_number(q: QTensor, number: Any) -> torch.Tensor:
        p = q._quantizer
        if isinstance(p, PerTensorQuantizer) and q._qdtype.bits == 8 and isinstance(number, (int, float)):
            return torch.ops.zeropoint.stored_compare(q.values(), p.scale, p.zero_point, name, number)
        return operator.Scalar(q.dequantize(), number)

    with_tensor.__name__ = with_number.__name__ = name
    implements(operator.Tensor)(with_tensor)
    implements(operator.Scalar)(with_number)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(_name)
