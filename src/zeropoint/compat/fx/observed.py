"""What `prepare_fx` leaves in a graph module for `convert_fx`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx

from zeropoint.compat.fx.custom_config import PrepareCustomConfig
from zeropoint.compat.fx.qconfigs import Scopes
from zeropoint.qconfig_mapping import QConfigMapping

ATTRIBUTES = "_observed_graph_module_attrs"  # where it stands in the meta of the module
PRESERVED = "_user_preserved_attributes"  # likewise, what torch.fx copies with a graph module


@dataclass
class ObservedGraphModuleAttrs:
    """How a graph was prepared."""

    node_name_to_qconfig: dict[str, Any]
    node_name_to_scope: Scopes
    prepare_custom_config: PrepareCustomConfig
    equalization_node_name_to_qconfig: dict[str, Any]
    qconfig_mapping: QConfigMapping
    is_qat: bool
    observed_node_names: set[str]
    is_observed_standalone_module: bool = False
    standalone_module_input_quantized_idxs: list[int] | None = None
    standalone_module_output_quantized_idxs: list[int] | None = None


def observed_attributes(module: Any) -> ObservedGraphModuleAttrs | None:
    """How a module was prepared, if it was."""
    return module.meta.get(ATTRIBUTES) if isinstance(module, fx.GraphModule) else None


def attach_preserved_attrs_to_model(model: fx.GraphModule, preserved_attrs: Mapping[str, Any]) -> None:
    """Give a graph module attributes of the model that it was made from, which its copies have, too."""
    model.meta[PRESERVED] = dict(preserved_attrs)
    for name, value in preserved_attrs.items():
        setattr(model, name, value)
