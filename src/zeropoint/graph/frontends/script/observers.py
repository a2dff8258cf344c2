"""Observers in ScriptModules: scripted, with the facts about them that TorchScript does not know kept beside them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.graph import torch_internals as internals
from zeropoint.numerics.dtypes import DTYPES
from zeropoint.qconfig import QConfig

_TEMPLATES: dict[Any, Any] = {}


def scripted(observer: Any) -> Any:
    """A new observer as `torch._C.ScriptModule`. What is alike is compiled once and copied."""
    settings = tuple(sorted((k, repr(v)) for k, v in vars(observer).items() if not k.startswith("_")))
    state = tuple((name, tuple(b.shape), str(b.flatten()[:4])) for name, b in observer.named_buffers())
    key = (type(observer), settings, state)
    if key not in _TEMPLATES:
        _TEMPLATES[key] = torch.jit.script(observer)
    return copy.deepcopy(_TEMPLATES[key])._c


def script_qconfig(qconfig: Any) -> Any:
    """A QConfig whose two observers are made and scripted.

    Example:
        >>> import zeropoint
        >>> torch.jit._recursive.wrap_cpp_module(script_qconfig(zeropoint.default_qconfig).weight).original_name
        'MinMaxObserver'
    """
    return QConfig(activation=scripted(qconfig.activation()), weight=scripted(qconfig.weight()))


def _name(dtype: Any) -> str:
    return str(dtype).rsplit(".", 1)[-1]


def facts_of(observer: Any) -> dict[str, Any]:
    """What graph mode asks an observer for, as plain values."""
    return {
        "dtype": _name(observer.dtype),
        "qscheme": str(getattr(observer, "qscheme", "")),
        "ch_axis": int(getattr(observer, "ch_axis", 0)),
        "reduce_range": bool(getattr(observer, "reduce_range", False)),
        "is_dynamic": bool(getattr(observer, "is_dynamic", False)),
        "custom_op": str(getattr(observer, "custom_op", "")),
    }


class Scripted(nn.Module):
    """A scripted observer as graph mode knows observers. `module` is None for one that only says what is wanted."""

    def __init__(self, facts: dict[str, Any], module: Any = None) -> None:
        super().__init__()
        name = facts["dtype"]
        self.dtype: Any = DTYPES[name] if name in DTYPES else getattr(torch, name)
        self.qscheme, self.ch_axis = facts["qscheme"], facts["ch_axis"]
        self.reduce_range, self.is_dynamic = facts["reduce_range"], facts["is_dynamic"]
        self.custom_op = facts["custom_op"]
        self.inner: Any = None if module is None else internals.torchscript_module(module)

    @property
    def min_val(self) -> Tensor | None:
        return getattr(self.inner, "min_val", None)

    def forward(self, x: Tensor) -> Tensor:
        return x if self.inner is None else self.inner(x)

    def calculate_qparams(self) -> Any:
        return self.inner.calculate_qparams()
