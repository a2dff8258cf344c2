"""What stands directly in `torch` and in torch.Tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch._guards import TracingContext, detect_fake_mode

from zeropoint.compat import lookup, names
from zeropoint.compat.changes import Changes
from zeropoint.compat.missing_names import absent
from zeropoint.compat.modules import resolve
from zeropoint.context import CONTEXT
from zeropoint.numerics.dtypes import QuantizedDtype
from zeropoint.numerics.named_constant import Named
from zeropoint.tensor.create import dequantize
from zeropoint.tensor.qtensor import QTensor

_SHARED = QTensor.int_repr


def _method(name: str) -> Any:
    """A method of torch.Tensor for tensors that are not quantized; QTensors have their own, which may call this one."""
    inherited: Any = getattr(torch._C.TensorBase, name, None)

    def of_plain_tensor(self: torch.Tensor) -> Any:
        if inherited is not None and self.is_quantized:  # one of PyTorch's, from a TorchScript file, has it, too
            return inherited(self)
        if name == "dequantize":
            return dequantize(self)
        raise RuntimeError(f"{name}() is defined for quantized tensors, got {self.dtype}")

    of_plain_tensor.__name__ = of_plain_tensor.__qualname__ = name
    return of_plain_tensor


def _shown(value: Any) -> Any:
    """torch's own object for a dtype or scheme of zeropoint, as long as PyTorch has it."""
    return getattr(torch, value.name, value)


def _is_traced() -> bool:
    """Whether torch.compile or torch.export is at work: to them a QTensor has to be what it is to torch, of floats."""
    return torch.compiler.is_compiling() or TracingContext.try_get() is not None or detect_fake_mode() is not None


def _dtype(self: QTensor) -> Any:
    return torch.float32 if _is_traced() else _shown(self._qdtype)


def _is_quantized(self: QTensor) -> bool:
    return not _is_traced()


def _is_floating_point(self: QTensor) -> bool:
    """False: Module.half() and relatives leave quantized tensors alone."""
    return _is_traced()


def _is_signed(self: QTensor) -> bool:
    return self._qdtype.signed


def _int_repr(self: QTensor) -> torch.Tensor:
    """A copy, as PyTorch gives one: old code may write into it."""
    return _SHARED(self).clone()


def _qscheme(self: QTensor) -> Any:
    return _shown(self._quantizer.scheme)


def _replace_values(changes: Changes) -> None:
    """Let dtypes and schemes of zeropoint be taken for torch's; where torch has none, they are torch's names.

    Pickle then writes them as PyTorch writes its own, so files are the same.
    """
    changes.attribute(CONTEXT, "torch_classes", {"dtype": torch.dtype})
    for name in ("is_floating_point", "is_complex"):
        changes.attribute(QuantizedDtype, name, False)
    for name, found in lookup.entries(names.VALUES):
        if not hasattr(torch, name):
            value = resolve(str(found.path))
            changes.attribute(torch, name, value)
            if isinstance(value, Named):
                changes.item(vars(value), "__module__", "torch")
    changes.attribute(CONTEXT, "torch_classes", {"dtype": torch.dtype, "qscheme": torch.qscheme})


def replace_attributes(changes: Changes) -> None:
    """Put our functions, dtypes and methods where the old ones are, or were."""
    for name, found in lookup.entries(names.FUNCTIONS):
        value = resolve(found.path) if found.path else absent(f"torch.{name}", found.reason)
        changes.attribute(torch, name, value)
    _replace_values(changes)
    for name in names.METHODS.split():
        if name == "is_quantized":  # an attribute, which is true of QTensors
            if not hasattr(torch.Tensor, name):
                changes.attribute(torch.Tensor, name, False)
        else:
            changes.attribute(torch.Tensor, name, _method(name))
    # Old code asks isinstance(q.qscheme(), torch.qscheme), q.dtype is torch.quint8, and reads what is printed.
    changes.attribute(QTensor, "dtype", property(_dtype))
    changes.attribute(QTensor, "is_quantized", property(_is_quantized))
    changes.attribute(QTensor, "is_floating_point", _is_floating_point)
    changes.attribute(QTensor, "is_signed", _is_signed)
    changes.attribute(QTensor, "qscheme", _qscheme)
    changes.attribute(QTensor, "int_repr", _int_repr)
