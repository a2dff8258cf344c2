"""Weights of reference layers, quantized and dequantized by functions that torch.ao has for itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.nn.quantized.reference.weight import rounded
from zeropoint.numerics.dtypes import QuantizedDtype
from zeropoint.numerics.schemes import qscheme as scheme_of
from zeropoint.observers.base import any_dtype, integer_range
from zeropoint.tensor.create import quantize_per_channel, quantize_per_tensor


def _quantize_and_dequantize_weight_decomposed(
    weight: Tensor,
    weight_qscheme: Any,
    weight_dtype: Any,
    weight_scale: Tensor,
    weight_zero_point: Tensor,
    weight_axis_int: int,
    weight_quant_min: int | None,
    weight_quant_max: int | None,
) -> Tensor:
    """A weight rounded to integers of the range and back, by the operators of graphs.

    Example:
        >>> scale, zero = torch.tensor([0.5]), torch.tensor([0])
        >>> w = torch.tensor([0.3, 9.0])
        >>> _quantize_and_dequantize_weight_decomposed(w, "per_tensor_affine", "qint8", scale, zero, 0, -8, 7).tolist()
        [0.5, 3.5]
    """
    dtype = any_dtype(weight_dtype)
    low, high = integer_range(dtype)
    return rounded(
        weight, weight_scale, weight_zero_point, weight_axis_int, 1.0, 0, scheme_of(weight_qscheme).per_channel,
        decomposed=True, low=low if weight_quant_min is None else weight_quant_min,
        high=high if weight_quant_max is None else weight_quant_max,
        dtype=dtype.torch_storage if isinstance(dtype, QuantizedDtype) else dtype,
    )  # fmt: skip


def _quantize_weight(
    weight: Tensor,
    weight_qscheme: Any,
    weight_dtype: Any,
    weight_scale: Tensor,
    weight_zero_point: Tensor,
    weight_axis_int: int,
) -> Tensor:
    """A weight as a quantized tensor, or in float16."""
    if weight_dtype == torch.float16:
        return weight.to(weight_dtype)
    dtype: Any = any_dtype(weight_dtype)
    if scheme_of(weight_qscheme).per_channel:
        return quantize_per_channel(weight, weight_scale, weight_zero_point, weight_axis_int, dtype)
    return quantize_per_tensor(weight, float(weight_scale), int(weight_zero_point), dtype)


def _quantize_and_dequantize_weight(*args: Any) -> Tensor:
    """A weight as `_quantize_weight` gives it, in floats again."""
    return _quantize_weight(*args).dequantize()
