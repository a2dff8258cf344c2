"""Old names that zeropoint has no use for itself, in a few lines each."""

from __future__ import annotations

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
        raise ValueError(f"quant_min and quant_max must include 0, got [{quant_min}, {quant_max}]")
    if quant_min >= quant_max:
        raise ValueError(f"quant_min must be below quant_max, got [{quant_min}, {quant_max}]")


def check_min_max_valid(min_val: Tensor, max_val: Tensor) -> bool:
    """Whether an observer has seen something; warns if not."""
    if min_val.numel() == 0 or max_val.numel() == 0 or torch.isinf(min_val).any() or torch.isinf(max_val).any():
        warnings.warn("the observer saw no data: run the model on some data first", stacklevel=2)
        return False
    if not bool((min_val <= max_val).all()):
        raise ValueError(f"min must not be above max, got {min_val} and {max_val}")
    return True


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
