"""What converted graphs call: functions of quantized tensors, by the names that torch.ops.quantized has for them.

Graphs of zeropoint call zeropoint's functions, and name dtypes by strings. `zeropoint.compat` puts the old operators,
which have these functions behind them, and torch's dtypes into `CALLED`, so that old code finds what it looks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from zeropoint.compat.fx.functions import FUNCTIONS
from zeropoint.numerics.dtypes import DTYPES
from zeropoint.tensor.create import dequantize, quantize_per_channel, quantize_per_tensor, quantize_per_tensor_dynamic

__all__ = [
    "CALLED",
    "DYNAMIC",
    "PER_CHANNEL",
    "PER_TENSOR",
    "call",
    "decomposed_operators",
    "dtype_argument",
    "half_dequantize",
    "reduces_range",
]

PER_TENSOR, PER_CHANNEL, DYNAMIC = quantize_per_tensor, quantize_per_channel, quantize_per_tensor_dynamic

# Replaced by zeropoint.compat: name of an operator -> what is called; "dtype", "dequantize": how these are written;
# "decomposed": the operators on plain integers; "reduce_range": whether ranges that are found while a model runs use 7
# bits.
CALLED: dict[str, Any] = {
    **FUNCTIONS,
    "dtype": lambda dtype: dtype.name,
    "dequantize": ("call_function", dequantize),
    "reduce_range": lambda: True,
    "decomposed": torch.ops.zeropoint,
}


def call(name: str) -> Callable[..., Any]:
    """The function on quantized tensors of this name."""
    return CALLED[name]


def dtype_argument(dtype: Any) -> Any:
    """A dtype as graphs have it: a quantized one by its name, a plain one as it is."""
    name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    return CALLED["dtype"](DTYPES[name]) if name in DTYPES else getattr(torch, name, dtype)


def half_dequantize() -> tuple[str, Any]:
    """The kind and target of a node that makes floats of float16, which has no method for it by itself."""
    return CALLED["dequantize"]


def reduces_range() -> bool:
    """Whether ranges that are found while a model runs use 7 bits, as PyTorch's engines for servers do."""
    return bool(CALLED["reduce_range"]())


def decomposed_operators() -> Any:
    """The namespace of operators that quantize to plain integers."""
    return CALLED["decomposed"]
