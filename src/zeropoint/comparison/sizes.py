"""How many bytes a model takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.graph.frontends.script.script_module import walk
from zeropoint.graph.workflow import Quantized
from zeropoint.operators.node import parameter


def stored_bytes(state: Any) -> int:
    """Bytes of all values in a state_dict.

    Example:
        >>> stored_bytes(nn.Linear(3, 2).state_dict())
        32
    """
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    parts = state.values() if isinstance(state, Mapping) else state if isinstance(state, (tuple, list)) else ()
    return sum(stored_bytes(part) for part in parts)


def model_bytes(model: nn.Module) -> int:
    """Bytes of the parameters and buffers of a model; of a graph on integers, of those that it reads.

    Of TorchScript, also of its constants, which is where quantized models keep their weights.
    """
    if isinstance(model, torch.jit.ScriptModule):
        constants = [node.output().toIValue() for node in walk(model.graph) if node.kind() == "prim::Constant"]
        return stored_bytes(model.state_dict()) + stored_bytes(constants)
    if not isinstance(model, Quantized):
        return stored_bytes(model.state_dict())
    graph = model.graph_module
    read = {str(node.target): parameter(graph, node) for node in graph.graph.nodes if node.op == "get_attr"}
    return sum(stored_bytes(value) for value in read.values())
