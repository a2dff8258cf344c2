"""Insides of torch.ao's FX mode that other packages call, torchao's PT2E among them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.compat.fx.lower import lower
from zeropoint.compat.fx.modules import free_name, unique_device
from zeropoint.compat.fx.observed import ATTRIBUTES, ObservedGraphModuleAttrs
from zeropoint.compat.fx.qconfigs import qconfigs_by_node

# What packages define further operators of this namespace with.
quantized_decomposed_lib = torch.library.Library("quantized_decomposed", "FRAGMENT")


def quantize_per_channel_group(*args: Any, **kwargs: Any) -> Tensor:
    """The operator of this name."""
    return torch.ops.quantized_decomposed.quantize_per_channel_group(*args, **kwargs)


def require_qparams_of_tokens(input: Tensor, scales: Tensor, zero_points: Tensor) -> None:
    """Refuse scales and zero points that are not one for each token."""
    tokens = math.prod(input.shape[:-1])
    for name, given in (("scales", scales), ("zero_points", zero_points)):
        assert given.numel() == tokens, f"{name} must have one element for each of {tokens} tokens, got {given.numel()}"


def insert_observer(
    node: fx.Node,
    obs_or_fq: nn.Module,
    model: nn.Module,
    named_modules: dict[str, nn.Module],
    graph: fx.Graph,
    model_device: torch.device | None = None,
) -> fx.Node:
    """A call of an observer, which becomes a module of the model, on the result of a node."""
    device = unique_device(model) if model_device is None else model_device
    if device is not None:
        obs_or_fq.to(device)
    name = free_name(model, "activation_post_process_")
    setattr(model, name, obs_or_fq)
    named_modules[name] = obs_or_fq
    with graph.inserting_after(node):
        return graph.call_module(name, (node,))


def save_state(
    observed: fx.GraphModule,
    node_name_to_qconfig: dict[str, Any],
    node_name_to_scope: Mapping[str, tuple[str, Any]],
    prepare_custom_config: Any,
    equalization_node_name_to_qconfig: dict[str, Any],
    qconfig_mapping: Any,
    is_qat: bool,
    observed_node_names: set[str],
) -> None:
    """Keep in a graph module how it was prepared."""
    observed.meta[ATTRIBUTES] = ObservedGraphModuleAttrs(
        node_name_to_qconfig, node_name_to_scope, prepare_custom_config, equalization_node_name_to_qconfig,
        qconfig_mapping, is_qat, observed_node_names,
    )  # fmt: skip


def lower_to_fbgemm(
    model: fx.GraphModule,
    qconfig_map: Mapping[str, Any],
    node_name_to_scope: Mapping[str, tuple[str, Any]],
    keep_original_weights: bool = False,
) -> fx.GraphModule:
    """A reference model with quantized modules and functions."""
    return lower(model, qconfig_map, node_name_to_scope, keep_original_weights)


def qconfigs_of_nodes(
    root: nn.Module,
    modules: Mapping[str, nn.Module],
    input_graph: fx.Graph,
    qconfig_mapping: Any,
    node_name_to_scope: Mapping[str, tuple[str, Any]],
) -> dict[str, Any]:
    """Name of a node -> its qconfig."""
    return qconfigs_by_node(modules, input_graph, qconfig_mapping, node_name_to_scope)


def module_of(node: fx.Node, named_modules: Mapping[str, nn.Module]) -> nn.Module | None:
    """The module that a node calls, if it calls one."""
    return named_modules.get(str(node.target)) if node.op == "call_module" else None


def node_arg_is_weight(node: fx.Node, arg: Any) -> bool:
    """Whether an argument of a node is its weight, as its annotation or its keyword says."""
    index = node.meta.get("target_dtype_info", {}).get("weight_index")
    is_at_index = index is not None and index < len(node.args) and node.args[index] is arg
    return is_at_index or node.kwargs.get("weight") is arg


def graph_module_from_producer_nodes(root: fx.GraphModule, producer_nodes: list[fx.Node]) -> fx.GraphModule:
    """A graph of its own of nodes that are given from the last to the first; it gives the result of the last."""
    assert producer_nodes, "there must be a node to make a graph of"
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in reversed(producer_nodes):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(copies[producer_nodes[0]])
    return fx.GraphModule(root, graph)
