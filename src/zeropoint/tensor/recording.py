"""Whether somebody records what is called: torch.jit.trace, torch.compile, torch.export, a torch mode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from zeropoint.numerics.dtypes import QuantizedDtype, quantized_dtype

_modules = torch.nn.modules.module
_tracing_state = torch._C._get_tracing_state
_dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack


def is_watched() -> bool:
    """Whether somebody records what goes through torch's dispatcher: torch.jit.trace, a compiler, a torch mode.

    If not, QTensors take shortcuts past it.
    """
    return bool(_dispatch_modes() or _function_modes() or _tracing_state())


def is_recorded() -> bool:
    """Whether torch.compile, torch.export or torch.jit.trace writes down what is called: operators only, then."""
    return torch.compiler.is_compiling() or _tracing_state() is not None


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether somebody wants to know when `module` is called."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _modules._global_forward_hooks
        or _modules._global_forward_pre_hooks
        or _modules._global_backward_hooks
        or _modules._global_backward_pre_hooks
    )


def needs_dispatch(x: torch.Tensor) -> bool:
    """Whether an operator on `x` must go through torch's dispatcher: somebody watches, or `x` has no numbers in it.

    Otherwise the kernel of the operator is called, which saves microseconds.
    """
    return type(x) is not torch.Tensor or x.is_meta or is_watched()


def run(kernel: Callable[..., torch.Tensor], values: torch.Tensor, *arguments: Any) -> torch.Tensor:
    """The operator of ``torch.ops.zeropoint`` that has this kernel; the kernel itself where `needs_dispatch` allows."""
    if needs_dispatch(values):
        return getattr(torch.ops.zeropoint, kernel.__name__)(values, *arguments)
    return kernel(values, *arguments)


def as_node(function: Any, *args: Any) -> Any:
    """A call that torch.fx.symbolic_trace sees, as one node of its graph; `args[0]` is what stands for a tensor."""
    return args[0].tracer.create_proxy("call_function", function, args, {})


def run_as_it_is(function: Any) -> None:
    """Have torch.compile, which looks into every function that it meets after a graph break, leave this one alone.

    A mark on its code: a decorator such as torch.compiler.disable would cost time in every call.
    """
    from torch._C._dynamo import eval_frame

    if hasattr(eval_frame, "set_code_exec_strategy"):
        skip = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)
        eval_frame.set_code_exec_strategy(function.__code__, skip)
    else:  # an older torch
        eval_frame.skip_code(function.__code__)  # type: ignore[attr-defined]


def explain_dtypes_to_dynamo() -> None:
    """Let functions that torch.compile sees compare and pass on the dtype of a QTensor, as a constant."""
    try:
        from torch._library import opaque_object
        from torch._library.opaque_object import MemberType
    except ImportError:  # another torch: `q.dtype` in a compiled function then stops the compiler, with its own words
        return
    register, kind = getattr(opaque_object, "register_custom_class", None), "constant"
    if register is None:  # before torch 2.15
        register, kind = opaque_object.register_opaque_type, "value"

    def fx_repr(dtype: QuantizedDtype) -> tuple[str, dict[str, Any]]:
        return f"quantized_dtype({dtype.name!r})", {"quantized_dtype": quantized_dtype}

    members = ("name", *QuantizedDtype.__annotations__, "torch_storage", "__eq__", "__repr__")
    QuantizedDtype.__fx_repr__ = fx_repr  # type: ignore[attr-defined]
    with contextlib.suppress(TypeError):  # torch 2.11 takes only classes with a metaclass of its own: as above
        register(QuantizedDtype, typ=kind, members=dict.fromkeys(members, MemberType.USE_REAL))
