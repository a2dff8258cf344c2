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
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from zeropoint.compat import lookup, names
from zeropoint.compat.changes import Changes
from zeropoint.compat.missing_names import absent


def resolve(path: str) -> Any:
    """What a dotted path of zeropoint names.

    Example:
        >>> resolve("zeropoint.nn.qat.Linear").__name__
        'Linear'
    """
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _looking_up(module: ModuleType, known: dict[str, lookup.Counterpart], reason: str) -> Any:
    path = module.__name__

    def __getattr__(name: str) -> Any:
        found = known.get(name)
        if found is None and reason and not name.startswith("__"):
            found = lookup.Counterpart(None, reason)
        if found is None:
            raise AttributeError(f"module {path!r} has no attribute {name!r}")
        value = resolve(found.path) if found.path else absent(f"{lookup.current_path(path)}.{name}", found.reason)
        vars(module)[name] = value
        return value

    return __getattr__


def _fill(module: ModuleType, reason: str) -> None:
    """Take all names out that the module defined, and let it find those of the table."""
    path = module.__name__
    own = lookup.names_of(path)
    for name, value in list(vars(module).items()):
        # A function may have the name of the module that defines it, and the function is what is asked for.
        if not name.startswith("__") and (name in own or not isinstance(value, ModuleType)):
            del vars(module)[name]
    vars(module)["__getattr__"] = _looking_up(module, lookup.reachable_from(path), reason)
    vars(module)["__all__"] = [name for name, found in own.items() if found.path and not name.startswith("_")]


class _BelowGone(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules below those that are gone: they can be imported, their names say why they cannot be used."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if self._reason(fullname) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    @staticmethod
    def _reason(fullname: str) -> str | None:
        current = lookup.current_path(fullname)
        return next((reason for path, reason in names.GONE.items() if current.startswith(path + ".")), None)

    def create_module(self, spec: Any) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        _fill(module, self._reason(module.__name__) or "")

    def made(self, path: str, reason: str) -> ModuleType:
        """A module that was not loaded. It has this loader: some code looks at the loaders of all modules."""
        module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(path, self, is_package=True))
        module.__doc__ = f"{path}, as zeropoint.compat has it."
        _fill(module, reason)
        return module


def replace_modules(changes: Changes) -> None:
    """Give every old module the names of the table."""
    for path in names.CONTAINERS:  # what they hold besides stays theirs
        _load(changes, path)
    finder = _BelowGone()
    sys.meta_path.insert(0, finder)
    changes.later(lambda: sys.meta_path.remove(finder))
    loaded = set(sys.modules)
    changes.later(lambda: _forget(loaded))
    below_gone = {path: reason for path in loaded if (reason := finder._reason(path)) is not None}
    for path, reason in {**lookup.old_modules(), **below_gone}.items():
        module = sys.modules.get(path)
        if module is None:
            _put(changes, finder.made(path, reason))
        elif path not in names.CONTAINERS:
            changes.contents(module)
            _fill(module, reason)
        elif path != "torch.ao" and "__getattr__" in vars(module):  # it would load PyTorch's; torch.ao keeps pruning
            changes.item(vars(module), "__getattr__", _looking_up(module, {}, ""))
    for path, place in names.IN_TORCHAO.items():
        if path not in sys.modules and not _is_pytorchs(path):
            _put(changes, _at_torchao(finder, path, place))


def _is_pytorchs(path: str) -> bool:
    """Whether this PyTorch has a module, loaded or not."""
    place = Path(torch.__file__).parent.joinpath(*path.split(".")[1:])
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def _at_torchao(finder: _BelowGone, path: str, place: str) -> ModuleType:
    """An old module whose names are those of one of torchao's, which is loaded when one of them is used."""
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(path, finder, is_package=True))

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            theirs = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise ImportError(f"{path}.{name} is {place}.{name} now: pip install torchao") from error
        return getattr(theirs, name)

    vars(module)["__getattr__"] = __getattr__
    return module


def _load(changes: Changes, path: str) -> None:
    """Load a module of PyTorch's, if PyTorch has it; undoing unloads what was not loaded before."""
    if path in sys.modules:
        return
    try:
        module = importlib.import_module(path)
    except ImportError:
        return
    parent, _, name = path.rpartition(".")

    def unload() -> None:
        sys.modules.pop(path, None)
        if vars(sys.modules[parent]).get(name) is module:
            delattr(sys.modules[parent], name)

    changes.later(unload)


def _put(changes: Changes, module: ModuleType) -> None:
    changes.item(sys.modules, module.__name__, module)
    parent, _, name = module.__name__.rpartition(".")
    if name not in lookup.names_of(parent):
        changes.attribute(sys.modules[parent], name, module)


def _forget(loaded: set[str]) -> None:
    """Remove the modules that were made on the way, by imports below those that are gone."""
    for path in [p for p in sys.modules if _BelowGone._reason(p) is not None and p not in loaded]:
        del sys.modules[path]
