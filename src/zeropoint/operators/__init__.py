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
    writing,
)
from zeropoint.operators.record import CustomModule, Fusion, ModuleForms, Operator, Output
from zeropoint.operators.register import register_operator
from zeropoint.operators.registry import (
    BY_ATEN,
    BY_NAME,
    STEPS,
    composed_of,
    custom_modules,
    eager_functions,
    fusions,
    mapping,
    module_forms,
    operators,
    register,
)

__all__ = [
    "BY_ATEN",
    "BY_NAME",
    "CustomModule",
    "Fusion",
    "ModuleForms",
    "Operator",
    "Output",
    "STEPS",
    "composed_of",
    "custom_modules",
    "eager_functions",
    "fusions",
    "mapping",
    "module_forms",
    "operators",
    "register",
    "register_operator",
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
    writing,
)
for _family in _FAMILIES:
    register(*_family.RECORDS)
