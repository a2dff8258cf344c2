"""Modules and attributes of graph modules, by their dotted paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.observers.base import ObserverBase


def parent_and_name(path: str) -> tuple[str, str]:
    """The path of the module around, and the last name.

    Example:
        >>> parent_and_name("body.head"), parent_and_name("head")
        (('body', 'head'), ('', 'head'))
    """
    parent, _, name = path.rpartition(".")
    return parent, name


def set_module(model: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module where `path` says."""
    parent, name = parent_and_name(path)
    setattr(model.get_submodule(parent), name, module)


def called_module(node: Any, modules: Mapping[str, nn.Module]) -> nn.Module | None:
    """The module that a node calls, if it calls one."""
    if isinstance(node, fx.Node) and node.op == "call_module":
        return modules.get(str(node.target))
    return None


def is_activation_post_process(module: Any) -> bool:
    """Whether it is an observer or a fake quantization."""
    return isinstance(module, (ObserverBase, FakeQuantizeBase))


def is_observer_call(node: Any, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a node calls an observer or a fake quantization."""
    return is_activation_post_process(called_module(node, modules))


def free_name(model: nn.Module, prefix: str) -> str:
    """`prefix`, dots made plain, with the first number behind it that no attribute has.

    Example:
        >>> free_name(nn.Linear(1, 1), "layer.0.scale_")
        'layer_0_scale_0'
    """
    prefix, number = prefix.replace(".", "_"), 0
    while hasattr(model, f"{prefix}{number}"):
        number += 1
    return f"{prefix}{number}"


def unique_device(model: nn.Module) -> torch.device | None:
    """The device of all parameters and buffers, None if there are none; ValueError if there are several."""
    devices = {t.device for t in (*model.parameters(), *model.buffers())} - {torch.device("meta")}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ValueError(f"the model must be on one device, got {names}: move it to one of them")
    return next(iter(devices), None)


def add_buffer(model: nn.Module, graph: fx.Graph, prefix: str, value: Any, device: Any) -> fx.Node:
    """Keep a number or a tensor in a buffer of the model, and read it in the graph where it is inserted."""
    name = free_name(model, prefix)
    stored = value.detach().clone() if isinstance(value, Tensor) else torch.tensor(value, device=device)
    model.register_buffer(name, stored)
    return graph.create_node("get_attr", name)
