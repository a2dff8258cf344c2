"""Reference modules in graphs: with the operators that old passes over graphs look for."""

from __future__ import annotations

import torch
from torch import Tensor

from zeropoint.compat.changes import Changes
from zeropoint.nn.quantized.reference import rnn, weight

_rounded = weight.rounded


def rounded(
    w: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    scale: float,
    zero_point: int,
    per_channel: bool,
    decomposed: bool,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> Tensor:
    """As `zeropoint.nn.quantized.reference.weight.rounded`; decomposed with torch.ops.quantized_decomposed."""
    if torch.jit.is_scripting():
        return _rounded(
            w, scales, zero_points, axis, scale, zero_point, per_channel, decomposed, low, high, dtype
        )  # fmt: skip
    else:
        operators = torch.ops.quantized_decomposed
        if not decomposed or dtype.is_floating_point:
            return _rounded(
                w, scales, zero_points, axis, scale, zero_point, per_channel, decomposed, low, high, dtype
            )  # fmt: skip
        if per_channel:
            q = operators.quantize_per_channel(w, scales, zero_points, axis, low, high, dtype)
            return operators.dequantize_per_channel(q, scales, zero_points, axis, low, high, dtype)
        q = operators.quantize_per_tensor(w, scales, zero_points, low, high, dtype)
        return operators.dequantize_per_tensor(q, scales, zero_points, low, high, dtype)


def replace_reference_operators(changes: Changes) -> None:
    """Let reference modules call `rounded` of this module."""
    for module in (weight, rnn):
        changes.attribute(module, "rounded", rounded)
