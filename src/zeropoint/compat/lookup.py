"""Looking into the table of old names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zeropoint.compat import names
from zeropoint.compat.reexported import REEXPORTED


class Counterpart(NamedTuple):
    """Where an old name is now: `path` of zeropoint, or None and the reason."""

    path: str | None
    reason: str = ""


def entries(table: dict[str, str]) -> Iterator[tuple[str, Counterpart]]:
    """Each old name of a part of the table, with its counterpart.

    Example:
        >>> list(entries({"zeropoint.nn": "Linear _Old=New", "no use": "Third"}))[1:]
        [('_Old', Counterpart(path='zeropoint.nn.New', reason='')), ('Third', Counterpart(path=None, reason='no use'))]
    """
    for where, listed in table.items():
        for name in listed.split():
            old, _, ours = name.partition("=")
            yield old, Counterpart(None, where) if " " in where else Counterpart(f"{where}.{ours or old}")


def names_of(module: str) -> dict[str, Counterpart]:
    """The names of an old module of the table, and where they are now.

    Example:
        >>> names_of("torch.nn.qat")["Linear"].path
        'zeropoint.nn.qat.Linear'
    """
    module = current_path(module)
    found = {}
    for part in names.PACKAGES.get(module, "").split():
        # Names with an underscore are gathered too: people import them from the package.
        found.update(names_of(f"{module}.{part}"))
    found.update(entries(names.MODULES.get(module, {})))
    return found


def reachable_from(module: str) -> dict[str, Counterpart]:
    """The names of an old module, and those that it takes from other old modules.

    Example:
        >>> reachable_from("torch.ao.quantization.stubs")["QConfig"].path
        'zeropoint.QConfig'
    """
    taken = REEXPORTED.get(current_path(module), {})
    found = {name: names_of(home)[name] for home, listed in taken.items() for name in listed.split()}
    return {**found, **names_of(module)}


def current_path(module: str) -> str:
    """The path in torch.ao of a module that has an older path too."""
    for old, new in names.MOVED.items():
        if module == old or module.startswith(old + "."):
            return new + module[len(old) :]
    return module


def old_modules() -> dict[str, str]:
    """Every old module, parents first, with the reason why it is gone, or ''."""
    trees = dict.fromkeys((*names.MODULES, *names.PACKAGES), "") | dict(names.GONE)
    moved = {
        old + path[len(new) :]: reason
        for old, new in names.MOVED.items()
        for path, reason in trees.items()
        if path == new or path.startswith(new + ".")
    }
    everything = dict.fromkeys(names.CONTAINERS, "") | trees | moved
    return dict(sorted(everything.items()))
