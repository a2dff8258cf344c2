"""Files of the old stack, read without the old code and without running anything that they hold.

A file of ``torch.save`` is a pickle with tensors beside it. `load` reads the pickle as records (see `pickle_records`)
and makes of them what this module knows: tensors, containers, modules of torch.nn, modules of torch.ao as ours, and
graphs of torch.fx. Everything else is refused by its name.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

import torch
from torch import Tensor, nn

from zeropoint.compat import lookup
from zeropoint.compat.checkpoints import is_quantized_storage, module_classes, rebuild_qtensor, stored_as
from zeropoint.compat.modules import resolve
from zeropoint.compat.objects import PICKLED, packed_weight
from zeropoint.compat.pickle_records import Persistent, Record, is_global, read_records
from zeropoint.compat.pickled import adopt
from zeropoint.compat.state_files import read_state_dict, write_state_dict
from zeropoint.compat.zip_records import File, ZipRecords, opened, zip_records
from zeropoint.described import described, shortened
from zeropoint.graph.code_names import require_plain
from zeropoint.numerics.dtypes import DTYPES, quantized_dtype
from zeropoint.numerics.schemes import SCHEMES, qscheme
from zeropoint.qconfig import QConfig
from zeropoint.regular_file import Allowance

_HOOKS = tuple(name for name in vars(nn.Module()) if name.endswith("_hooks") or "_hooks_" in name)
_MOST_ELEMENTS = 2**40  # as in programs; more is no tensor's size or stride
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def load(file: File, classes: Iterable[type] = ()) -> Any:
    """What a file of the old stack holds, on zeropoint: a state_dict, a module, a graph, or a TorchScript module.

    It needs neither ``zeropoint.compat.install()`` nor a PyTorch that still has quantization, and nothing in the file
    is run.

    Args:
        file: written by ``torch.save``, ``torch.jit.save``, or `convert`.
        classes: your own classes that the file may have objects of. Their ``__setstate__``, if they define one, is the
            only code of theirs that is called.

    Raises:
        ValueError: if the file is damaged, or is none of these.
        NotImplementedError: if it names a class or function that is not known; the message has its name.

    Example:
        >>> import io
        >>> buffer = io.BytesIO()
        >>> torch.save({"weight": torch.ones(2)}, buffer)
        >>> load(io.BytesIO(buffer.getvalue()))
        {'weight': tensor([1., 1.])}
    """
    if isinstance(file, (str, os.PathLike)) and os.fspath(file).endswith(".safetensors"):
        return read_state_dict(file)
    with _refusing_damage(file):
        archive = _Archive(file)
        if not archive.is_script:
            return _Builder({f"{c.__module__}.{c.__qualname__}": c for c in classes}).built(archive.content)
    from zeropoint.compat.script_files import load_script

    return load_script(file)


def load_state_dict(file: File) -> dict[str, Any]:
    """The state_dict in a file, or of the module in it, whose own classes are not needed for that.

    Raises:
        ValueError: if the file holds neither.

    Example:
        >>> import io
        >>> buffer = io.BytesIO()
        >>> torch.save(nn.Linear(2, 1), buffer)
        >>> list(load_state_dict(io.BytesIO(buffer.getvalue())))
        ['weight', 'bias']
    """
    with _refusing_damage(file):
        archive = _Archive(file)
        found = None if archive.is_script else _Builder({}, shells=True).built(archive.content)
        state: Any = found.state_dict() if isinstance(found, nn.Module) else found
    if archive.is_script:
        from zeropoint.compat.script_files import load_script

        found = load_script(file)
        state = found.state_dict()
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]  # a checkpoint of a training program
    if not isinstance(state, Mapping) or not state:
        raise ValueError(f"{_shown(file)} must contain a state_dict or a module with one, got {type(found).__name__}")
    return dict(state)


def convert(file: File, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Write the state_dict of a torch.ao checkpoint to a safetensors file, and return it.

    `zeropoint.compat.load` reads the new file. Its result can be loaded into zeropoint modules.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save(nn.Linear(2, 1), f"{folder}/old.pt")
        ...     _ = convert(f"{folder}/old.pt", f"{folder}/new.safetensors")
        ...     sorted(load(f"{folder}/new.safetensors"))
        ['bias', 'weight']
    """
    state = load_state_dict(file)
    write_state_dict(state, path)
    return state


_OF_DAMAGE = (
    AttributeError, TypeError, LookupError, ArithmeticError, AssertionError, RuntimeError, OSError, UnicodeDecodeError,
)  # fmt: skip


@contextlib.contextmanager
def _refusing_damage(file: File) -> Iterator[None]:
    """What no check has seen is found where the parts are put together: one is missing, or is something else."""
    try:
        yield
    except (NotImplementedError, io.UnsupportedOperation):
        raise
    except _OF_DAMAGE as error:
        if isinstance(error, OSError) and error.filename is not None:  # it cannot be opened
            raise
        what = shortened(f"{_shown(file)} is damaged: its parts do not fit ({type(error).__name__}: {error})")
        raise ValueError(what) from error


def _shown(file: File) -> str:
    return os.fspath(file) if isinstance(file, (str, os.PathLike)) else "the file"


# ------------------------------------------------------------------------------------------------------------- archive


class _Storage:
    """Memory that a file has, and what its elements are."""

    def __init__(self, kind: str, data: bytes, count: int, allowance: Allowance) -> None:
        name = kind.removeprefix("torch.").removesuffix("Storage")
        dtype = stored_as(name)
        if dtype is None:
            raise NotImplementedError(f"storage of the kind {kind} is not supported")
        self.dtype = dtype
        if count < 0 or count * dtype.itemsize > len(data):
            raise ValueError(f"the file is damaged: it declares {count} elements of {kind}, but has {len(data)} bytes")
        self.quantized = is_quantized_storage(name)
        self.untyped = torch.frombuffer(bytearray(data), dtype=torch.uint8).untyped_storage() if data else None
        self.bytes = len(data)
        self._allowance = allowance

    @property
    def _untyped_storage(self) -> Any:
        return torch.UntypedStorage(0) if self.untyped is None else self.untyped

    def tensor(self, offset: int, size: Iterable[int], stride: Iterable[int]) -> Tensor:
        size, stride = [int(n) for n in size], [int(n) for n in stride]
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        numbers = [offset, *size, *stride]
        fits = 0 in size or (last + 1) * self.dtype.itemsize <= self.bytes
        if not fits or min(numbers) < 0 or max(numbers) > _MOST_ELEMENTS:
            raise ValueError(
                f"the file is damaged: a tensor of shape {tuple(size)} exceeds its storage of {self.bytes} bytes"
            )
        self.require_memory(size)
        return torch.empty(0, dtype=self.dtype).set_(self._untyped_storage, offset, size, stride)

    def require_memory(self, size: Iterable[int], per_byte: int = 1) -> None:
        """Count a tensor that repeats its memory (a stride of 0): whoever copies it takes as much as its shape says."""
        count = math.prod(size) * self.dtype.itemsize // per_byte
        if count > self.bytes:
            self._allowance.take(count, f"a tensor of shape {tuple(size)}, in {self.bytes} bytes,")


class _Archive:
    """The pickle of a file, as records, with its memory."""

    def __init__(self, file: File) -> None:
        self._storages: dict[str, _Storage] = {}
        self.is_script = False
        try:
            with zip_records(file) as archive:
                self._open(archive, _shown(file))
        except zipfile.BadZipFile:
            with opened(file) as stream:
                self._legacy(stream, _shown(file))

    def _open(self, archive: ZipRecords, shown: str) -> None:
        names = archive.names
        root = names[0].split("/")[0] if names else ""
        self.is_script = f"{root}/constants.pkl" in names
        if self.is_script:
            return
        if f"{root}/data.pkl" not in names:
            raise ValueError(f"{shown} is not a torch.save file: it has no data.pkl")
        if f"{root}/byteorder" in names and archive.read(f"{root}/byteorder") != b"little":
            raise NotImplementedError(
                f"{shown} was written on a machine with another byte order, which is not supported"
            )

        def storage(pid: Any) -> _Storage:
            kind, key, count = storage_id(pid)
            if key not in self._storages:
                record = f"{root}/data/{key}"
                if record not in names:
                    raise ValueError(f"{shown} is damaged: {record} is missing")
                self._storages[key] = _Storage(kind, archive.read(record), count, archive.allowance)
            return self._storages[key]

        self.content = read_records(archive.read(f"{root}/data.pkl"), storage)

    def _legacy(self, stream: IO[bytes], shown: str) -> None:
        """A file of ``torch.save`` before PyTorch 1.6: pickles one after the other, then the memory."""
        parts = _Parts(stream)
        allowance = Allowance(parts.size)
        if parts.read(len(_LEGACY_MAGIC)) != _LEGACY_MAGIC:
            raise ValueError(f"{shown} is not a torch.save or torch.jit.save file")
        wanted: dict[str, tuple[str, int]] = {}

        def seen(pid: Any) -> _Later:
            kind, key, count = storage_id(pid)
            if len(pid) > 5 and pid[5] is not None:
                raise NotImplementedError(
                    f"{shown} has storage views, a format of PyTorch before 0.4 that is not supported"
                )
            wanted[key] = kind, count
            return _Later(self._storages, key)

        for _ in range(2):  # the version and what the machine was
            read_records(parts, seen)
        self.content = read_records(parts, seen)
        for key in read_records(parts, seen):
            kind, count = wanted.get(str(key)) or _refuse_key(key)
            header = parts.read(8)
            size = count * _Storage(kind, b"", 0, allowance).dtype.itemsize
            memory = parts.read(size)
            if int.from_bytes(header, "little") != count or len(memory) != size:
                raise ValueError(f"{shown} is truncated or damaged")
            self._storages[str(key)] = _Storage(kind, memory, count, allowance)


class _Parts:
    """A file that is read in parts, whose sizes it claims: no more memory is taken for one than is left of the file."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        self._stream, self.readline = stream, stream.readline

    def read(self, count: int) -> bytes:
        return self._stream.read(min(count, self.size - self._stream.tell()))


class _Later:
    """Memory that comes behind the pickle that names it."""

    def __init__(self, storages: dict[str, _Storage], key: str) -> None:
        self._storages, self._key = storages, key

    def found(self) -> _Storage:
        if self._key not in self._storages:
            raise ValueError(f"the file is damaged: the storage {self._key!r} of a tensor is missing")
        return self._storages[self._key]


def _refuse_key(key: Any) -> Any:
    raise ValueError(f"the file is damaged: no tensor uses the storage {str(key)[:40]!r}")


def storage_id(pid: Any) -> tuple[str, str, int]:
    if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and is_global(pid[1])):
        raise ValueError("the file is damaged: it refers to an external object that is not a tensor storage")
    if not isinstance(pid[4], int):
        raise ValueError(f"the file is damaged: the size of a storage is a {type(pid[4]).__name__}")
    if not isinstance(pid[2], str) or len(pid[2]) > 100:
        raise ValueError(f"the file is damaged: the key of a storage is {described(pid[2])}")
    return pid[1].name, pid[2], pid[4]


# ------------------------------------------------------------------------------------------------------------ building


class _Shell(nn.Module):
    """A module whose class is not needed: its parameters, buffers and submodules."""


# Hooks that save packed weights of a graph with it: zeropoint's graphs hold them as attributes, which are saved anyway.
_OWN_HOOKS = frozenset(
    f"torch.ao.quantization.fx._lower_to_native_backend.{name}"
    for name in ("_save_packed_weight", "_load_packed_weight")
)


def _hook_name(hook: Any) -> str:
    """The function of a hook; torch wraps those that are called with their module."""
    if isinstance(hook, Record) and hook.name == "torch.nn.modules.module._WrappedHook":
        state = hook.state if isinstance(hook.state, dict) else {}
        return _hook_name(state.get("hook"))
    return hook.name if is_global(hook) or isinstance(hook, Record) else type(hook).__name__


@functools.cache
def _old_hooks() -> dict[str, Any]:
    """The hooks of a model with observers, by their old paths."""
    places = ("torch.ao.quantization.quantize", "torch.quantization.quantize")
    known = lookup.names_of(places[0])
    hooks = {name: resolve(str(c.path)) for name, c in known.items() if name.startswith("_observer_forward")}
    return {f"{place}.{name}": hook for place in places for name, hook in hooks.items()}


@functools.cache
def _known_modules() -> dict[str, type[nn.Module]]:
    return {path: ours for ours, path in module_classes()}


def _module_class(name: str) -> type[nn.Module] | None:
    """The class for a module that a file names: zeropoint's, or one of torch.nn."""
    if name in _known_modules():
        return _known_modules()[name]
    path, _, last = name.rpartition(".")
    if path == "torch.nn" or path.startswith("torch.nn.modules."):
        found = getattr(nn, last, None)
        if isinstance(found, type) and issubclass(found, nn.Module):
            return found
    return None


class StoredTensor(Persistent):
    """Memory in a file, with what the pickle says about it."""

    def __init__(self, pid: Any, kind: str, data: bytes, count: int, allowance: Allowance) -> None:
        super().__init__(pid)
        self._parts = kind, data, count, allowance

    def found(self) -> _Storage:
        return _Storage(*self._parts)


def built(content: Any) -> Any:
    """What records stand for that name no classes of users."""
    return _Builder({}).built(content)


class _Builder:
    """Makes objects of records, each once. `shells`: modules of unknown classes become modules without a class."""

    def __init__(self, classes: Mapping[str, type], shells: bool = False) -> None:
        self._classes, self._shells = classes, shells
        self._made: dict[int, Any] = {}

    def built(self, value: Any) -> Any:
        try:
            return self._of(value)
        except RecursionError as error:
            raise ValueError("the file is damaged: its objects are nested too deeply") from error

    def _of(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return value
        if isinstance(value, (_Later, StoredTensor)):
            return value.found()
        if isinstance(value, _Storage):
            return value
        if id(value) not in self._made:
            self._made[id(value)] = value  # for what refers to itself; below it is what was made of it
            self._made[id(value)] = self._new(value)
        return self._made[id(value)]

    def _new(self, value: Any) -> Any:
        if is_global(value):
            return _value(value.name)
        if isinstance(value, Record):
            return self._object(value)
        if isinstance(value, dict):
            return {self._of(k): self._of(v) for k, v in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return type(value)(self._of(v) for v in value)
        raise NotImplementedError(f"the file contains a {type(value).__name__}, which is not supported")

    def _object(self, record: Record) -> Any:
        name = record.name
        if name in _MAKERS:
            return _MAKERS[name](self, record)
        if name in self._classes:
            return self._user_object(record, self._classes[name])
        cls = _module_class(name)
        if cls is not None:
            return self._module(record, cls)
        if self._shells and isinstance(record.state, dict) and "_modules" in record.state:
            return self._module(record, _Shell)
        raise NotImplementedError(
            f"the file contains an object of {name}. zeropoint does not load it, because this could execute code. "
            f"If you trust the class, pass it: zeropoint.compat.load(file, classes=[{name.rpartition('.')[2]}]). "
            "To get only the tensors, use zeropoint.compat.convert"
        )

    def _module(self, record: Record, cls: type[nn.Module]) -> nn.Module:
        if any(arg for arg in record.args if not is_global(arg)):
            raise ValueError(f"the file is damaged: it calls {record.name} with arguments, but modules have a state")
        made: Any = object.__new__(cls)
        self._made[id(record)] = made
        state = self._module_state(record.state) if isinstance(record.state, dict) else self._of(record.state)
        if not isinstance(state, (dict, tuple)):
            raise ValueError(f"the file is damaged: there is no state for a module of {record.name}")
        adopt(made, state)
        return made

    def _module_state(self, state: dict[Any, Any]) -> dict[str, Any]:
        """The attributes of a module. Hooks are functions: the old stack's become zeropoint's, others are refused."""
        hooks = {name: self._hooks(name, state[name]) for name in _HOOKS if name in state}
        made = {str(k): self._of(v) for k, v in state.items() if k not in hooks} | hooks
        for kind in ("_modules", "_parameters", "_buffers"):
            for name in () if self._shells else made.get(kind) or ():
                require_plain(name, "a module or tensor in the file")
        return made

    def _hooks(self, kind: str, listed: Any) -> OrderedDict[Any, Any]:
        made: OrderedDict[Any, Any] = OrderedDict()
        if self._shells:  # tensors are read, and nothing is called
            return made
        for key, hook in listed.items.items() if isinstance(listed, Record) else listed.items():
            name = _hook_name(hook)
            if name in _OWN_HOOKS:
                continue
            if kind.endswith(("_with_kwargs", "_always_called")) and isinstance(hook, bool):
                made[key] = hook
                continue
            ours = _old_hooks().get(name)
            if ours is None:
                raise NotImplementedError(
                    f"a module in the file has a hook, {name}. zeropoint does not load it, because this could "
                    "execute code. Remove the hook before you save the module, or get only the tensors with "
                    "zeropoint.compat.convert"
                )
            made[key] = ours
        return made

    def _user_object(self, record: Record, cls: type) -> Any:
        if issubclass(cls, nn.Module) and not _defines_state(cls):
            return self._module(record, cls)
        made: Any = object.__new__(cls)
        self._made[id(record)] = made
        state = self._of(record.state)
        if hasattr(made, "__setstate__"):
            made.__setstate__(state)
        else:
            vars(made).update(state or {})
        return made


def _defines_state(cls: type) -> bool:
    return getattr(cls, "__setstate__", None) not in (nn.Module.__setstate__, None)


def _value(name: str) -> Any:
    """What a file names without calling it: a dtype or a scheme."""
    module, _, last = name.rpartition(".")
    if module == "torch" and last in DTYPES:
        return quantized_dtype(last)
    if module == "torch" and last in SCHEMES:
        return qscheme(last)
    if module == "torch" and isinstance(getattr(torch, last, None), torch.dtype):
        return getattr(torch, last)
    found = _module_class(name)
    if found is not None:
        return found
    raise NotImplementedError(f"the file refers to {name}. zeropoint does not load it, because this could execute code")


# ---------------------------------------------------------------------------------------- what a record may stand for


def _arguments(builder: _Builder, record: Record, least: int, most: int) -> list[Any]:
    if not least <= len(record.args) <= most:
        raise ValueError(f"the file is damaged: it calls {record.name} with {len(record.args)} arguments")
    return [builder._of(arg) for arg in record.args]


def _tensor(builder: _Builder, record: Record) -> Tensor:
    storage, offset, size, stride, requires_grad, *_ = _arguments(builder, record, 4, 7) + [False] * 3
    if not isinstance(storage, _Storage) or not isinstance(offset, int):
        raise ValueError("the file is damaged: a tensor has no storage")
    made = storage.tensor(offset, size, stride)
    return made.requires_grad_(bool(requires_grad)) if made.is_floating_point() else made


def _quantized_tensor(builder: _Builder, record: Record) -> Tensor:
    args = _arguments(builder, record, 5, 7)
    if not isinstance(args[0], _Storage) or not args[0].quantized:
        raise ValueError("the file is damaged: a quantized tensor has no quantized storage")
    if args[0].dtype.itemsize > 1 or not args[0].dtype.is_floating_point:
        args[0].tensor(*args[1:4])  # it refuses what lies outside
        return rebuild_qtensor(*args, *[None] * (7 - len(args)))
    made = rebuild_qtensor(*args, *[None] * (7 - len(args)))  # 4 and 2 bits: refused there
    args[0].require_memory(made.shape, made._qdtype.per_byte)
    return made


def _parameter(builder: _Builder, record: Record) -> nn.Parameter:
    data, requires_grad, *_ = _arguments(builder, record, 2, 4)
    if not isinstance(data, Tensor):
        raise ValueError(f"the file is damaged: a parameter is a {type(data).__name__}")
    return nn.Parameter(data.detach(), bool(requires_grad) and data.is_floating_point())


def _ordered(builder: _Builder, record: Record) -> OrderedDict[Any, Any]:
    made: OrderedDict[Any, Any] = OrderedDict()
    builder._made[id(record)] = made
    for pair in record.args[0] if record.args else ():
        key, value = builder._of(pair)
        made[key] = value
    for key, value in record.items.items():
        made[builder._of(key)] = builder._of(value)
    if isinstance(record.state, dict):  # a state_dict has the versions of its modules
        vars(made).update({str(k): builder._of(v) for k, v in record.state.items()})
    return made


def _collection(kind: Callable[..., Any]) -> Callable[[_Builder, Record], Any]:
    return lambda builder, record: kind(*_arguments(builder, record, 0, 1))


def _packed(builder: _Builder, record: Record) -> Any:
    state = builder._of(record.state)
    if not (isinstance(state, tuple) and len(state) == 2):
        raise ValueError("the file is damaged: a packed weight has no parts")
    return packed_weight(*state)


def _graph(builder: _Builder, record: Record) -> Any:
    from zeropoint.compat.graph_code import graph_module

    body = record.args[0] if record.args else None
    if not isinstance(body, dict):
        raise ValueError("the file is damaged: a graph has no parts")
    # Hooks refer to the graph, and are dropped: it has none of its own yet.
    return graph_module(builder._module_state({k: v for k, v in body.items() if k not in _OF_TORCH_FX}))


# What torch.fx keeps for itself in a graph, and says nothing about what it computes.
_OF_TORCH_FX = frozenset(
    ("_tracer_cls", "_tracer_extras", "meta", "_lineno_map", "_prologue_start", "shape_env", "_replace_hooks",
     "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks", "_graphmodule_cls_name")
)  # fmt: skip


def _device(builder: _Builder, record: Record) -> torch.device:
    return torch.device(*(str(a) if isinstance(a, str) else int(a) for a in _arguments(builder, record, 1, 2)))


_MAKERS: dict[str, Callable[[_Builder, Record], Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_qtensor": _quantized_tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.nn.parameter.Parameter": _parameter,
    "torch.device": _device,
    "torch.Size": _collection(torch.Size),
    "collections.OrderedDict": _ordered,
    **dict.fromkeys(("builtins.set", "__builtin__.set"), _collection(set)),
    **dict.fromkeys(("builtins.frozenset", "__builtin__.frozenset"), _collection(frozenset)),
    **dict.fromkeys(PICKLED, _packed),
    "torch.fx.graph_module.reduce_graph_module": _graph,
    **dict.fromkeys(
        ("torch.ao.quantization.qconfig.QConfig", "torch.quantization.qconfig.QConfig"),
        lambda builder, record: QConfig(*_arguments(builder, record, 2, 2)),
    ),
}
