"""What a qconfig asks for: the dtypes of activations and weights, and when ranges are found."""

from __future__ import annotations

import enum
from typing import Any

import torch


class QuantType(enum.IntEnum):
    """When the ranges of activations are found, if at all."""

    DYNAMIC = 0
    STATIC = 1
    QAT = 2
    WEIGHT_ONLY = 3


def quant_type_to_str(quant_type: QuantType) -> str:
    """Its name in dictionaries.

    Example:
        >>> quant_type_to_str(QuantType.WEIGHT_ONLY)
        'weight_only'
    """
    return quant_type.name.lower()


def quant_type_from_str(name: str) -> QuantType:
    """The one of this name; ValueError if there is none."""
    found = next((kind for kind in QuantType if kind.name.lower() == name), None)
    if found is None:
        known = ", ".join(kind.name.lower() for kind in QuantType)
        raise ValueError(f"unknown quantization type {name!r}; choose from {known}")
    return found


_BYTES = ("quint8", "qint8", "uint8", "int8")
_WORDS = ("qint32", "int32")
_STATIC = (*_BYTES, *_WORDS, "int16", "float16", "float8_e5m2", "float8_e4m3fn")
_WEIGHTS = (*_BYTES, "int16", "int32", "float16", "quint4x2", "float8_e5m2", "float8_e4m3fn")


def _name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def activation_dtype(qconfig: Any) -> Any:
    """The dtype of activations."""
    return torch.float32 if qconfig.activation is None else qconfig.activation().dtype


def weight_dtype(qconfig: Any) -> Any:
    """The dtype of weights."""
    return torch.float32 if qconfig.weight is None else qconfig.weight().dtype


def activation_is_dynamically_quantized(qconfig: Any) -> bool:
    """Whether ranges are found while the model runs."""
    return qconfig.activation is not None and bool(getattr(qconfig.activation(), "is_dynamic", False))


def activation_is_statically_quantized(qconfig: Any) -> bool:
    """Whether ranges are found before the model is converted."""
    return _name(activation_dtype(qconfig)) in _STATIC and not activation_is_dynamically_quantized(qconfig)


def activation_is_int8_quantized(qconfig: Any) -> bool:
    """Whether activations have 8 bits."""
    return _name(activation_dtype(qconfig)) in _BYTES


def activation_is_int32_quantized(qconfig: Any) -> bool:
    """Whether activations have 32 bits."""
    return _name(activation_dtype(qconfig)) in _WORDS


def weight_is_quantized(qconfig: Any) -> bool:
    """Whether weights are not kept in float32."""
    return _name(weight_dtype(qconfig)) in _WEIGHTS


def weight_is_statically_quantized(qconfig: Any) -> bool:
    """Whether weights have 8 bits."""
    return _name(weight_dtype(qconfig)) in _BYTES


def op_is_int8_dynamically_quantized(qconfig: Any) -> bool:
    """Whether unsigned activations, quantized while the model runs, meet signed weights, both of 8 bits."""
    activation, weight, is_dynamic = get_qconfig_dtypes(qconfig)
    return _name(activation) in ("quint8", "uint8") and _name(weight) in ("qint8", "int8") and is_dynamic


def get_qconfig_dtypes(qconfig: Any) -> tuple[Any, Any, bool]:
    """The dtypes of activations and weights, and whether the former are quantized while the model runs."""
    return activation_dtype(qconfig), weight_dtype(qconfig), activation_is_dynamically_quantized(qconfig)


def get_quant_type(qconfig: Any) -> QuantType:
    """What kind of quantization a qconfig asks for; ValueError if none."""
    if activation_is_dynamically_quantized(qconfig):
        return QuantType.DYNAMIC
    if _name(activation_dtype(qconfig)) in _STATIC:
        return QuantType.STATIC
    if weight_is_quantized(qconfig):
        return QuantType.WEIGHT_ONLY
    raise ValueError(f"{qconfig} must quantize activations or weights")
