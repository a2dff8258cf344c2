"""What converted graphs call: functions of quantized tensors, by the names that torch.ops.quantized has for them.

Graphs of zeropoint call zeropoint's functions, and name dtypes by strings. `zeropoint.compat` fills `TARGETS` with the
old operators, which have these functions behind them, and with torch's dtypes, so that old code finds what it looks
for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from zeropoint.compat.fx.functions import FUNCTIONS
from zeropoint.numerics.dtypes import DTYPES
from zeropoint.tensor.create import dequantize, quantize_per_channel, quantize_per_tensor, quantize_per_tensor_dynamic

PER_TENSOR, PER_CHANNEL, DYNAMIC = quantize_per_tensor, quantize_per_channel, quantize_per_tensor_dynamic


@dataclass
class Targets:
    """What graphs call and name.

    Args:
        functions: name of an operator -> what is called.
        dtype: how a quantized dtype is written.
        dequantize: the kind and target of a node that makes floats of float16, which has no method for it by itself.
        decomposed: the namespace of operators that quantize to plain integers.
        reduces_range: whether ranges that are found while a model runs use 7 bits, as PyTorch's engines for servers do.
    """

    functions: dict[str, Callable[..., Any]]
    dtype: Callable[[Any], Any] = lambda dtype: dtype.name
    dequantize: tuple[str, Any] = ("call_function", dequantize)
    decomposed: Any = torch.ops.zeropoint
    reduces_range: Callable[[], bool] = lambda: True


TARGETS = Targets(dict(FUNCTIONS))


def call(name: str) -> Callable[..., Any]:
    """The function on quantized tensors of this name."""
    return TARGETS.functions[name]


def dtype_argument(dtype: Any) -> Any:
    """A dtype as graphs have it: a quantized one by its name, a plain one as it is."""
    name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    return TARGETS.dtype(DTYPES[name]) if name in DTYPES else getattr(torch, name, dtype)
