"""Names of eager mode that torch.ao has for itself, and that other code took from it nevertheless."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from zeropoint.compat.fx.modules import is_activation_post_process
from zeropoint.compat.old_functions import check_min_max_valid
from zeropoint.eager.convert import convert
from zeropoint.eager.hooks import is_ours
from zeropoint.eager.mappings import fixed_fake_quants, get_default_qconfig_propagation_list
from zeropoint.eager.prepare import _hook, _observe, _pre_hook, _watch
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.numerics.qparams import qparams_from_range
from zeropoint.numerics.schemes import qscheme as scheme_of
from zeropoint.operators import layer_records, modules_of
from zeropoint.qconfig_propagation import propagate_qconfig_

# ----------------------------------------------------------------------------------------------------------- observers


def _is_per_channel_script_obs_instance(module: Any) -> bool:
    """Whether a scripted module was an observer with a scale for every channel."""
    name = getattr(module, "original_name", "")
    return isinstance(module, torch.jit.RecursiveScriptModule) and "PerChannelMinMaxObserver" in name


def _is_fake_quant_script_module(module: Any) -> bool:
    """Whether a scripted module was one of fake quantization."""
    name = getattr(module, "original_name", "")
    return isinstance(module, torch.jit.RecursiveScriptModule) and name.endswith("FakeQuantize")


def _is_symmetric_quant(qscheme: Any) -> bool:
    """Whether zero is in the middle."""
    return scheme_of(qscheme).symmetric


def _with_args(cls_or_self: Any, *args: Any, **kwargs: Any) -> Any:
    """`cls_or_self` with some arguments given: what ``with_args`` of a class does."""
    return cls_or_self.with_args(*args, **kwargs)


def _with_callable_args(cls_or_self: Any, *args: Any, **kwargs: Any) -> Any:
    """As `_with_args`, for arguments that are made when the object is."""
    return cls_or_self.with_callable_args(*args, **kwargs)


def _register_activation_post_process_hook(module: nn.Module, pre_hook: bool = False) -> Any:
    """Let the observer of a module watch what it gets, or what it gives."""
    if pre_hook:
        return module.register_forward_pre_hook(_pre_hook, prepend=True)
    return module.register_forward_hook(_hook, prepend=True)


def _add_observer_(
    module: nn.Module,
    qconfig_propagation_list: Iterable[type] | None = None,
    non_leaf_module_list: Iterable[type] | None = None,
    device: Any = None,
    custom_module_class_mapping: Mapping[type, Any] | None = None,
) -> None:
    """Observers for the modules inside `module` that have a qconfig."""
    listed = qconfig_propagation_list
    types = get_default_qconfig_propagation_list() if listed is None else set(listed)
    custom = custom_module_class_mapping or {}
    _observe(module, types, set(non_leaf_module_list or ()), custom, device)
    _watch(module, set(custom.values()))


def _get_special_act_post_process(module: nn.Module) -> Any:
    """The fake quantization for a module whose results lie in a known interval, or None."""
    return fixed_fake_quants().get(type_before_parametrizations(module))


def _has_special_act_post_process(module: nn.Module) -> bool:
    """Whether results of a module in training lie in a known interval."""
    return module.training and type_before_parametrizations(module) in fixed_fake_quants()


# ------------------------------------------------------------------------------------------------ qconfigs, converting


def _propagate_qconfig_helper(
    module: nn.Module,
    qconfig_dict: Any,
    qconfig_parent: Any = None,
    prefix: str = "",
    prepare_custom_config_dict: Mapping[str, Any] | None = None,
) -> None:
    """`propagate_qconfig_`, with the qconfig of the parent for what has none."""
    if qconfig_parent is not None and not hasattr(module, "qconfig"):
        qconfig_dict = {"": qconfig_parent, **(qconfig_dict or {})}
    propagate_qconfig_(module, qconfig_dict, prepare_custom_config_dict)


def _assert_valid_qconfig(qconfig: Any, mod: nn.Module) -> None:
    """Refuse weights with a scale for every channel in transposed convolutions of 2 and 3 dimensions."""
    if qconfig is None or not isinstance(mod, modules_of(layer_records(transposed=True))):
        return
    if getattr(qconfig, "weight", None) is not None and scheme_of(qconfig.weight().qscheme).per_channel:
        raise AssertionError(f"{type(mod).__name__} takes weights with one scale, and this qconfig has one per channel")


def _remove_qconfig(module: nn.Module) -> None:
    """Take the qconfigs of a model away."""
    for part in module.modules():
        vars(part).pop("qconfig", None)


def _remove_activation_post_process(module: nn.Module) -> None:
    """Take the observer of one module away, with its hooks."""
    if is_activation_post_process(module._modules.get("activation_post_process")):
        del module._modules["activation_post_process"]
    for hooks in (module._forward_hooks, module._forward_pre_hooks):
        for key in [k for k, hook in hooks.items() if is_ours(hook)]:
            del hooks[key]


def _get_unique_devices_(module: nn.Module) -> set[torch.device]:
    """The devices of the tensors of a module."""
    return {t.device for t in (*module.parameters(), *module.buffers()) if t.device.type != "meta"}


def _convert(
    module: nn.Module,
    mapping: Mapping[type, Any] | None = None,
    inplace: bool = False,
    is_reference: bool = False,
    convert_custom_config_dict: Mapping[str, Any] | None = None,
    use_precomputed_fake_quant: bool = False,
) -> nn.Module:
    """`convert`, with qconfigs and observers left in."""
    return convert(
        module, mapping, inplace, False, is_reference, convert_custom_config_dict, use_precomputed_fake_quant
    )


# ---------------------------------------------------------------------------------------------------------- parameters


def determine_qparams(
    min_val: Tensor,
    max_val: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    eps: Tensor,
    has_customized_qrange: bool,
    qscheme: Any = "per_tensor_affine",
) -> tuple[Tensor, Tensor]:
    """Scales in float64 and zero points in int64 for ranges; 1 and 0 where there is none.

    Example:
        >>> determine_qparams(torch.tensor(-1.0), torch.tensor(1.5), 0, 255, "quint8", torch.tensor(1e-9), False)[1]
        tensor([102])
    """
    if not check_min_max_valid(min_val, max_val):
        return torch.tensor([1.0]), torch.tensor([0])
    middle = (quant_min + quant_max) // 2 if has_customized_qrange else 128
    unsigned = not quantized_dtype(dtype).signed
    scale, zero_point = qparams_from_range(
        min_val, max_val, quant_min, quant_max, eps=eps, scheme=scheme_of(qscheme),
        symmetric_zero_point=middle if unsigned else 0,
    )  # fmt: skip
    return scale.reshape(-1).to(torch.float64), zero_point.reshape(-1).to(torch.int64)


# -------------------------------------------------------------------------------------------------------------- modules


def _get_module(model: nn.Module, submodule_key: str) -> nn.Module:
    """The module at a path."""
    return model.get_submodule(submodule_key)


def _set_module(model: nn.Module, submodule_key: str, module: nn.Module) -> None:
    """Put a module at a path."""
    parent, _, name = submodule_key.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def get_param(module: nn.Module, attr: str) -> Any:
    """A weight or bias, which float modules have as an attribute and quantized ones give by a method."""
    value = getattr(module, attr, None)
    return value() if callable(value) else value


def parent_child_names(name: str) -> tuple[str, str]:
    """A path as that of the parent, and the last name.

    Example:
        >>> parent_child_names("a.b.c"), parent_child_names("a")
        (('a.b', 'c'), ('', 'a'))
    """
    parent, _, child = name.rpartition(".")
    return parent, child


def _ntuple_from_first(n: int) -> Callable[[Any], Any]:
    """A function that repeats the first of what it is given, or what it is given, `n` times."""

    def parse(x: Any) -> Any:
        first = x[0] if isinstance(x, (tuple, list)) else x
        return tuple([first] * n)

    return parse


_pair_from_first = _ntuple_from_first(2)


def _reverse_repeat_padding(padding: list[int]) -> list[int]:
    """The padding of a convolution as torch.nn.functional.pad takes it: last axis first, both sides.

    Example:
        >>> _reverse_repeat_padding([1, 2])
        [2, 2, 1, 1]
    """
    return [size for size in reversed(padding) for _ in range(2)]


def _hide_packed_params_repr(self: Any, params: Any) -> str:
    """``extra_repr``, and the modules inside but packed weights."""
    kept = [f"({name}): {module!r}" for name, module in self._modules.items() if not isinstance(module, params)]
    parts = [line for line in (self.extra_repr(), *kept) if line]
    return f"{self._get_name()}({', '.join(parts)})"
