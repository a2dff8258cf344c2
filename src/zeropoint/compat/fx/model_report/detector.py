"""What a detector is: it says where to observe, and what follows from what was seen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from zeropoint.compat.fx.equalization import EqualizationQConfig, default_equalization_qconfig
from zeropoint.observers import (
    default_dynamic_quant_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_weight_observer,
)
from zeropoint.operators import layer_records, modules_of
from zeropoint.qconfig import QConfig

# What a place to observe is described by.
TARGET, OBSERVER, IS_POST, ARGUMENTS = "target_node", "observer_to_insert", "is_post_observer", "observer_args"

# Where the observers of detectors stand in the modules that they observe.
PRE_OBSERVER_NAME, POST_OBSERVER_NAME = "model_report_pre_observer", "model_report_post_observer"

# Layers with weights that detectors look at.
WEIGHTED = modules_of(layer_records(transposed=False))


@dataclass
class DetectorQConfigInfo:
    """What detectors advise for one module."""

    module_fqn: str
    is_activation_dynamic: bool = False
    is_weight_per_channel: bool = False
    is_equalization_recommended: bool = False

    def join(self, other: DetectorQConfigInfo) -> None:
        """Take over what another detector advises for the same module."""
        self.is_activation_dynamic |= other.is_activation_dynamic
        self.is_weight_per_channel |= other.is_weight_per_channel
        self.is_equalization_recommended |= other.is_equalization_recommended

    def generate_quantization_qconfig(self, module: nn.Module) -> QConfig:
        """The qconfig that follows the advice."""
        return QConfig(
            activation=default_dynamic_quant_observer if self.is_activation_dynamic else default_observer,
            weight=default_per_channel_weight_observer if self.is_weight_per_channel else default_weight_observer,
        )

    def generate_equalization_qconfig(self) -> EqualizationQConfig:
        """The qconfig for equalization."""
        return default_equalization_qconfig


class DetectorBase(ABC):
    """Looks at a prepared and calibrated model for one thing that could be better.

    A detector of your own has these four methods.
    """

    @abstractmethod
    def get_detector_name(self) -> str:
        """What reports call it."""

    @abstractmethod
    def determine_observer_insert_points(self, model: Any) -> dict[str, dict[str, Any]]:
        """Path of each observer that it needs -> its node, itself, its arguments, and if it is behind."""

    @abstractmethod
    def generate_detector_report(self, model: Any) -> tuple[str, dict[str, Any]]:
        """Advice in words, and path of a module -> what was found there."""

    @abstractmethod
    def get_qconfig_info(self, model: Any) -> dict[str, DetectorQConfigInfo]:
        """Path of a module -> advice for its qconfig."""


def calling_node(model: fx.GraphModule, path: str) -> fx.Node | None:
    """The first call of a module, or of the fused module that it is in."""
    while path:
        for node in model.graph.nodes:
            if node.op == "call_module" and node.target == path:
                return node
        path = path.rpartition(".")[0]
    return None


def watch(
    model: fx.GraphModule, is_watched: Callable[[nn.Module], bool], make: Callable[[], nn.Module], behind: bool = False
) -> dict[str, dict[str, Any]]:
    """Places in front of the modules that are asked for, and behind them if `behind`, as dictionaries."""
    places: dict[str, dict[str, Any]] = {}
    for path, module in model.named_modules():
        node = calling_node(model, path) if is_watched(module) else None
        if node is not None:
            places[f"{path}.{PRE_OBSERVER_NAME}"] = {
                TARGET: node, OBSERVER: make(), IS_POST: False, ARGUMENTS: node.args[:1],
            }  # fmt: skip
            if behind:
                places[f"{path}.{POST_OBSERVER_NAME}"] = {
                    TARGET: node, OBSERVER: make(), IS_POST: True, ARGUMENTS: (node,),
                }  # fmt: skip
    return places


def watched(model: nn.Module, kinds: tuple[type, ...], *names: str) -> Iterator[tuple[str, Any]]:
    """Modules of these kinds that have observers of these names."""
    for path, module in model.named_modules():
        if isinstance(module, kinds) and all(hasattr(module, name) for name in names):
            yield path, module
