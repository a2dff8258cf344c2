"""What quantized dtypes and schemes share: they are constants with a name, equal to torch's of the same name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from zeropoint.context import CONTEXT
from zeropoint.described import described


@functools.cache
def twin(name: str) -> Any:
    """torch's object of this name, where torch is installed and has one; else the name.

    Loads torch: the hash of an object of torch's is not known before, and ours must be the same from the first time on.
    """
    try:
        import torch
    except ImportError:
        return name
    found = getattr(torch, name, None)
    return name if found is None or isinstance(found, Named) else found


def in_files(name: str) -> Any:
    """What stands for the constant of this name in a state_dict: the name, or torch's constant for old code."""
    if not CONTEXT.torch_classes:
        return name
    import torch

    return getattr(torch, name)


class Named:
    """A constant with a name. It is no dataclass: `dataclasses.asdict` of what holds it leaves it whole."""

    name: str
    _of_torch: ClassVar[str]  # the name of torch's class

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class, or that of torch's constants: isinstance takes this and the type."""
        return CONTEXT.torch_classes.get(self._of_torch, type(self))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self!r} cannot be changed: it has no {name} to set")

    def __repr__(self) -> str:
        return f"{'torch' if CONTEXT.torch_classes else 'zeropoint'}.{self.name}"

    def __eq__(self, other: object) -> bool:
        """Whether `other` is the same constant, zeropoint's or torch's."""
        if type(other) is type(self):
            return self.name == other.name
        if type(other).__name__ != self._of_torch:
            return NotImplemented
        return str(other) == f"torch.{self.name}"

    @functools.cached_property
    def _hash(self) -> int:
        return hash(twin(self.name))

    def __hash__(self) -> int:
        """That of torch's constant of the same name, which is equal: either finds the other in a dictionary."""
        return self._hash

    @property
    def _is_torchs(self) -> bool:
        """Whether it is a name of torch's, which has none of its own: pickle writes that name then."""
        return "__module__" in vars(self)


Constant = TypeVar("Constant", bound=Named)


def constant_of(word: str, given: Any, kind: type[Constant], known: Mapping[str, Constant]) -> Constant:
    """The constant that `given` means: itself, or the one that has its name, or the name of torch's object.

    Raises:
        TypeError: if there is none; `word` names the argument.
    """
    if isinstance(given, kind):
        return given
    found = known.get(str(given).removeprefix("torch."))
    if found is None:
        raise TypeError(f"{word} must be one of {', '.join(known)}, got {described(given)}")
    return found
