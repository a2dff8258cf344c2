"""What converted graphs call: functions of quantized tensors that torch.fx traces as one node.

A saved graph is traced again when it is loaded, so each of them gives a node for what stands for a tensor. They have
the names and arguments of torch.ops.quantized; what computes is in `zeropoint.qfunctions`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from torch.fx import Proxy

from zeropoint import qfunctions
from zeropoint.qfunctions import packed

_CONVOLUTIONS: dict[str, Callable[..., Any]] = {
    **{f"conv{d}d": packed.conv for d in (1, 2, 3)},
    **{f"conv{d}d_relu": packed.conv_relu for d in (1, 2, 3)},
    **{f"conv{d}d_dynamic": packed.conv_dynamic for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": packed.conv for d in (1, 2, 3)},
    **{f"conv{d}d_prepack": qfunctions.conv_prepack for d in (1, 2, 3)},
    **{f"conv_transpose{d}d_prepack": qfunctions.conv_transpose_prepack for d in (1, 2, 3)},
}
_OTHERS = (
    "add add_relu mul mul_relu matmul linear linear_relu linear_dynamic linear_relu_dynamic linear_dynamic_fp16"
    " linear_relu_dynamic_fp16 linear_prepack linear_prepack_fp16 hardswish elu leaky_relu dropout layer_norm"
    " instance_norm group_norm"
)
FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _proxy(arguments: Iterable[Any]) -> Any:
    """What stands for a tensor while torch.fx traces, if something does."""
    for argument in arguments:
        if isinstance(argument, Proxy):
            return argument
        if isinstance(argument, (list, tuple)) and (found := _proxy(argument)) is not None:
            return found
    return None


def _traceable(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        proxy = _proxy((*args, *kwargs.values()))
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", called, args, kwargs)
        return function(*args, **kwargs)

    called.__module__, called.__name__, called.__qualname__ = __name__, name, name
    called.__doc__ = f"`{function.__module__}.{function.__name__}`, as a node of a graph."
    return called


FUNCTIONS.update({name: _traceable(name, function) for name, function in _CONVOLUTIONS.items()})
FUNCTIONS.update({name: _traceable(name, getattr(qfunctions, name)) for name in _OTHERS.split()})
globals().update(FUNCTIONS)  # torch.fx saves a function by the module and name that find it
