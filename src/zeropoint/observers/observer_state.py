"""The state of all observers of a model, taken out and put back; eager models and TorchScript alike."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.observers.base import ObserverBase
from zeropoint.observers.granularity import AffineQuantizedObserverBase

PER_CHANNEL = ("min_val", "max_val", "scale", "zero_point")


def is_scripted(module: nn.Module, package: str) -> bool:
    """Whether `module` is TorchScript made from a class of `package`."""
    return isinstance(module, torch.jit.RecursiveScriptModule) and package in module._c.qualified_name


def is_observer(module: nn.Module) -> bool:
    """Whether `module` is an observer, also a scripted one.

    Example:
        >>> from zeropoint.observers import MinMaxObserver
        >>> is_observer(MinMaxObserver()), is_observer(torch.jit.script(MinMaxObserver())), is_observer(nn.ReLU())
        (True, True, False)
    """
    return isinstance(module, (ObserverBase, AffineQuantizedObserverBase)) or is_scripted(module, "zeropoint.observers")


def get_observer_state_dict(mod: nn.Module) -> OrderedDict[str, Any]:
    """The entries of `mod`'s state dict that belong to observers.

    Example:
        >>> from zeropoint.observers import MinMaxObserver
        >>> model = nn.Sequential()
        >>> model.activation_post_process = MinMaxObserver()
        >>> sorted(get_observer_state_dict(model))
        ['activation_post_process.eps', 'activation_post_process.max_val', 'activation_post_process.min_val']
    """
    # What prepares TorchScript names its observers `_observer_0` and so on; a scripted eager model keeps its names.
    scripted = isinstance(mod, torch.jit.RecursiveScriptModule)
    marks = ("observer", "activation_post_process") if scripted else ("activation_post_process",)
    state = mod.state_dict()
    found = OrderedDict((key, value) for key, value in state.items() if any(mark in key for mark in marks))
    found._metadata = state._metadata  # type: ignore[attr-defined]
    return found


def load_observer_state_dict(mod: nn.Module, obs_dict: dict[str, Any]) -> None:
    """Put the state of observers, from `get_observer_state_dict`, into a model with the same observers.

    Raises:
        ValueError: if an observer of `mod` has no state in `obs_dict`, or other shapes. Then nothing has changed.

    Example:
        >>> from zeropoint.observers import MinMaxObserver
        >>> model, other = nn.Sequential(), nn.Sequential()
        >>> model.activation_post_process, other.activation_post_process = MinMaxObserver(), MinMaxObserver()
        >>> _ = model.activation_post_process(torch.tensor([1.0, 2.0]))
        >>> load_observer_state_dict(other, get_observer_state_dict(model))
        >>> other.activation_post_process.max_val
        tensor(2.)
    """
    kept: list[tuple[str, Tensor, bool]] = []
    for name, module in mod.named_modules():
        # A fake-quantize module is loaded where the dict has its state; its observer must be there.
        simulates = hasattr(module, "fake_quant_enabled")
        if simulates or is_observer(module):
            own = [*module.named_buffers(recurse=False), *module.named_parameters(recurse=False)]
            prefix = f"{name}." if name else ""
            kept += [(prefix + key, tensor, simulates or key == "eps") for key, tensor in own]
    missing = [key for key, _, optional in kept if key not in obs_dict and not optional]
    if missing:
        raise ValueError(
            f"load_observer_state_dict: no state for {', '.join(missing)}; the dict has {', '.join(obs_dict)}"
        )
    for key, tensor, _ in kept:
        value = obs_dict.get(key, tensor)
        # What there is one of for each channel grows. Everything else must agree.
        grows = key.rpartition(".")[2] in PER_CHANNEL and value.dim() == tensor.dim() == 1
        if value.shape != tensor.shape and not grows:
            raise ValueError(
                f"load_observer_state_dict: {key} has shape {tuple(value.shape)}, the model's {tuple(tensor.shape)}"
            )
    with torch.no_grad():
        for key, tensor, _ in kept:
            if key in obs_dict:
                value = obs_dict[key]
                if tensor.shape != value.shape:
                    tensor.resize_(value.shape)
                tensor.copy_(value)
