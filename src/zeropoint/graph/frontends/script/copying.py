"""Private copies of ScriptModules, and results in their place."""

from __future__ import annotations

import io
from typing import Any

import torch

__all__ = ["private_copy", "result"]


def private_copy(name: str, model: Any) -> Any:
    """A copy of `model`, as `torch._C.ScriptModule`, with classes of its own, so that changes stay in it.

    Raises:
        TypeError: if `model` is no ScriptModule, or one that cannot be saved.
    """
    if not isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            f"{name} takes a ScriptModule, got {type(model).__name__}: use torch.jit.script or torch.jit.trace first,"
            " or zeropoint.prepare_fx"
        )
    if not model._c._has_method("forward"):
        raise TypeError(
            f"{name} takes a ScriptModule with a method forward; this one has {', '.join(model._c._method_names())}."
            " Put it into a module that calls it"
        )
    stream = io.BytesIO()
    try:
        torch.jit.save(model, stream)
    except RuntimeError as error:
        raise TypeError(f"{name} takes ScriptModules that can be saved; this one cannot: {error}") from error
    stream.seek(0)
    return torch.jit.load(stream)._c


def result(model: Any, made: Any, inplace: bool) -> Any:
    """`made`, a `torch._C.ScriptModule`, as a model for people: a new one, or `model`, which now is that."""
    if not inplace:
        return torch.jit._recursive.wrap_cpp_module(made)
    model._reconstruct(made)
    return model
