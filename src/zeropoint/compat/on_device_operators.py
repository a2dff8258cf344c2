"""Operators of models that are quantized on the device: overloads of the old names, which programs look for in graphs.

A weight is a list of its integers, scales, zero points and, once packed, its bias: plain tensors, which PyTorch's
interpreter for phones can save.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics.dtypes import quantized_dtype

PLAN = "_zeropoint_on_device"  # an attribute of such models

_SCHEMAS = {
    "aten": (
        "quantize_per_tensor.parts(Tensor input, Tensor scale, Tensor zero_point, str dtype) -> Tensor[]",
        "quantize_per_channel.parts(Tensor input, Tensor scales, Tensor zero_points, int axis, str dtype) -> Tensor[]",
    ),
    "quantized": (
        "linear_prepack.parts(Tensor[] W, Tensor? B=None) -> Tensor[]",
        "linear_dynamic.parts(Tensor X, Tensor[] W_prepack, bool reduce_range=False) -> Tensor",
    ),
}


def _quantize_per_tensor(input: Tensor, scale: Tensor, zero_point: Tensor, dtype: str) -> list[Tensor]:
    return list(_integers(torch.ops.zeropoint.quantize_per_tensor.tensor, input, scale, zero_point, dtype=dtype))


def _quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: str) -> list[Tensor]:
    return list(_integers(torch.ops.zeropoint.quantize_per_channel, input, scales, zero_points, axis, dtype=dtype))


def _integers(quantize: Any, input: Tensor, scale: Tensor, zero_point: Tensor, *axis: int, dtype: str) -> Any:
    kind = quantized_dtype(dtype)
    range_ = kind.qmin, kind.qmax, getattr(torch, kind.storage)
    return quantize(input.detach(), scale, zero_point, *axis, *range_), scale.clone(), zero_point.clone()


def _linear_prepack(W: list[Tensor], B: Tensor | None = None) -> list[Tensor]:
    return [*W] if B is None else [*W, B.detach().clone()]


def _linear_dynamic(X: Tensor, W_prepack: list[Tensor], reduce_range: bool = False) -> Tensor:
    if len(W_prepack) < 3:
        raise RuntimeError("the weights are not quantized yet: call observe_forward and quantize_forward first")
    bias = W_prepack[3] if len(W_prepack) > 3 else None
    return torch.ops.zeropoint.linear_dynamic(X, *W_prepack[:3], bias, reduce_range)


_KERNELS = {
    "quantize_per_tensor": _quantize_per_tensor,
    "quantize_per_channel": _quantize_per_channel,
    "linear_prepack": _linear_prepack,
    "linear_dynamic": _linear_dynamic,
}

# The names of the operators, by namespace.
OPERATORS = {
    namespace: tuple({schema.split(".")[0]: None for schema in listed}) for namespace, listed in _SCHEMAS.items()
}

# For good, as files of such models name them.
_LIBRARIES = {namespace: torch.library.Library(namespace, "FRAGMENT") for namespace in _SCHEMAS}
for _namespace, _listed in _SCHEMAS.items():
    for _schema in _listed:
        _name = _schema.split("(")[0]
        _LIBRARIES[_namespace].define(_schema)
        _LIBRARIES[_namespace].impl(_name, _KERNELS[_name.split(".")[0]], "CompositeImplicitAutograd")
