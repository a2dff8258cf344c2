"""Every operator that can be quantized, one record each: its names, its forms, how it is lowered.

A family of operators is one file. Whoever needs a list of operators derives it from the records, see `registry`.
"""

from zeropoint.operators import (
    activations,
    arithmetic,
    borders,
    elementwise,
    embedding,
    layers,
    lookup,
    movement,
    norms,
    pooling,
    recurrent,
    reducing,
    resizing,
    sampling,
    state,
    unquantized,
    views,
    windows,
    writing,
)
from zeropoint.operators.onnx import attached
from zeropoint.operators.record import CustomModule, Fusion, ModuleForms, Observed, Operator, Output, Traced
from zeropoint.operators.register import register_operator
from zeropoint.operators.registry import (
    BY_ATEN,
    BY_NAME,
    ONNX_READS,
    ONNX_WRITES,
    RESTORES,
    STEPS,
    composed_of,
    custom_modules,
    eager_functions,
    fusions,
    mapping,
    module_forms,
    operators,
    register,
    traced,
)

__all__ = [
    "BY_ATEN",
    "BY_NAME",
    "CustomModule",
    "Fusion",
    "ModuleForms",
    "ONNX_READS",
    "ONNX_WRITES",
    "Observed",
    "Operator",
    "Output",
    "RESTORES",
    "STEPS",
    "Traced",
    "composed_of",
    "custom_modules",
    "eager_functions",
    "fusions",
    "mapping",
    "module_forms",
    "operators",
    "register",
    "register_operator",
    "traced",
]

_FAMILIES = (
    borders,
    layers,
    arithmetic,
    norms,
    activations,
    pooling,
    views,
    movement,
    embedding,
    recurrent,
    lookup,
    elementwise,
    reducing,
    resizing,
    sampling,
    state,
    unquantized,
    windows,
    writing,
)
for _family in _FAMILIES:
    register(*attached(_family.RECORDS))
