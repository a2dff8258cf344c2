"""What stands directly in `torch` and in torch.Tensor."""

from __future__ import annotations

from typing import Any

import torch

from zeropoint.compat import names
from zeropoint.compat.absent import absent
from zeropoint.compat.changes import Changes
from zeropoint.compat.modules import resolve
from zeropoint.tensor.create import dequantize
from zeropoint.tensor.qtensor import QTensor

_NO_BASE = object()


def _method(name: str) -> Any:
    """A method of torch.Tensor for tensors that are not quantized; QTensors have their own, which may call this one."""
    inherited = getattr(torch._C.TensorBase, name, _NO_BASE)

    def of_plain_tensor(self: torch.Tensor) -> Any:
        if inherited is not _NO_BASE and isinstance(self, QTensor):
            return inherited(self)
        if name == "dequantize":
            return dequantize(self)
        raise RuntimeError(f"{name}() is defined for quantized tensors, this one is {self.dtype}")

    of_plain_tensor.__name__ = of_plain_tensor.__qualname__ = name
    return of_plain_tensor


def replace_attributes(changes: Changes) -> None:
    """Put our functions, dtypes and methods where the old ones are, or were."""
    for name, found in names.entries(names.FUNCTIONS):
        value = resolve(found.path) if found.path else absent(f"torch.{name}", found.reason)
        changes.attribute(torch, name, value)
    for name, found in names.entries(names.VALUES):
        if not hasattr(torch, name):
            changes.attribute(torch, name, resolve(str(found.path)))
    for name in names.METHODS.split():
        if name == "is_quantized":  # an attribute, which is true of QTensors
            if not hasattr(torch.Tensor, name):
                changes.attribute(torch.Tensor, name, False)
        else:
            changes.attribute(torch.Tensor, name, _method(name))
