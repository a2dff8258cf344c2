"""Pickles read, and written again, without running them: what a file names becomes a record, which nothing calls.

``pickle`` builds an object by looking up a class or function that the file names and calling it, so a hostile file runs
what it likes. Here every such name gives a subclass of `Record`, which only keeps the arguments and the state that the
file has for it. What is made of a record is decided afterwards, by `zeropoint.compat.old_files`.
"""

from __future__ import annotations

import functools
import io
import pickle
import struct
from collections.abc import Callable
from typing import Any


class Record:
    """An object as a file describes it: `name` of its class or function, the arguments, the state, the items."""

    name = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Record:
        made = object.__new__(cls)
        made.args = args
        made.kwargs = kwargs
        made.state = None
        made.items = {}
        made.is_called = False
        return made

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    state: Any
    items: dict[Any, Any]
    is_called: bool  # made by a call, and not as an object of a class whose state follows

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.is_called = True  # pickle calls only `__new__` for the other kind

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def __repr__(self) -> str:
        return f"<{self.name} of a file>"


def is_global(value: Any) -> bool:
    """Whether a value is a class or function that a file names, and not an object made with it."""
    return isinstance(value, type) and issubclass(value, Record)


@functools.cache
def named_record(name: str) -> type[Record]:
    """The class of records for what files call `name`.

    Example:
        >>> named_record("torch.Size").name
        'torch.Size'
    """
    return type(name.rpartition(".")[2], (Record,), {"name": name})


# The unpickler in Python: that in C takes gigabytes for a pickle of ten bytes, which names a place in its memo.
_Unpickler: Any = pickle._Unpickler


_LONGEST_NAME = 400  # of a class or function, with its module
_TEXTS = (
    pickle.INT, pickle.LONG, pickle.FLOAT, pickle.STRING, pickle.UNICODE, pickle.BINUNICODE, pickle.SHORT_BINUNICODE,
    pickle.BINUNICODE8,
)  # fmt: skip


def _of_text(read: Callable[[Any], None]) -> Callable[[Any], None]:
    """Reads what is a text in the pickle; Python's errors about it repeat the whole text."""

    def load(self: Any) -> None:
        try:
            read(self)
        except ValueError as error:
            raise pickle.UnpicklingError(f"it has a text that is not what it should be: {str(error)[:80]}") from error

    return load


class _Reader(_Unpickler):
    """Finds a class of records for every name, and refuses keys that cannot be hashed in a reasonable time."""

    dispatch = dict(_Unpickler.dispatch)  # opcodes that are read in another way
    dispatch.update({code[0]: _of_text(_Unpickler.dispatch[code[0]]) for code in _TEXTS})

    def __init__(self, file: Any, persistent: Callable[[Any], Any]) -> None:
        super().__init__(file)
        self._persistent = persistent

    def find_class(self, module: str, name: str, /) -> Any:
        if len(module) + len(name) > _LONGEST_NAME:
            raise pickle.UnpicklingError(f"it has a name of {len(module) + len(name)} characters")
        return named_record(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][_hashable(key)] = value

    def load_setitems(self) -> None:
        items = self.pop_mark()
        for i in range(0, len(items), 2):
            self.stack[-1][_hashable(items[i])] = items[i + 1]

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.append({_hashable(items[i]): items[i + 1] for i in range(0, len(items), 2)})

    def load_additems(self) -> None:
        items = self.pop_mark()
        self.stack[-1].update(map(_hashable, items))

    def load_frozenset(self) -> None:
        self.append(frozenset(map(_hashable, self.pop_mark())))

    def load_bytearray8(self) -> None:  # allocated before it is read; torch.save writes none
        raise pickle.UnpicklingError("it has a bytearray")

    dispatch.update(
        {
            pickle.SETITEM[0]: load_setitem,
            pickle.SETITEMS[0]: load_setitems,
            pickle.DICT[0]: load_dict,
            pickle.ADDITEMS[0]: load_additems,
            pickle.FROZENSET[0]: load_frozenset,
            pickle.BYTEARRAY8[0]: load_bytearray8,
        }
    )


def _hashable(key: Any) -> Any:
    """A key of a dictionary or set. Hashing a tuple hashes its parts, however deep and however often shared."""
    layer, deepest, most = [key], 32, 1024
    for _ in range(deepest):
        layer = [part for value in layer if isinstance(value, tuple) for part in value]
        if not layer:
            return key
        if len(layer) > most:
            break
    raise ValueError("the file is damaged: a key of a dictionary or set is nested too deeply")


def read_records(data: Any, persistent: Callable[[Any], Any]) -> Any:
    """What a pickle describes, with records where it names classes and functions.

    Args:
        data: the pickle, or what has `read` and `readline` and stands where one begins.
        persistent: called with what the pickle says about an object that is stored beside it.

    Raises:
        ValueError: if it is no pickle, or a damaged one.

    Example:
        >>> import os
        >>> class Hostile:
        ...     def __reduce__(self):
        ...         return os.system, ("echo run",)
        >>> read_records(pickle.dumps(Hostile()), lambda pid: None).name
        'posix.system'
    """
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    try:
        return _Reader(file, persistent).load()
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):  # of a name
            raise ValueError(f"the file is damaged: cannot read its pickle: {error}") from error
        raise
    except (pickle.UnpicklingError, EOFError, KeyError, IndexError, AttributeError, TypeError, MemoryError) as error:
        raise ValueError(f"the file is damaged: cannot read its pickle: {error}") from error
    except (RecursionError, OverflowError, AssertionError, struct.error) as error:
        raise ValueError(f"the file is damaged: cannot read its pickle: {error}") from error


class Persistent:
    """An object beside the pickle: what the pickle says about it."""

    def __init__(self, pid: Any) -> None:
        self.pid = pid


# The pickler in Python, whose steps can be replaced; its annotations do not show them.
_Pickler: Any = pickle._Pickler


class _Writer(_Pickler):
    """Writes records as what they were read from."""

    def __init__(self, file: Any, replaced: Callable[[Any], Any]) -> None:
        super().__init__(file, protocol=2)
        self._replaced = replaced

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        obj = self._replaced(obj)
        if isinstance(obj, Persistent):
            self.save(obj.pid, save_persistent_id=False)
            self.write(pickle.BINPERSID)
        elif is_global(obj):
            self._save_name(obj)
        elif isinstance(obj, Record) and id(obj) not in self.memo:
            self._save_record(obj)
        else:
            super().save(obj, save_persistent_id)

    def _save_name(self, obj: type[Record]) -> None:
        if id(obj) in self.memo:
            self.write(self.get(self.memo[id(obj)][0]))
            return
        module, _, name = obj.name.rpartition(".")
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    def _save_record(self, obj: Record) -> None:
        self.save(type(obj))
        self.save(obj.args)
        self.write(pickle.REDUCE if obj.is_called else pickle.NEWOBJ)
        self.memoize(obj)
        if obj.items:
            self._batch_setitems(obj.items.items())
        if obj.state is not None:
            self.save(obj.state)
            self.write(pickle.BUILD)


def write_records(content: Any, replaced: Callable[[Any], Any] = lambda part: part) -> bytes:
    """A pickle of what `read_records` gave; `replaced` is given every part of it, and answers with what to write.

    Example:
        >>> written = write_records(read_records(pickle.dumps([1, slice(2)], 2), Persistent))
        >>> pickle.loads(written)
        [1, slice(None, 2, None)]
    """
    file = io.BytesIO()
    _Writer(file, replaced).dump(content)
    return file.getvalue()
