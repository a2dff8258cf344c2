"""Changes to other modules that can be taken back, in reverse order, without a trace."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from types import ModuleType
from typing import Any

_MISSING = object()


class Changes:
    """What was changed, and how to undo it.

    Example:
        >>> import types
        >>> place, changes = types.SimpleNamespace(a=1), Changes()
        >>> changes.attribute(place, "a", 2)
        >>> changes.attribute(place, "b", 3)
        >>> place
        namespace(a=2, b=3)
        >>> changes.undo()
        >>> place
        namespace(a=1)
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute; what the owner inherited, it inherits again afterwards."""
        before = vars(owner).get(name, _MISSING)
        if before is _MISSING:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    def item(self, mapping: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """Set an entry of a dictionary."""
        before = mapping.get(key, _MISSING)
        if before is _MISSING:
            self._undo.append(lambda: mapping.pop(key, None))
        else:
            self._undo.append(lambda: mapping.__setitem__(key, before))
        mapping[key] = value

    def contents(self, module: ModuleType) -> None:
        """From now on the module may be changed in any way: it gets its contents of this moment back."""
        before = dict(vars(module))

        def restore() -> None:
            vars(module).clear()
            vars(module).update(before)

        self._undo.append(restore)

    def later(self, undo: Callable[[], Any]) -> None:
        """Something to call for undoing."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Take everything back."""
        while self._undo:
            self._undo.pop()()
