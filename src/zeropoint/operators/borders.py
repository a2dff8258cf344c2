"""Where floats become integers and integers floats."""

from __future__ import annotations

from zeropoint.nn import quantized as nnq
from zeropoint.nn.stubs import DeQuantStub, QuantStub
from zeropoint.operators.record import ModuleForms, Operator, Output

__all__ = ["RECORDS"]

RECORDS = (
    Operator("quantize", forms=(ModuleForms(QuantStub, nnq.Quantize, reference=nnq.Quantize),)),
    Operator(
        "dequantize", forms=(ModuleForms(DeQuantStub, nnq.DeQuantize, reference=nnq.DeQuantize),), output=Output.FLOAT
    ),
)
