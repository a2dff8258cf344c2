"""Whole workflows in one call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from zeropoint.described import described
from zeropoint.eager.convert import converted
from zeropoint.eager.left_in_float import warn_if_float
from zeropoint.eager.mappings import get_default_dynamic_quant_module_mappings
from zeropoint.eager.prepare import prepare, prepare_qat
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.operators import embedding, modules_of, recurrent
from zeropoint.qconfig import (
    QConfig,
    QConfigDynamic,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
)
from zeropoint.qconfig_propagation import propagate_qconfig_

_RNNS = modules_of(recurrent.RECORDS, "dynamic")


def quantize(
    model: nn.Module,
    run_fn: Callable[..., Any],
    run_args: Iterable[Any],
    mapping: Mapping[type, Any] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """Prepare, calibrate with ``run_fn(model, *run_args)``, and convert.

    Example:
        >>> import zeropoint
        >>> model = zeropoint.QuantWrapper(nn.Linear(2, 2))
        >>> model.qconfig = zeropoint.default_qconfig
        >>> type(quantize(model, lambda m, x: m(x), [torch.randn(8, 2)]).module)
        <class 'zeropoint.nn.quantized.linear.Linear'>
    """
    return _quantized("quantize", model, prepare, False, run_fn, run_args, mapping, inplace)


def quantize_qat(
    model: nn.Module, run_fn: Callable[..., Any], run_args: Iterable[Any], inplace: bool = False
) -> nn.Module:
    """Prepare for training, train with ``run_fn(model, *run_args)``, and convert.

    Example:
        >>> import zeropoint
        >>> model = zeropoint.QuantWrapper(nn.Linear(2, 2))
        >>> model.qconfig = zeropoint.default_qat_qconfig
        >>> type(quantize_qat(model, lambda m, x: m(x), [torch.randn(8, 2)]).module)
        <class 'zeropoint.nn.quantized.linear.Linear'>
    """
    return _quantized("quantize_qat", model, prepare_qat, True, run_fn, run_args, None, inplace)


def _quantized(
    name: str, model: Any, prepared: Any, training: bool, run_fn: Any, run_args: Any, mapping: Any, inplace: bool
) -> nn.Module:
    """The model, prepared by one of two functions, run, and converted; `name` is what the user called."""
    if not inplace:
        model = copy.deepcopy(model)
    prepared(model.train(training), inplace=True)
    run_fn(model, *run_args)
    made = converted(model, mapping, inplace=True)
    warn_if_float(name, made, (mapping or {}).values())
    return made


def quantize_dynamic(
    model: nn.Module,
    qconfig_spec: Any = None,
    dtype: Any = "qint8",
    mapping: Mapping[type, Any] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """Quantize weights ahead of time and activations at run time. Needs no calibration.

    Args:
        qconfig_spec: None for all module types that support `dtype`, a qconfig for them, a set of types or module
            names, or a dictionary from types or names to qconfigs. By default, weights have one scale per tensor, as in
            torch.ao. `per_channel_dynamic_qconfig` uses one per output channel, at no cost in speed; use it for
            transformers.
        dtype: qint8 or float16 for linear and recurrent layers; quint8 or quint4x2 for embeddings.
        mapping: float module -> quantized module, instead of the default one.
        inplace: change `model` instead of a copy.

    Example:
        >>> type(quantize_dynamic(nn.Sequential(nn.Linear(2, 2)))[0])
        <class 'zeropoint.nn.quantized.dynamic.linear.Linear'>
    """
    defaults = _dynamic_defaults(dtype)
    if qconfig_spec is None:
        spec: dict[Any, Any] = defaults
    elif isinstance(qconfig_spec, (QConfig, QConfigDynamic)):
        spec = dict.fromkeys(defaults, qconfig_spec)
    elif isinstance(qconfig_spec, Mapping):
        spec = dict(qconfig_spec)
    elif isinstance(qconfig_spec, (set, frozenset, list, tuple)):
        spec = dict.fromkeys(qconfig_spec, next(iter(defaults.values())))
    else:
        raise TypeError(f"quantize_dynamic: qconfig_spec takes a set of types or names, got {described(qconfig_spec)}")
    wrong = [key for key in spec if not isinstance(key, (str, type))]
    if wrong:
        raise TypeError(f"quantize_dynamic: qconfig_spec takes types and names of modules, got {described(wrong[0])}")
    names = {name for name, _ in model.named_modules()}
    unknown = [key for key in spec if isinstance(key, str) and key not in names]
    if unknown:
        raise ValueError(f"quantize_dynamic: the model has no module {', '.join(map(repr, unknown))}")
    mapping = get_default_dynamic_quant_module_mappings() if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, spec)
    made = converted(model, mapping, inplace=True)
    warn_if_float("quantize_dynamic", made, mapping.values())
    return made


def _dynamic_defaults(dtype: Any) -> dict[Any, Any]:
    if dtype == torch.float16 or str(dtype).endswith("float16"):
        return dict.fromkeys((nn.Linear, *_RNNS), float16_dynamic_qconfig)
    name = quantized_dtype(dtype).name
    if name == "qint8":
        return dict.fromkeys((nn.Linear, *_RNNS), default_dynamic_qconfig)
    if name == "quint8":
        return dict.fromkeys(modules_of(embedding.RECORDS), float_qparams_weight_only_qconfig)
    if name == "quint4x2":
        return {nn.EmbeddingBag: float_qparams_weight_only_qconfig_4bit}
    raise ValueError(f"quantize_dynamic: dtype must be qint8, float16, quint8 or quint4x2, got {dtype}")
