"""The numeric suite: weights and results of a model and of its quantized form, side by side."""

from __future__ import annotations

from zeropoint.compat.numeric_suite.eager import (
    compare_model_outputs,
    compare_model_stub,
    compare_weights,
    get_matching_activations,
    prepare_model_outputs,
    prepare_model_with_stubs,
)
from zeropoint.compat.numeric_suite.loggers import Logger, OutputLogger, ShadowLogger, get_logger_dict
from zeropoint.compat.numeric_suite.shadow import Shadow

__all__ = [
    "Logger",
    "OutputLogger",
    "Shadow",
    "ShadowLogger",
    "compare_model_outputs",
    "compare_model_stub",
    "compare_weights",
    "get_logger_dict",
    "get_matching_activations",
    "prepare_model_outputs",
    "prepare_model_with_stubs",
]
