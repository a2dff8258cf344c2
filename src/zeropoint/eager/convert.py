"""Swapping modules for their quantized forms."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from zeropoint.eager.hooks import is_ours, move_hooks
from zeropoint.eager.left_in_float import warn_if_float
from zeropoint.eager.mappings import (
    get_default_custom_config_dict,
    get_default_static_quant_module_mappings,
    get_default_static_quant_reference_module_mappings,
    no_observer_set,
)
from zeropoint.nn.intrinsic import FusedModule
from zeropoint.nn.quantized import FloatFunctional


def convert(
    module: nn.Module,
    mapping: Mapping[type, Any] | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: Mapping[str, Any] | None = None,
    use_precomputed_fake_quant: bool = False,
) -> nn.Module:
    """Replace every calibrated or trained module by its quantized version.

    Args:
        mapping: float module -> quantized module, instead of the default one; its classes have `from_float`.
        inplace: change `module` instead of a copy.
        remove_qconfig: remove qconfigs, observers and their hooks.
        is_reference: replace by reference modules.
        convert_custom_config_dict: its "observed_to_quantized_custom_module_class" maps observed modules to the
            classes whose `from_observed` converts them; instead of the default one.

    Example:
        >>> import torch, zeropoint
        >>> model = zeropoint.QuantWrapper(nn.Linear(2, 2)).eval()
        >>> model.qconfig = zeropoint.default_qconfig
        >>> prepared = zeropoint.prepare(model)
        >>> _ = prepared(torch.randn(8, 2))
        >>> type(convert(prepared).module)
        <class 'zeropoint.nn.quantized.linear.Linear'>
    """
    made = converted(
        module, mapping, inplace, remove_qconfig, is_reference, convert_custom_config_dict, use_precomputed_fake_quant
    )
    if remove_qconfig and not is_reference:  # else it is a step on the way
        warn_if_float("convert", made, {*(mapping or {}).values(), *_classes(convert_custom_config_dict)})
    return made


def _classes(convert_custom_config_dict: Mapping[str, Any] | None) -> Iterable[type]:
    custom = get_default_custom_config_dict() if convert_custom_config_dict is None else convert_custom_config_dict
    return custom.get("observed_to_quantized_custom_module_class", {}).values()


def converted(
    module: nn.Module,
    mapping: Mapping[type, Any] | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: Mapping[str, Any] | None = None,
    use_precomputed_fake_quant: bool = False,
) -> nn.Module:
    """`convert`, without a word about models in which it finds nothing to do."""
    if not inplace:
        module = copy.deepcopy(module)
    if mapping is None:
        mapping = (
            get_default_static_quant_reference_module_mappings()
            if is_reference
            else get_default_static_quant_module_mappings()
        )
    if convert_custom_config_dict is None:
        convert_custom_config_dict = get_default_custom_config_dict()
    custom = convert_custom_config_dict.get("observed_to_quantized_custom_module_class", {})
    _convert(module, mapping, custom, is_reference, use_precomputed_fake_quant)
    if remove_qconfig:
        remove_observers(module)
    return module


def _convert(
    module: nn.Module, mapping: Mapping[type, Any], custom: Mapping[type, Any], is_reference: bool, precomputed: bool
) -> None:
    swapped = {}
    for name, child in module.named_children():
        kind = type_before_parametrizations(child)
        # A reference has no fused layers: those are taken apart.
        whole = isinstance(child, FusedModule) and not is_reference
        if not whole and kind not in custom and kind not in mapping:
            _convert(child, mapping, custom, is_reference, precomputed)
        swapped[name] = swap_module(child, mapping, custom, precomputed)
    for name, child in swapped.items():
        module._modules[name] = child


def swap_module(
    mod: nn.Module,
    mapping: Mapping[type, Any],
    custom_module_class_mapping: Mapping[type, Any] | None = None,
    use_precomputed_fake_quant: bool = False,
) -> nn.Module:
    """The quantized form of `mod` if it has a qconfig and an entry in `mapping`, else `mod` itself.

    Hooks that are not observers move along.

    Example:
        >>> swap_module(nn.ReLU(), {})
        ReLU()
    """
    if getattr(mod, "qconfig", None) is None:
        return mod
    kind = type_before_parametrizations(mod)
    custom = custom_module_class_mapping or {}
    if kind in custom:
        new = custom[kind].from_observed(mod)
    elif kind in mapping:
        options = {"use_precomputed_fake_quant": True} if use_precomputed_fake_quant else {}
        new = mapping[kind].from_float(mod, **options)
    else:
        return mod
    move_hooks(mod, mod, new)
    devices = {t.device for t in (*mod.parameters(), *mod.buffers())}
    if len(devices) == 1:
        new.to(next(iter(devices)))
    return new


def remove_observers(model: nn.Module) -> None:
    """Take qconfigs, observers and their hooks away."""
    for module in model.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            for key in [k for k, hook in hooks.items() if is_ours(hook)]:
                hooks.pop(key)
                for flags in ("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs"):
                    getattr(module, flags, {}).pop(key, None)
        module.__dict__.pop("qconfig", None)
        post_process = module._modules.get("activation_post_process")
        if isinstance(module, FloatFunctional):  # it stayed float, and calls what is there
            module.activation_post_process = nn.Identity()
        elif post_process is not None and type(module) not in no_observer_set():
            del module._modules["activation_post_process"]
