"""Observers and fake quantization into a model."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import type_before_parametrizations

from zeropoint.eager.convert import converted
from zeropoint.eager.mappings import (
    fixed_fake_quants,
    get_default_custom_config_dict,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    no_observer_set,
)
from zeropoint.nn.intrinsic import FusedModule
from zeropoint.nn.quantized import FloatFunctional
from zeropoint.nn.simulated_tensor import SimulatedTensor, channels_last, has_standing, observed, plain
from zeropoint.nn.stubs import DeQuantStub, QuantStub, QuantWrapper
from zeropoint.operators import module_forms
from zeropoint.qconfig import activation_is_memoryless
from zeropoint.qconfig_propagation import propagate_qconfig_


def prepare(
    model: nn.Module,
    inplace: bool = False,
    allow_list: Iterable[type] | None = None,
    observer_non_leaf_module_list: Iterable[type] | None = None,
    prepare_custom_config_dict: Mapping[str, Any] | None = None,
    example_inputs: Any = None,
) -> nn.Module:
    """Attach observers to the outputs of every module that has a qconfig, for calibration.

    Args:
        model: a module with a `qconfig`, or with modules that have one.
        inplace: change `model` instead of a copy.
        allow_list: types of modules to observe, instead of the default ones.
        observer_non_leaf_module_list: types of modules to observe although they contain other modules.
        prepare_custom_config_dict: see `get_default_custom_config_dict`.
        example_inputs: a tuple of positional arguments. If given, the model runs once, and errors that would occur in
            the quantized model are raised now instead of during calibration.

    Raises:
        ValueError: with `example_inputs`, if a layer to be quantized receives floats because a QuantStub is missing.
        NotImplementedError: if a function does not support the quantized tensors that it would receive.

    Example:
        >>> import zeropoint
        >>> model = QuantWrapper(nn.Linear(2, 2)).eval()
        >>> model.qconfig = zeropoint.default_qconfig
        >>> prepared = prepare(model)
        >>> prepared.module.activation_post_process
        MinMaxObserver(min_val=inf, max_val=-inf)
    """
    custom = get_default_custom_config_dict() if prepare_custom_config_dict is None else prepare_custom_config_dict
    float_to_observed = custom.get("float_to_observed_custom_module_class", {})
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model, None, custom)
    if not any(getattr(m, "qconfig", None) for m in model.modules()):
        warnings.warn(
            "prepare: no module has a qconfig, so nothing will be quantized: set model.qconfig, or that of the parts to"
            " quantize",
            stacklevel=2,
        )
    observed_types = get_default_qconfig_propagation_list() if allow_list is None else set(allow_list)
    _observe(model, observed_types, set(observer_non_leaf_module_list or ()), float_to_observed)
    _watch(model, set(float_to_observed.values()))
    if example_inputs is not None:
        _check(model, example_inputs)
    return model


def prepare_qat(
    model: nn.Module, mapping: Mapping[type, Any] | None = None, inplace: bool = False, example_inputs: Any = None
) -> nn.Module:
    """Prepare a model for quantization-aware training: layers round like the quantized ones.

    Args:
        model: a module in training mode with a `qconfig`, or with modules that have one; fused with `fuse_modules_qat`.
        mapping: float module -> QAT module, instead of the default one.
        inplace: change `model` instead of a copy.
        example_inputs: as for `prepare`.

    Example:
        >>> import zeropoint
        >>> model = QuantWrapper(nn.Linear(2, 2)).train()
        >>> model.qconfig = zeropoint.default_qat_qconfig
        >>> type(prepare_qat(model).module)
        <class 'zeropoint.nn.qat.linear.Linear'>
    """
    if not model.training:
        raise ValueError("prepare_qat: the model must be in training mode: call model.train() first")
    mapping = get_default_qat_module_mappings() if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model, None)
    converted(model, mapping=mapping, inplace=True, remove_qconfig=False, convert_custom_config_dict={})
    return prepare(
        model,
        inplace=True,
        allow_list=None,
        observer_non_leaf_module_list=set(mapping.values()),
        example_inputs=example_inputs,
    )


def add_quant_dequant(module: nn.Module) -> nn.Module:
    """`module` with every leaf that has a qconfig in a `QuantWrapper`.

    Example:
        >>> import zeropoint
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> model[0].qconfig = zeropoint.default_qconfig
        >>> type(add_quant_dequant(model)[0]).__name__
        'QuantWrapper'
    """
    if not list(module.children()) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        module._modules[name] = add_quant_dequant(child)
    return module


# ------------------------------------------------------------------------------------------------------ observers


def _device(module: nn.Module) -> torch.device | None:
    devices = {t.device for t in (*module.parameters(), *module.buffers())}
    if len(devices) > 1:
        raise ValueError(f"prepare: {type(module).__name__} must be on one device, got {sorted(map(str, devices))}")
    return next(iter(devices), None)


def _post_process(module: nn.Module, device: torch.device | None, fixed: Any = None) -> nn.Module:
    qconfig: Any = module.qconfig
    made = qconfig.activation() if fixed is None else fixed()
    return made if device is None else made.to(device)


def _hook(module: Any, args: Any, output: Any) -> Any:
    result = observed(module.activation_post_process, output)
    is_convolution = isinstance(module[0] if isinstance(module, FusedModule) else module, _ConvNd)
    return channels_last(result) if is_convolution else result


def _pre_hook(module: Any, args: Any) -> Any:
    first, *rest = args
    return (plain(observed(module.activation_post_process, first)), *rest)  # dynamic: it will be called with floats


def _add_observer(module: nn.Module, device: torch.device | None, fixed: Any = None) -> None:
    if getattr(module, "qconfig", None) is None or isinstance(module, DeQuantStub):
        return
    module.add_module("activation_post_process", _post_process(module, device, fixed))
    if activation_is_memoryless(module.qconfig):
        module.register_forward_pre_hook(_pre_hook, prepend=True)
    else:
        module.register_forward_hook(_hook, prepend=True)


def _observe(
    module: nn.Module, types: set[type], non_leaf: set[type], custom: Mapping[type, Any], device: Any = None
) -> None:
    """Observers for the modules inside `module`, and for itself if it is a leaf."""
    device = device or _device(module)
    for name, child in module.named_children():
        kind = type_before_parametrizations(child)
        if kind is nn.Dropout:
            continue
        here = _device(child) or device
        if isinstance(child, FloatFunctional):
            if getattr(child, "qconfig", None) is not None:
                child.activation_post_process = _post_process(child, here)
        elif isinstance(child, FusedModule) or kind in non_leaf:
            _add_observer(child, here)
        elif getattr(child, "qconfig", None) is not None and kind in custom:
            observed_child = custom[kind].from_float(child)
            _part_of_a_model(observed_child)
            setattr(module, name, observed_child)
            if not issubclass(custom[kind], tuple(no_observer_set())):
                _add_observer(observed_child, here)
        else:
            _observe(child, types, non_leaf, custom, here)
    is_leaf = not any(name != "parametrizations" for name, _ in module.named_children())
    fixed = fixed_fake_quants_for(module)
    is_observed = fixed is not None or type_before_parametrizations(module) in types
    if is_leaf and is_observed and not isinstance(module, nn.Sequential):
        _add_observer(module, device, fixed)


def fixed_fake_quants_for(module: nn.Module) -> Any:
    """What rounds the results of `module` in training, if they lie in a known interval; None if they are observed."""
    return fixed_fake_quants().get(type_before_parametrizations(module)) if module.training else None


# ------------------------------------------------------------------------------------------- what would fail later


def _watch(model: nn.Module, custom: set[type]) -> None:
    """Modules whose results will be quantized anew see plain tensors, and so does whoever calls the model.

    So do `custom` modules, unless they were prepared inside, where their parts are. Layers in training take the marks
    off themselves.
    """
    swapped = {f.module for op, f in module_forms() if f.static is not None and not op.keeps_scale}
    whole = custom - no_observer_set()

    def watch(parent: nn.Module) -> None:
        for module in parent.children():
            kind = type_before_parametrizations(module)
            has_qconfig = getattr(module, "qconfig", None) is not None
            if kind in whole and any(_is_watched(m) for m in module.modules()):
                continue
            if has_qconfig and (kind in swapped or kind in whole or isinstance(module, FusedModule)):
                if not _is_watched(module):
                    module.register_forward_pre_hook(_plain_inputs, with_kwargs=True)
            else:
                watch(module)

    watch(model)
    model.register_forward_hook(_plain_output)


def _is_watched(module: nn.Module) -> bool:
    return getattr(module, "_TAKES_STANDING", False) or _plain_inputs in module._forward_pre_hooks.values()


def _part_of_a_model(observed: nn.Module) -> None:
    """A custom module that was prepared by itself hands on what it makes as it is."""
    for key in [k for k, hook in observed._forward_hooks.items() if hook is _plain_output]:
        del observed._forward_hooks[key]


def _plain_inputs(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return plain(args), plain(kwargs)


def _gets_floats(module: nn.Module, args: Any, kwargs: Any) -> bool:
    """Whether a module that would be quantized is called with floats that stand for nothing quantized."""
    first = next(iter((*args, *kwargs.values())), None)
    is_float = isinstance(first, torch.Tensor) and first.is_floating_point() and not isinstance(first, SimulatedTensor)
    return is_float and not isinstance(module, (QuantStub, DeQuantStub))


def _plain_output(module: nn.Module, args: Any, output: Any) -> Any:
    return plain(output)


def _check(model: nn.Module, example_inputs: Any) -> None:
    inputs = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    trial = copy.deepcopy(model)
    for module in trial.modules():
        if getattr(module, "_TAKES_STANDING", False) and getattr(module, "qconfig", None) is not None:
            module.register_forward_pre_hook(_plain_inputs, with_kwargs=True)
    missing: list[nn.Module] = []

    def note(module: nn.Module, args: Any, kwargs: Any) -> None:
        if _gets_floats(module, args, kwargs):
            missing.append(module)

    for module in trial.modules():
        if _plain_inputs in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(note, with_kwargs=True, prepend=True)
    with torch.no_grad():
        _part_of_a_model(trial)
        output = trial(*inputs)
    if missing:
        names = {m: name or "the model" for name, m in trial.named_modules()}
        listed = ", ".join(f"{names[m]} ({type(m).__name__})" for m in dict.fromkeys(missing))
        raise ValueError(
            f"these modules would be quantized but get float tensors: {listed}. Put a QuantStub before the first "
            "of them (or wrap the model in a QuantWrapper), or set their qconfig to None."
        )
    if has_standing(output):
        warnings.warn(
            "prepare: the converted model will return quantized tensors; to return floats, put a DeQuantStub at "
            "the end",
            stacklevel=3,
        )
