"""Names of TorchScript mode that torch.ao has for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from zeropoint.compat.fx.qconfig_dtypes import QuantType
from zeropoint.graph import quantize_jit as script_mode


def _check_is_script_module(model: Any) -> None:
    """Refuse what is not scripted."""
    if not isinstance(model, torch.jit.ScriptModule):
        raise ValueError(f"a scripted module is needed, got {type(model).__name__}: call torch.jit.script first")


def _check_forward_method(model: Any) -> None:
    """Refuse a scripted module without `forward`."""
    if not model._c._has_method("forward"):
        raise ValueError("the scripted module must have a forward method")


def _prepare_jit(
    model: Any, qconfig_dict: Mapping[str, Any], inplace: bool = False, quant_type: int = QuantType.STATIC
) -> Any:
    """`prepare_jit`, or `prepare_dynamic_jit` for that kind of quantization."""
    dynamic = quant_type == QuantType.DYNAMIC
    return (script_mode.prepare_dynamic_jit if dynamic else script_mode.prepare_jit)(model, qconfig_dict, inplace)


def _convert_jit(
    model: Any,
    inplace: bool = False,
    debug: bool = False,
    quant_type: int = QuantType.STATIC,
    preserved_attrs: Any = None,
) -> Any:
    """`convert_jit`, or `convert_dynamic_jit` for that kind of quantization."""
    dynamic = quant_type == QuantType.DYNAMIC
    convert = script_mode.convert_dynamic_jit if dynamic else script_mode.convert_jit
    return convert(model, inplace, debug, preserved_attrs)


def _quantize_jit(
    model: Any,
    qconfig_dict: Mapping[str, Any],
    run_fn: Callable[..., Any] | None = None,
    run_args: Any = None,
    inplace: bool = False,
    debug: bool = False,
    quant_type: int = QuantType.STATIC,
) -> Any:
    """`quantize_jit`, or `quantize_dynamic_jit` for that kind of quantization."""
    if quant_type == QuantType.DYNAMIC:
        return script_mode.quantize_dynamic_jit(model, qconfig_dict, inplace, debug)
    if run_fn is None or not run_args:
        raise ValueError("static quantization needs data: pass run_fn, and run_args to call it with")
    return script_mode.quantize_jit(model, qconfig_dict, run_fn, run_args, inplace, debug)
