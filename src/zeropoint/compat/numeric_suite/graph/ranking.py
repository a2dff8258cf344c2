"""Which layers of a quantized model lose most, and a mapping that equalizes those."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from zeropoint.compat.fx.equalization import default_equalization_qconfig
from zeropoint.compat.numeric_suite.graph.compare import (
    add_loggers,
    extend_logger_results_with_comparison,
    extract_logger_info,
)
from zeropoint.compat.numeric_suite.graph.loggers import OutputLogger
from zeropoint.compat.numeric_suite.graph.measures import compute_sqnr
from zeropoint.compat.numeric_suite.graph.related import unmatchable


def layer_sqnr(model_a: nn.Module, model_b: nn.Module, x: torch.Tensor) -> dict[str, float]:
    """Path of each layer that both models have -> SQNR in dB of its result in the second, for one input."""
    loose = copy.deepcopy(unmatchable())
    loose["funs_unmatchable"].add(torch.mul)  # equalization multiplies in one of the models alone
    a, b = add_loggers("a", model_a, "b", model_b, OutputLogger, unmatchable_types_map=loose)
    a(x)
    b(x)
    found = extract_logger_info(a, b, OutputLogger, "b")
    extend_logger_results_with_comparison(found, "a", "b", compute_sqnr, "sqnr")
    entries = (kinds["node_output"]["b"][0] for kinds in found.values())
    return {entry["fqn"]: entry["sqnr"][0] for entry in entries}


def equalize_worst(layer_sqnr_dict: dict[str, float], num_layers_to_equalize: int) -> dict[str, Any]:
    """The dictionary of a mapping that equalizes the layers with the lowest SQNR.

    Example:
        >>> equalize_worst({"first": 30.0, "second": 10.0}, 1)["module_name"][0][0]
        'second'
    """
    worst = sorted(layer_sqnr_dict, key=lambda path: layer_sqnr_dict[path])[:num_layers_to_equalize]
    return {"module_name": [(path, default_equalization_qconfig) for path in worst]}
