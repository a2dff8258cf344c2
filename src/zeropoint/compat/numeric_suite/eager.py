"""Comparing a model with what eager mode made of it: module by module, by their paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from zeropoint.compat.numeric_suite.loggers import OutputLogger, ShadowLogger, get_logger_dict
from zeropoint.compat.numeric_suite.shadow import Shadow
from zeropoint.eager.mappings import get_default_compare_output_module_list
from zeropoint.nn import quantized as nnq
from zeropoint.nn.intrinsic import FusedModule
from zeropoint.nn.quantized import dynamic as nnqd
from zeropoint.nn.stubs import DeQuantStub
from zeropoint.qfunctions.recurrent import CellParams

# Modules whose results are logged although there are modules inside them.
NON_LEAF_MODULE_TO_ADD_OBSERVER_ALLOW_LIST = {nnqd.Linear, nnq.Linear, nnqd.LSTM, nn.LSTM}
_FUNCTIONALS = (nnq.FloatFunctional, nnq.QFunctional)

# ------------------------------------------------------------------------------------------------------------- weights


def compare_weights(float_dict: dict[str, Any], quantized_dict: dict[str, Any]) -> dict[str, dict[str, Tensor]]:
    """The weights of a model and of its quantized form, by the key of the quantized one.

    Args:
        float_dict: the state dict of the model; fused layers may be in it.
        quantized_dict: the state dict of its quantized form.

    Returns:
        Key -> ``{"float": weight, "quantized": weight}``; of a recurrent layer, the weight of the hidden state.

    Example:
        >>> import zeropoint
        >>> model = nn.Sequential(nn.Linear(2, 3))
        >>> found = compare_weights(model.state_dict(), zeropoint.quantize_dynamic(model).state_dict())
        >>> {key: pair["quantized"].shape for key, pair in found.items()}
        {'0._packed_params._packed_params': torch.Size([3, 2])}
    """
    found = {}
    for key, value in quantized_dict.items():
        *path, last = key.split(".")
        if isinstance(value, CellParams) and path[-2:-1] == ["_all_weight_values"]:
            name = ".".join((*path[:-2], f"weight_hh_l{path[-1]}"))
            if name in float_dict:
                found[key] = {"float": float_dict[name], "quantized": value.w_hh.unpack()[0]}
            continue
        if last == "weight":
            matching = _weight_of(float_dict, path)
        elif last == "_packed_params":
            matching, value = _weight_of(float_dict, path[:-1] if path[-1:] == [last] else path), value[0]
        else:
            continue
        if matching is not None:
            found[key] = {"float": float_dict[matching], "quantized": value}
    return found


def _weight_of(float_dict: dict[str, Any], path: list[str]) -> str | None:
    """The key of the weight of the float module at `path`, or of the first layer of a fused one there."""
    names = (".".join((*path, name)) for name in ("weight", "0.weight"))
    return next((name for name in names if name in float_dict), None)


# ------------------------------------------------------------------------------------------------------------- shadows


def prepare_model_with_stubs(
    float_module: nn.Module, q_module: nn.Module, module_swap_list: Iterable[type], logger_cls: Callable[[], nn.Module]
) -> None:
    """Put a `Shadow` in the place of every module of `q_module` whose float form is of a listed type.

    A module in which nothing was quantized is left alone.
    """
    swapped = set(module_swap_list)
    for name, module in list(q_module.named_children()):
        matching = float_module._modules.get(name)
        if matching is None:
            continue
        if type(matching) not in swapped:
            prepare_model_with_stubs(matching, module, swapped, logger_cls)
        elif [type(m) for m in module.modules()] != [type(m) for m in matching.modules()]:
            q_module._modules[name] = Shadow(module, matching, logger_cls)


def compare_model_stub(
    float_model: nn.Module,
    q_model: nn.Module,
    module_swap_list: Iterable[type],
    *data: Any,
    logger_cls: Callable[[], nn.Module] = ShadowLogger,
) -> dict[str, dict[str, Any]]:
    """The results of modules and of their float forms on the same inputs: the error that each module adds.

    Args:
        module_swap_list: types of float modules to compare.
        data: what `q_model` is called with. Shadows stay in it.

    Example:
        >>> import torch, zeropoint
        >>> model = nn.Sequential(nn.Linear(2, 3))
        >>> found = compare_model_stub(model, zeropoint.quantize_dynamic(model), {nn.Linear}, torch.ones(1, 2))
        >>> list(found), list(found["0.stats"])
        (['0.stats'], ['float', 'quantized'])
    """
    prepare_model_with_stubs(float_model, q_model, module_swap_list, logger_cls)
    q_model(*data)
    return get_logger_dict(q_model)


# ------------------------------------------------------------------------------------------------------------- outputs


def prepare_model_outputs(
    float_module: nn.Module,
    q_module: nn.Module,
    logger_cls: Callable[[], nn.Module] = OutputLogger,
    allow_list: Iterable[type] | None = None,
) -> None:
    """Let loggers watch the results of the modules of both models, those whose `qconfig` is None excepted.

    Args:
        allow_list: types of modules to watch, instead of `get_default_compare_output_module_list`.
    """
    types = get_default_compare_output_module_list() if allow_list is None else set(allow_list)
    for model in (float_module, q_module):
        for module in list(model.modules()):
            if vars(module).get("qconfig", ...) is not None and _is_watched(module, types):
                _watch(module, logger_cls())


def _is_watched(module: nn.Module, types: set[type]) -> bool:
    kind = type_before_parametrizations(module)
    if isinstance(module, (*_FUNCTIONALS, FusedModule)) or kind in NON_LEAF_MODULE_TO_ADD_OBSERVER_ALLOW_LIST:
        return True
    is_leaf = all(name in ("parametrizations", "activation_post_process") for name in module._modules)
    return is_leaf and kind in types and not isinstance(module, (nn.Sequential, DeQuantStub))


def _hook(module: Any, args: Any, output: Any) -> None:
    module.activation_post_process(output)


def _watch(module: nn.Module, logger: nn.Module) -> None:
    # A functional calls it in its methods; a module that was watched before gets a new logger.
    if not isinstance(module, _FUNCTIONALS) and _hook not in module._forward_hooks.values():
        module.register_forward_hook(_hook)
    module.activation_post_process = logger


def get_matching_activations(float_module: nn.Module, q_module: nn.Module) -> dict[str, dict[str, Any]]:
    """What the loggers of both models saw, where a module of one has the path of a module of the other.

    The path of a fused layer may be that of its first part.
    """
    theirs, found = get_logger_dict(float_module), {}
    for key, stats in get_logger_dict(q_module).items():
        path = key.removesuffix("stats")
        matching = next((name for name in (key, f"{path}0.stats") if name in theirs), None)
        if matching is not None and stats["tensor_val"]:
            found[key] = {"float": theirs[matching]["tensor_val"], "quantized": stats["tensor_val"]}
    return found


def compare_model_outputs(
    float_model: nn.Module,
    q_model: nn.Module,
    *data: Any,
    logger_cls: Callable[[], nn.Module] = OutputLogger,
    allow_list: Iterable[type] | None = None,
) -> dict[str, dict[str, Any]]:
    """The results of matching modules while each model runs on its own: the error that has gathered up to there.

    Args:
        data: what both models are called with. Loggers stay in them.
        allow_list: types of modules to watch, instead of `get_default_compare_output_module_list`.

    Example:
        >>> import torch, zeropoint
        >>> model = nn.Sequential(nn.LSTM(2, 3))
        >>> found = compare_model_outputs(model, zeropoint.quantize_dynamic(model), torch.ones(1, 1, 2))
        >>> list(found), len(found["0.stats"]["quantized"])
        (['0.stats'], 1)
    """
    prepare_model_outputs(float_model, q_model, logger_cls, allow_list)
    float_model(*data)
    q_model(*data)
    return get_matching_activations(float_model, q_model)
