"""Inputs multiplied and weights divided by the scales that equalization observers found, before quantization."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.compat.fx.equalization.layers import Layer, equalizes, layer_behind
from zeropoint.compat.fx.equalization.observers import (
    InputEqualizationObserver,
    WeightEqualizationObserver,
    along,
    calculate_equalization_scale,
    is_equalization_observer,
)
from zeropoint.compat.fx.modules import called_module, free_name, is_observer_call
from zeropoint.compat.fx.observed import observed_attributes


def equalize(model: fx.GraphModule) -> fx.GraphModule:
    """A calibrated graph with equalized weights and without equalization observers, in place; it computes the same.

    The factor of an input goes into the rows of the layer before it, if that gives its result to this layer alone and
    is equalized itself; else the graph multiplies.
    """
    work = _Equalization(model)
    work.find_scales()
    for node in work.inputs:
        work.scale_input(node)
    for name, scale in work.scales.items():
        layer = work.layers[name]
        layer.replace_weight(layer.weight / along(scale, 1, layer.weight))
    work.remove_observers()
    model.recompile()
    return model


def find_equalization_scales(model: fx.GraphModule) -> dict[str, WeightEqualizationObserver]:
    """Name of each layer that is equalized -> the observer of its weight, which knows its scales."""
    return _Equalization(model).find_scales()


class _Equalization:
    """A graph while it is equalized."""

    def __init__(self, model: fx.GraphModule) -> None:
        self.model, self.graph = model, model.graph
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.inputs = [
            n for n in self.graph.nodes if isinstance(called_module(n, self.modules), InputEqualizationObserver)
        ]
        self.layers: dict[str, Layer] = {}
        self.scales: dict[str, Tensor] = {}

    def find_scales(self) -> dict[str, WeightEqualizationObserver]:
        """Find the scales of all layers that have observers; the observers of their weights."""
        found = {}
        attributes = observed_attributes(self.model)
        qconfigs = {} if attributes is None else attributes.equalization_node_name_to_qconfig
        for node in self.inputs:
            layer_node = next(user for user in node.users if equalizes(user, self.modules))
            layer = Layer(layer_node, self.model, self.modules)
            weight_observer = self._weight_observer(layer, qconfigs.get(layer_node.name))
            observer: Any = called_module(node, self.modules)
            scale = calculate_equalization_scale(observer, weight_observer)
            if scale.dim() == 0:  # nothing was seen: ones in the right shape, for a state_dict to fill
                scale = torch.ones(layer.weight.size(1))
                observer.watch_shape(layer.weight)
            observer.set_equalization_scale(scale)
            weight_observer.set_equalization_scale(scale)
            self.layers[layer_node.name], self.scales[layer_node.name] = layer, scale
            found[layer_node.name] = weight_observer
        return found

    def _weight_observer(self, layer: Layer, qconfig: Any) -> WeightEqualizationObserver:
        for node in layer.observers_of_weight():
            module = called_module(node, self.modules)
            if isinstance(module, WeightEqualizationObserver):
                module(layer.weight)
                return module
        made: WeightEqualizationObserver = qconfig.weight()
        made(layer.weight)
        return made

    def scale_input(self, node: fx.Node) -> None:
        """Multiply what an equalization observer saw, in the layer before or in the graph."""
        (user,) = (u for u in node.users if equalizes(u, self.modules))
        scale = self.scales[user.name]
        watched: Any = node.args[0]
        observed = is_observer_call(watched, self.modules)
        source = watched.args[0] if observed else watched
        before = layer_behind(source, self.modules)
        observer: Any = called_module(node, self.modules)
        if before is not None and before.name in self.layers and len(watched.users) == 1:
            layer = self.layers[before.name]
            layer.replace_weight(layer.weight * along(scale, 0, layer.weight))
            if layer.bias is not None:
                layer.replace_bias(layer.bias * scale)
        else:
            self._multiply(source, watched if observed else node, observer.equalization_scale)
        if observed and observer.minmax[0].numel():
            _scale_range(called_module(watched, self.modules), observer)

    def _multiply(self, source: fx.Node, user: fx.Node, scale: Tensor) -> None:
        name = free_name(self.model, f"{source.name}_equalization_scale")
        self.model.register_buffer(name, scale)
        with self.graph.inserting_before(user):
            factor = self.graph.create_node("get_attr", name)
            user.replace_input_with(source, self.graph.call_function(torch.mul, (source, factor)))

    def remove_observers(self) -> None:
        """Take all equalization observers out of the graph."""
        for node in list(self.graph.nodes):
            if is_equalization_observer(called_module(node, self.modules)):
                node.replace_all_uses_with(node.args[0])
                self.graph.erase_node(node)


def _scale_range(observer: Any, equalization: InputEqualizationObserver) -> None:
    """Let an observer have the range of the multiplied values; those that keep none stay as they are."""
    if getattr(observer, "is_dynamic", False):
        return
    low, high = equalization.calculate_scaled_minmax()
    if not hasattr(observer, "reset_min_max_vals"):
        warnings.warn(
            f"{type(observer).__name__} cannot store the range of equalized values: calibrate the result again",
            stacklevel=2,
        )
        return
    observer.reset_min_max_vals()
    observer(torch.stack([low, high]))
