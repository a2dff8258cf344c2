"""What stands for an old name that has no counterpart: it can be imported, and says why when it is used."""

from __future__ import annotations

import functools
from typing import Any, NoReturn


class _Absent(type):
    """Classes, so that annotations, isinstance and subclassing in old code go on working."""

    _reason: str

    def _refuse(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(cls._reason)

    __call__ = __iter__ = __len__ = __getitem__ = __contains__ = _refuse

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls._refuse()

    def __repr__(cls) -> str:
        return f"<absent: {cls._reason}>"


@functools.cache
def absent(path: str, reason: str) -> Any:
    """A stand-in for the old name `path`; the same one every time.

    Example:
        >>> absent("torch.ao.x.Thing", "nobody used it")()
        Traceback (most recent call last):
        NotImplementedError: torch.ao.x.Thing has no counterpart in zeropoint: nobody used it
    """
    module, _, name = path.rpartition(".")
    text = f"{path} has no counterpart in zeropoint: {reason}"
    return _Absent(name, (), {"__module__": module, "__doc__": text, "_reason": text})
