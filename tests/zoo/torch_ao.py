"""The same architecture through torch.ao's graph mode, to compare the error with ours."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

_HEAVY = ("linear", "conv", "matmul", "bmm", "embedding", "lstm", "gru", "rnn")


def quantized_by_torch_ao(model: nn.Module, example: Any, calibration: list[Any], mode: str) -> Any:
    """What torch.ao makes of a model with its default settings; it raises where torch.fx cannot trace the model."""
    if isinstance(example, Mapping):
        raise NotImplementedError("torch.ao takes positional example inputs")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        from torch.ao.quantization import QConfigMapping, get_default_qconfig_mapping, per_channel_dynamic_qconfig
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

        dynamic = QConfigMapping().set_global(per_channel_dynamic_qconfig)
        mapping = get_default_qconfig_mapping("x86") if mode == "static" else dynamic
        prepared = prepare_fx(copy.deepcopy(model), mapping, example)
        for batch in calibration:
            prepared(*batch)
        return convert_fx(prepared)


def layers_on_integers(model: torch.fx.GraphModule) -> int:
    """How many layers and products of what torch.ao made have integer weights or inputs; the others are float."""
    count = 0
    for node in model.graph.nodes:
        if node.op == "call_module":
            kind = type(model.get_submodule(str(node.target)))
            is_quantized, name = ".quantized" in kind.__module__, kind.__name__
        else:
            is_quantized, name = "quantized" in str(node.target), str(node.target).rpartition("quantized.")[2]
        count += is_quantized and name.lower().startswith(_HEAVY)
    return count
