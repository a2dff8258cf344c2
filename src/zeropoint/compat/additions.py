"""Old names that zeropoint has no use for itself, in a few lines each."""

from __future__ import annotations

import enum
import functools
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.eager import mappings
from zeropoint.graph.frontends.script.observers import script_qconfig
from zeropoint.numerics.dtypes import QuantizedDtype
from zeropoint.numerics.schemes import qscheme as scheme_of
from zeropoint.observers.base import any_dtype, integer_range

DEFAULT_STATIC_QUANT_MODULE_MAPPINGS = mappings.get_default_static_quant_module_mappings()
DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS = mappings.get_default_static_quant_reference_module_mappings()
DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS = mappings.get_default_dynamic_quant_module_mappings()
DEFAULT_QAT_MODULE_MAPPINGS = mappings.get_default_qat_module_mappings()
DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS = mappings.get_default_float_to_quantized_operator_mappings()
DEFAULT_MODULE_TO_ACT_POST_PROCESS = mappings.fixed_fake_quants()


class QuantType(enum.IntEnum):
    """When the ranges of activations are found, if at all."""

    DYNAMIC = 0
    STATIC = 1
    QAT = 2
    WEIGHT_ONLY = 3


def default_eval_fn(model: nn.Module, calib_data: Iterable[tuple[Any, Any]]) -> None:
    """Run the model on the first of each pair."""
    for data, _ in calib_data:
        model(data)


def _get_observer_dict(mod: nn.Module, target_dict: dict[str, Any], prefix: str = "") -> None:
    """Collect the observers in a model, by the path of what they observe."""
    for path, module in mod.named_modules():
        if hasattr(module, "activation_post_process"):
            name = ".".join(filter(None, (prefix, path, "activation_post_process")))
            target_dict[name] = module.activation_post_process


# ---------------------------------------------------------------------------------------------------- about dtypes


def is_per_tensor(qscheme: Any) -> bool:
    """Whether one scale is for the whole tensor."""
    return not scheme_of(qscheme).per_channel


def is_per_channel(qscheme: Any) -> bool:
    """Whether every channel has its scale."""
    return scheme_of(qscheme).per_channel


def to_underlying_dtype(qdtype: Any) -> torch.dtype:
    """The plain integers that a quantized dtype is stored as."""
    dtype = any_dtype(qdtype)
    return dtype.torch_storage if isinstance(dtype, QuantizedDtype) else dtype


def calculate_qmin_qmax(
    quant_min: int, quant_max: int, has_customized_qrange: bool, dtype: Any, reduce_range: bool
) -> tuple[int, int]:
    """The range that is asked for, or that of the dtype, halved for `reduce_range`.

    Example:
        >>> calculate_qmin_qmax(0, 0, False, "qint8", True)
        (-64, 63)
    """
    if has_customized_qrange:
        validate_qmin_qmax(quant_min, quant_max)
    else:
        quant_min, quant_max = integer_range(any_dtype(dtype))
    return (quant_min // 2, quant_max // 2) if reduce_range else (quant_min, quant_max)


def validate_qmin_qmax(quant_min: int, quant_max: int) -> None:
    """Refuse a range without zero, or without a second value."""
    if not quant_min <= 0 <= quant_max:
        raise ValueError(f"the range of integers has to include 0, got [{quant_min}, {quant_max}]")
    if quant_min >= quant_max:
        raise ValueError(f"quant_min has to be below quant_max, got [{quant_min}, {quant_max}]")


def check_min_max_valid(min_val: Tensor, max_val: Tensor) -> bool:
    """Whether an observer has seen something; warns if not."""
    if min_val.numel() == 0 or max_val.numel() == 0 or torch.isinf(min_val).any() or torch.isinf(max_val).any():
        warnings.warn("the observer has seen nothing yet: run the model on some data first", stacklevel=2)
        return False
    if not bool((min_val <= max_val).all()):
        raise ValueError(f"min {min_val} is above max {max_val}")
    return True


# -------------------------------------------------------------------------------------------------- about qconfigs

_BYTES = ("quint8", "qint8", "uint8", "int8")
_WORDS = ("qint32", "int32")
_STATIC = (*_BYTES, *_WORDS, "int16", "float16", "float8_e5m2", "float8_e4m3fn")
_WEIGHTS = (*_BYTES, "int16", "int32", "float16", "quint4x2", "float8_e5m2", "float8_e4m3fn")


def _name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def activation_dtype(qconfig: Any) -> Any:
    """The dtype of activations."""
    return qconfig.activation().dtype


def weight_dtype(qconfig: Any) -> Any:
    """The dtype of weights."""
    return qconfig.weight().dtype


def activation_is_dynamically_quantized(qconfig: Any) -> bool:
    """Whether ranges are found while the model runs."""
    return bool(getattr(qconfig.activation(), "is_dynamic", False))


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
    raise ValueError(f"{qconfig} quantizes neither activations nor weights")


def script_qconfig_dict(qconfig_dict: dict[str, Any]) -> dict[str, Any]:
    """`script_qconfig` of every entry that is not None."""
    return {name: script_qconfig(qconfig) if qconfig else None for name, qconfig in qconfig_dict.items()}


# ---------------------------------------------------------------------------------------------------- about objects


def get_combined_dict(default_dict: dict[Any, Any], additional_dict: dict[Any, Any]) -> dict[Any, Any]:
    """A copy of the first with the entries of the second."""
    return {**default_dict, **additional_dict}


def getattr_from_fqn(obj: Any, fqn: str) -> Any:
    """What a dotted path names in an object."""
    return functools.reduce(getattr, fqn.split("."), obj)


def has_no_children_ignoring_parametrizations(module: nn.Module) -> bool:
    """Whether a module has no submodules but parametrizations."""
    return all(name == "parametrizations" for name in module._modules)
