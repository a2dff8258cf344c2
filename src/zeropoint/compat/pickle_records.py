"""Pickles read without running them: what a file names becomes a record, which nothing calls.

``pickle`` builds an object by looking up a class or function that the file names and calling it, so a hostile file runs
what it likes. Here every such name gives a subclass of `Record`, which only keeps the arguments and the state that the
file has for it. What is made of a record is decided afterwards, by `zeropoint.compat.old_files`.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

__all__ = ["Record", "is_global", "read_records"]


class Record:
    """An object as a file describes it: `name` of its class or function, the arguments, the state, the items."""

    name = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Record:
        made = object.__new__(cls)
        made.args = args
        made.kwargs = kwargs
        made.state = None
        made.items = {}
        return made

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    state: Any
    items: dict[Any, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is left to do: `__new__` keeps the arguments, and calls of either kind end there."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def __repr__(self) -> str:
        return f"<{self.name} of a file>"


def is_global(value: Any) -> bool:
    """Whether a value is a class or function that a file names, and not an object made with it."""
    return isinstance(value, type) and issubclass(value, Record)


class _Reader(pickle.Unpickler):
    """Finds a class of records for every name."""

    def __init__(self, file: Any, persistent: Callable[[Any], Any]) -> None:
        super().__init__(file)
        self._persistent = persistent
        self._globals: dict[str, type[Record]] = {}

    def find_class(self, module: str, name: str, /) -> Any:
        path = f"{module}.{name}"
        if path not in self._globals:
            self._globals[path] = type(name.rpartition(".")[2], (Record,), {"name": path})
        return self._globals[path]

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)


def read_records(data: bytes | io.BufferedIOBase, persistent: Callable[[Any], Any]) -> Any:
    """What a pickle describes, with records where it names classes and functions.

    Args:
        data: the pickle, or a file that stands where one begins.
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
    except ValueError:
        raise
    except (pickle.UnpicklingError, EOFError, KeyError, IndexError, AttributeError, TypeError, MemoryError) as error:
        raise ValueError(f"not a pickle, or a damaged one: {error}") from error
    except (RecursionError, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"a pickle that cannot be read: {error}") from error
