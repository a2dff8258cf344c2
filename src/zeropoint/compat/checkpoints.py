"""Files of the old stack: their quantized tensors, packed weights and whole modules become zeropoint's."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from zeropoint.compat import lookup, names
from zeropoint.compat.changes import Changes
from zeropoint.compat.modules import resolve
from zeropoint.compat.objects import PICKLED, OldObject, is_packed_weight
from zeropoint.numerics.dtypes import DTYPES, quantized_dtype
from zeropoint.numerics.schemes import SCHEMES, qscheme
from zeropoint.tensor.qtensor import QTensor, rebuild

# A PyTorch without quantized dtypes reads their storages as these; 4 and 2 bits in bytes that are told from others.
_STORED_AS = {
    "qint8": torch.int8,
    "quint8": torch.uint8,
    "qint32": torch.int32,
    "quint4x2": torch.float8_e4m3fn,
    "quint2x4": torch.float8_e5m2,
}
_STORAGES = {
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
}


_PLAIN_STORAGES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
    "Bool": torch.bool, "ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128,
}  # fmt: skip


def stored_as(name: str) -> torch.dtype | None:
    """The dtype of the memory that a file calls ``torch.<name>Storage``; quantized ones as in `rebuild_qtensor`.

    Example:
        >>> stored_as("Float"), stored_as("QInt8")
        (torch.float32, torch.int8)
    """
    if f"{name}Storage" in _STORAGES:
        return _STORED_AS[_STORAGES[f"{name}Storage"]]
    return _PLAIN_STORAGES.get(name)


def is_quantized_storage(name: str) -> bool:
    """Whether the memory that a file calls ``torch.<name>Storage`` is that of a quantized tensor."""
    return f"{name}Storage" in _STORAGES


class OldStorage:
    """What a file calls torch.QInt8Storage and relatives, where PyTorch has none."""

    def __init__(self, name: str) -> None:
        self.dtype = _STORED_AS[_STORAGES[name]]


def rebuild_qtensor(
    storage: Any, storage_offset: int, size: Any, stride: Any, quantizer_params: Any, requires_grad: bool, hooks: Any
) -> QTensor:
    """What torch.load calls for a quantized tensor of PyTorch's: the same integers and qparams as a QTensor.

    Raises:
        ValueError: if the parts do not fit together, as in a damaged file.
    """
    stand_ins = {dtype: name for name, dtype in _STORED_AS.items()}
    kind = quantized_dtype(stand_ins.get(storage.dtype, storage.dtype))
    scheme, *parameters = quantizer_params
    if qscheme(scheme).per_channel:
        scales, zero_points, axis = parameters
        if isinstance(scales, list):  # as PyTorch wrote them once
            is_float = qscheme(scheme).float_zero_point
            scales = torch.tensor(scales, dtype=torch.float32 if is_float else torch.float64)
            zero_points = torch.tensor(zero_points, dtype=torch.float32 if is_float else torch.int64)
        parameters = [scales, zero_points, axis]
    memory = torch.empty(0, dtype=kind.torch_storage, device=storage._untyped_storage.device)
    if kind.bits >= 8:
        return rebuild(
            memory.set_(storage._untyped_storage, storage_offset, size, stride), kind.name, (*parameters,), None
        )
    data = memory.set_(storage._untyped_storage, 0, (storage._untyped_storage.nbytes(),), (1,))
    return rebuild(data, kind.name, (*parameters,), (tuple(size), tuple(stride), storage_offset))


_InPython: Any = vars(pickle)["_Unpickler"]


class _WithObjects(_InPython):
    """Reads objects of C++ classes: packed weights become zeropoint's, those of other libraries are read by torch.

    Which of them an object is, its state says, which comes after it. So this is the reader written in Python.
    """

    dispatch = dict(_InPython.dispatch)

    def __init__(self, finder: Unpickler, file: Any, **options: Any) -> None:
        super().__init__(file, **options)
        self.find_class, self.persistent_load = finder.find_class, finder.persistent_load

    def load_build(self) -> None:
        made, state = self.stack[-2:]
        if type(made) is OldObject and not is_packed_weight(state[1]):
            theirs = torch._C.ScriptObject.__new__(torch._C.ScriptObject)
            self.stack[-2] = theirs
            self.memo.update({key: theirs for key, value in self.memo.items() if value is made})
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build


class Unpickler(pickle.Unpickler):
    """Finds zeropoint's for what only files name; the names that people use are in `zeropoint.compat.names`."""

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, **options)
        self._file, self._options = file, options

    def load(self) -> Any:
        if isinstance(self._file, io.BytesIO) and b"ScriptObject" in self._file.getvalue():
            return _WithObjects(self, self._file, **self._options).load()
        return super().load()

    def find_class(self, module: str, name: str, /) -> Any:
        if f"{module}.{name}" in PICKLED:
            return OldObject
        if module == "torch" and name in _STORAGES and not hasattr(torch, name):
            return OldStorage(name)
        return super().find_class(module, name)


def _pickle() -> ModuleType:
    """The module pickle, with our `Unpickler`, for torch.load."""
    made = ModuleType("pickle", pickle.__doc__)
    vars(made).update({name: value for name, value in vars(pickle).items() if not name.startswith("__")})
    vars(made)["Unpickler"] = Unpickler
    return made


def module_classes() -> Iterator[tuple[type, str]]:
    """Our modules with the paths that files may have for them: loading one runs no code of it but `__setstate__`."""
    for path, table in names.MODULES.items():
        older = [old + path[len(new) :] for old, new in names.MOVED.items() if path.startswith(new)]
        for name, found in lookup.entries(table):
            ours = resolve(found.path) if found.path and name.lstrip("_")[:1].isupper() else None
            if isinstance(ours, type) and issubclass(ours, torch.nn.Module):
                yield from ((ours, f"{place}.{name}") for place in (path, *older))


def replace_loading(changes: Changes) -> None:
    """Let torch.load, with weights_only or without, make QTensors of quantized tensors and know our modules."""
    from torch import _weights_only_unpickler

    from zeropoint.compat.pickled import adopt_pickled_modules

    changes.attribute(torch._utils, "_rebuild_qtensor", rebuild_qtensor)
    changes.attribute(torch.serialization, "pickle", _pickle())
    allowed = _weights_only_unpickler._get_allowed_globals()
    changes.item(allowed, "torch._utils._rebuild_qtensor", rebuild_qtensor)
    for name, kind in DTYPES.items():
        if getattr(torch, name) is kind:  # zeropoint's, as PyTorch has none
            changes.item(allowed, f"torch.{name}", kind)
    for name, scheme in SCHEMES.items():
        if getattr(torch, name) is scheme:
            changes.item(allowed, f"torch.{name}", scheme)
    for name in _STORAGES:
        if not hasattr(torch, name):
            changes.item(allowed, f"torch.{name}", OldStorage(name))
    safe: list[Any] = [quantized_dtype, qscheme, *((OldObject, name) for name in PICKLED), *module_classes()]
    torch.serialization.add_safe_globals(safe)
    changes.later(lambda: _weights_only_unpickler._remove_safe_globals(safe))
    adopt_pickled_modules(changes)
