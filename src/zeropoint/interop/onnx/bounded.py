"""Constants that are computed when a file is read: a few bytes may ask for terabytes."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class TooManyElements(ValueError):
    """An operator would give more elements than are left."""


class Bounded(TorchDispatchMode):
    """Inside, an operator that gives more elements than `most` is refused before it is computed.

    Example:
        >>> import torch
        >>> with Bounded(100):
        ...     torch.ones(20, 1) * torch.ones(20)
        Traceback (most recent call last):
        ...
        zeropoint.interop.onnx.bounded.TooManyElements: 400 elements
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        count = _elements(func, args, kwargs)
        if count > self._most:
            raise TooManyElements(f"{count} elements")
        return func(*args, **kwargs)


def _elements(func: Any, args: Any, kwargs: dict[str, Any]) -> int:
    """Of the result, by the operator's rule for shapes. Where sizes depend on values there is none."""
    args, kwargs = pytree.tree_map_only(Tensor, lambda t: t.to("meta"), (args, kwargs))
    if any(argument.name == "device" for argument in func._schema.arguments):
        kwargs = {**kwargs, "device": "meta"}
    try:
        made = func(*args, **kwargs)
    except Exception:  # it is refused in words when it is computed
        return 0
    return sum(t.numel() for t in pytree.tree_leaves(made) if isinstance(t, Tensor))
