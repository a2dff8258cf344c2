"""Largest, smallest and sorted elements. One scale for all, so the integers have the order of the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from zeropoint.tensor.elementwise import per_tensor_only
from zeropoint.tensor.qtensor import QTensor, implements

aten = torch.ops.aten


def _of_integers(operator: Any, *, indexed: bool) -> None:
    """Implement an operator by itself on the integers; `indexed` ones answer (values, indices)."""
    name = str(operator).removeprefix("aten.")

    def picked(q: QTensor, *arguments: Any, **kwargs: Any) -> Any:
        per_tensor_only(name, q)
        result = operator(q.values(), *arguments, **kwargs)
        return (q.with_values(result[0]), result[1]) if indexed else q.with_values(result)

    picked.__name__ = name
    implements(operator)(picked)


def _index(operator: Any) -> None:
    """Implement an operator that answers with indices only."""
    name = str(operator).removeprefix("aten.")

    def found(q: QTensor, *arguments: Any, **kwargs: Any) -> torch.Tensor:
        per_tensor_only(name, q)
        return operator(q.values(), *arguments, **kwargs)

    found.__name__ = name
    implements(operator)(found)


@implements(aten.std.correction)
def std(
    q: QTensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> QTensor:
    """The standard deviation of the values, quantized as they are."""
    per_tensor_only("std", q)
    values = aten.std.correction(q.dequantize(), dim, correction=correction, keepdim=keepdim)
    return q.with_values(q._quantizer.quantize(values, q._qdtype))


_of_integers(aten.max.default, indexed=False)
_of_integers(aten.min.default, indexed=False)
_of_integers(aten.max.dim, indexed=True)
_of_integers(aten.min.dim, indexed=True)
_of_integers(aten.sort.default, indexed=True)  # msort and argsort are made of these two
_of_integers(aten.sort.stable, indexed=True)
_of_integers(aten.topk.default, indexed=True)
_index(aten.argmax.default)
_index(aten.argmin.default)
