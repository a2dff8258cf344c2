"""The old modules, with the names of the table in them.

A module that is loaded already is changed in place, as people hold references to it; the others are put into
`sys.modules` without loading anything of PyTorch's. Names are looked up when they are used first.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from zeropoint.compat import names
from zeropoint.compat.absent import absent
from zeropoint.compat.changes import Changes


def resolve(path: str) -> Any:
    """What a dotted path of ours names.

    Example:
        >>> resolve("zeropoint.nn.qat.Linear").__name__
        'Linear'
    """
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _looking_up(module: ModuleType, known: dict[str, names.Counterpart], reason: str) -> Any:
    path = module.__name__

    def __getattr__(name: str) -> Any:
        found = known.get(name)
        if found is None and reason and not name.startswith("__"):
            found = names.Counterpart(None, reason)
        if found is None:
            raise AttributeError(f"module {path!r} has no attribute {name!r}")
        value = resolve(found.path) if found.path else absent(f"{path}.{name}", found.reason)
        vars(module)[name] = value
        return value

    return __getattr__


def _fill(module: ModuleType, reason: str) -> None:
    """Take all names out that the module defined, and let it find those of the table."""
    known = names.names_of(module.__name__)
    for name, value in list(vars(module).items()):
        if not name.startswith("__") and not isinstance(value, ModuleType):
            del vars(module)[name]
    vars(module)["__getattr__"] = _looking_up(module, known, reason)
    vars(module)["__all__"] = [name for name, found in known.items() if found.path and not name.startswith("_")]


def _made(path: str, reason: str) -> ModuleType:
    spec = importlib.machinery.ModuleSpec(path, None, is_package=True)
    module = importlib.util.module_from_spec(spec)
    module.__doc__ = f"{path}, as zeropoint.compat has it."
    _fill(module, reason)
    return module


class _BelowGone(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules below those that are gone: they can be imported, their names say why they cannot be used."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if self._reason(fullname) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    @staticmethod
    def _reason(fullname: str) -> str | None:
        current = names.current_path(fullname)
        return next((reason for path, reason in names.GONE.items() if current.startswith(path + ".")), None)

    def create_module(self, spec: Any) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        _fill(module, self._reason(module.__name__) or "")


def replace_modules(changes: Changes) -> None:
    """Give every old module the names of the table."""
    finder = _BelowGone()
    sys.meta_path.insert(0, finder)
    changes.later(lambda: sys.meta_path.remove(finder))
    for path in [p for p in sys.modules if finder._reason(p) is not None]:
        changes.contents(sys.modules[path])
        _fill(sys.modules[path], finder._reason(path) or "")
    changes.later(lambda: _forget(before))
    before = set(sys.modules)
    for path, reason in names.old_modules().items():
        module = sys.modules.get(path)
        if path in names.CONTAINERS:
            if module is None:
                module = _put(changes, path, "")
            continue
        if module is None:
            _put(changes, path, reason)
        else:
            changes.contents(module)
            _fill(module, reason)


def _put(changes: Changes, path: str, reason: str) -> ModuleType:
    module = _made(path, reason)
    changes.item(sys.modules, path, module)
    parent, _, name = path.rpartition(".")
    if name not in names.names_of(parent):
        changes.attribute(sys.modules[parent], name, module)
    return module


def _forget(before: set[str]) -> None:
    """Remove the modules that were made on the way, by imports below those that are gone."""
    for path in [p for p in sys.modules if _BelowGone._reason(p) is not None and p not in before]:
        del sys.modules[path]
