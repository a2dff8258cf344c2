"""The layers that can be equalized: their weights in a graph, whether modules or functions hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from zeropoint.compat.fx.modules import called_module, is_observer_call, parent_and_name
from zeropoint.nn import intrinsic
from zeropoint.operators import layer_records, modules_of

_RECORDS = tuple(layer_records(transposed=False))
_MODULES = modules_of(_RECORDS)
_FUSED = tuple(f.evaluation for record in _RECORDS for f in record.fusions if f.parts[1:] == (nn.ReLU,))
_FUNCTIONS = tuple(function for record in _RECORDS for function in record.functions)
_RELU = (F.relu, torch.relu)
_GROUPS_INDEX = 6  # of the arguments of convolutions as functions


def equalizes(node: Any, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a node is a layer that can be equalized: its input has one channel for each column of its weight."""
    if not isinstance(node, fx.Node):
        return False
    if node.op == "call_module":
        module: Any = modules[str(node.target)]
        layer = module[0] if type(module) in _FUSED else module
        return type(layer) in _MODULES and getattr(layer, "groups", 1) == 1
    if node.op != "call_function" or node.target not in _FUNCTIONS:
        return False
    groups = node.args[_GROUPS_INDEX] if len(node.args) > _GROUPS_INDEX else node.kwargs.get("groups", 1)
    return node.target is F.linear or groups == 1


def input_axis(node: fx.Node, modules: Mapping[str, nn.Module]) -> int:
    """The axis of the channels of a layer's input."""
    module: Any = called_module(node, modules)
    is_linear = node.target is F.linear or isinstance(module, (nn.Linear, intrinsic.LinearReLU))
    return -1 if is_linear else 1


def layer_behind(node: Any, modules: Mapping[str, nn.Module]) -> fx.Node | None:
    """The layer that gives a value to nothing else, with or without a ReLU, for which ``relu(s x) = s relu(x)``."""
    if not isinstance(node, fx.Node) or len(node.users) != 1:
        return None
    is_relu = isinstance(called_module(node, modules), nn.ReLU) or (node.op == "call_function" and node.target in _RELU)
    if is_relu:
        return layer_behind(node.args[0], modules)
    return node if equalizes(node, modules) else None


class Layer:
    """The weight and bias of a node, which can be replaced."""

    def __init__(self, node: fx.Node, model: fx.GraphModule, modules: Mapping[str, nn.Module]) -> None:
        self.node, self.model, self.modules = node, model, modules
        module: Any = called_module(node, modules)
        self._module = module[0] if type(module) in _FUSED else module

    def observers_of_weight(self) -> list[fx.Node]:
        """The observers that the weight of a function passes."""
        found, argument = [], self._argument("weight", 1)
        while isinstance(argument, fx.Node) and argument.op == "call_module":
            found.append(argument)
            argument = argument.args[0]
        return found

    @property
    def weight(self) -> Tensor:
        return self._module.weight if self._module is not None else self._attribute("weight", 1)[2]

    def replace_weight(self, value: Tensor) -> None:
        """Give the layer another weight, and let observers forget the old one."""
        self._replace("weight", 1, value)
        for node in self.observers_of_weight():
            if is_observer_call(node, self.modules):
                self.modules[str(node.target)].reset_min_max_vals()

    @property
    def bias(self) -> Tensor | None:
        if self._module is not None:
            return self._module.bias
        return None if self._argument("bias", 2) is None else self._attribute("bias", 2)[2]

    def replace_bias(self, value: Tensor) -> None:
        """Give the layer another bias."""
        self._replace("bias", 2, value)

    def _argument(self, name: str, index: int) -> Any:
        if self._module is not None:
            return None
        return self.node.args[index] if index < len(self.node.args) else self.node.kwargs.get(name)

    def _attribute(self, name: str, index: int) -> tuple[nn.Module, str, Tensor]:
        argument = self._argument(name, index)
        while isinstance(argument, fx.Node) and argument.op == "call_module":
            argument = argument.args[0]
        if not isinstance(argument, fx.Node) or argument.op != "get_attr":
            raise NotImplementedError(
                f"{self.node.name} cannot be equalized: its {name} must be stored in the model, not computed"
            )
        parent, attribute = parent_and_name(str(argument.target))
        owner = self.model.get_submodule(parent)
        return owner, attribute, getattr(owner, attribute)

    def _replace(self, name: str, index: int, value: Tensor) -> None:
        owner, attribute = self._module, name
        if owner is None:
            owner, attribute, _ = self._attribute(name, index)
        is_parameter = isinstance(getattr(owner, attribute), nn.Parameter)
        value = value.detach()
        setattr(owner, attribute, nn.Parameter(value) if is_parameter else value)
