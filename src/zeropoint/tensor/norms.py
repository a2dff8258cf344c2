"""The one norm that torch itself has for quantized tensors; the others are in `zeropoint.qfunctions`."""

from __future__ import annotations

import torch

from zeropoint.ops.norms import batch_norm
from zeropoint.tensor.pooling import per_tensor, run
from zeropoint.tensor.qtensor import QTensor, implements
from zeropoint.tensor.quantizer import PerTensor

aten = torch.ops.aten


@implements(aten.quantized_batch_norm.default)
def quantized_batch_norm(
    q: QTensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """``torch.quantized_batch_norm``: batch norm with fixed statistics, of the dtype of the input."""
    quantizer = per_tensor("quantized_batch_norm", q)
    if q._qdtype.bits != 8:
        raise TypeError(f"quantized_batch_norm: input must be quint8 or qint8, got {q._qdtype.name}")
    arguments = weight, bias, mean, var, eps, output_scale, output_zero_point
    values = run(batch_norm, q.values(), quantizer.scale, quantizer.zero_point, *arguments)
    return q.with_values(values, PerTensor(output_scale, output_zero_point))
