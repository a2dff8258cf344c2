"""Every operator that can be quantized, one record each: its names, its forms, how it is lowered.

A family of operators is one file. Whoever needs a list of operators derives it from the records, see `registry`.
"""

import importlib

from zeropoint.operators.onnx import attached
from zeropoint.operators.record import CustomModule, Fusion, ModuleForms, Observed, Operator, Output, Traced
from zeropoint.operators.register import register_operator
from zeropoint.operators.registry import (
    BY_ATEN,
    BY_NAME,
    ONNX_KEEPS_SCALE,
    ONNX_READS,
    ONNX_WRITES,
    RESTORES,
    STEPS,
    composed_of,
    custom_modules,
    eager_functions,
    float_weight_functions,
    fusions,
    layer_records,
    mapping,
    module_forms,
    modules_of,
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
    "ONNX_KEEPS_SCALE",
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
    "float_weight_functions",
    "fusions",
    "layer_records",
    "mapping",
    "module_forms",
    "modules_of",
    "operators",
    "register",
    "register_operator",
    "traced",
]

# The files of families, in the order of registration.
_FAMILIES = (
    "quantize layers arithmetic norms activations pooling views indexing embedding recurrent lookup "
    "elementwise matrices reducing resizing sampling state_buffers creation im2col scatter"
)
for _name in _FAMILIES.split():
    register(*attached(importlib.import_module(f"{__name__}.{_name}").RECORDS))
