"""How far two results are apart, quantized or not; of results in several parts, a list of answers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zeropoint.tensor.create import dequantize
from zeropoint.tensor.qtensor import QTensor


def _of_floats(measure: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Any]:
    @functools.wraps(measure)
    def measured(x: Any, y: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return [measured(a, b) for a, b in zip(x, y, strict=True)]
        a, b = (dequantize(t) if isinstance(t, QTensor) else t for t in (x, y))
        return measure(a.float(), b.float())

    return measured


@_of_floats
def compute_sqnr(x: Tensor, y: Tensor) -> Tensor:
    """Signal to quantization noise in decibels, ``20 log10(|x| / |x - y|)``.

    Example:
        >>> compute_sqnr(torch.tensor([10.0]), torch.tensor([9.0]))
        tensor(20.)
    """
    return 20 * torch.log10(torch.linalg.vector_norm(x) / torch.linalg.vector_norm(x - y))


@_of_floats
def compute_normalized_l2_error(x: Tensor, y: Tensor) -> Tensor:
    """``|x - y| / |x|``

    Example:
        >>> compute_normalized_l2_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.0]))
        tensor(0.2000)
    """
    return torch.sqrt((x - y).square().sum() / x.square().sum())


@_of_floats
def compute_cosine_similarity(x: Tensor, y: Tensor) -> Tensor:
    """The cosine of the angle between both, all values as one vector."""
    return torch.nn.functional.cosine_similarity(x.reshape(1, -1), y.reshape(1, -1))
