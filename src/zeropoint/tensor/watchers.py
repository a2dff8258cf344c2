"""Who looks at a QTensor: torch's tracers see another thing than people do, and who records needs the long way."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import torch

from zeropoint.numerics.dtypes import QuantizedDtype, quantized_dtype

# What traces tensors for torch.compile and torch.export. It asks a tensor what it is to rebuild it from its inner
# tensors, and must hear what the wrapper is to torch: an ordinary float32 tensor. Everybody else hears what it means.
_TRACERS = (
    "torch._dynamo",
    "torch._export",
    "torch._functorch",
    "torch._guards",
    "torch._higher_order_ops",
    "torch._inductor",
    "torch._library",
    "torch._logging",
    "torch._prims",
    "torch._subclasses",
    "torch.export",
    "torch.fx",
    "torch.utils._python_dispatch",
)
# Except this module of dynamo, which answers `q.dtype` and `q.is_quantized` in code it compiles.
_TRACED_ATTRIBUTES = "torch._dynamo.variables.tensor"


def asked_by_a_tracer() -> bool:
    """Whether the caller of the caller belongs to torch's tracing machinery."""
    name = sys._getframe(2).f_globals.get("__name__", "")
    return name.startswith(_TRACERS) and name != _TRACED_ATTRIBUTES


def is_watched() -> bool:
    """Whether somebody records what goes through torch's dispatcher: torch.jit.trace, a compiler, a torch mode.

    If not, QTensors take shortcuts past it.
    """
    return bool(
        torch._C._get_tracing_state() or torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    )


def is_recorded() -> bool:
    """Whether torch.compile, torch.export or torch.jit.trace writes down what is called: operators only, then."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def as_node(function: Any, *args: Any) -> Any:
    """A call that torch.fx.symbolic_trace sees, as one node of its graph; `args[0]` is what stands for a tensor."""
    return args[0].tracer.create_proxy("call_function", function, args, {})


def explain_dtypes_to_dynamo() -> None:
    """Let functions that torch.compile sees compare and pass on the dtype of a QTensor, as a constant."""
    try:
        from torch._library.opaque_object import MemberType, register_opaque_type
    except ImportError:  # another torch: `q.dtype` in a compiled function then stops the compiler, with its own words
        return

    def fx_repr(dtype: QuantizedDtype) -> tuple[str, dict[str, Any]]:
        return f"quantized_dtype({dtype.name!r})", {"quantized_dtype": quantized_dtype}

    members = (*(f.name for f in dataclasses.fields(QuantizedDtype)), "torch_storage", "__eq__", "__repr__")
    QuantizedDtype.__fx_repr__ = fx_repr  # type: ignore[attr-defined]
    register_opaque_type(QuantizedDtype, typ="value", members=dict.fromkeys(members, MemberType.USE_REAL))
