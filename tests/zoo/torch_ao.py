"""The same architecture through torch.ao's graph mode, to compare the error with ours."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

__all__ = ["quantized_by_torch_ao"]


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
