"""Constructors with some of their arguments given: what a QConfig holds instead of instances."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class PartialWrapper:
    """A constructor with keyword arguments already given: some as values, some as functions called at each use.

    Example:
        >>> from zeropoint.observers import MinMaxObserver
        >>> seven_bits = MinMaxObserver.with_args(quant_min=0, quant_max=127)
        >>> seven_bits().quant_max
        127
        >>> seven_bits.with_args(quant_max=63)().quant_max
        63
    """

    def __init__(self, p: partial[Any]) -> None:
        self.p = p
        self.callable_args: dict[str, Callable[[], Any]] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        called = {name: make() for name, make in self.callable_args.items() if name not in keywords}
        return self.p(*args, **keywords, **called)

    def __repr__(self) -> str:
        return repr(self.p) + repr(self.callable_args)

    def with_args(self, **kwargs: Any) -> PartialWrapper:
        """This constructor with more keyword arguments given."""
        return PartialWrapper(partial(self, **kwargs))

    def with_callable_args(self, **kwargs: Callable[[], Any]) -> PartialWrapper:
        """This constructor with arguments that are computed each time it is called."""
        result = PartialWrapper(self.p)
        result.callable_args = {**self.callable_args, **kwargs}
        return result


class Configurable:
    """Gives a class `with_args` and `with_callable_args`."""

    @classmethod
    def with_args(cls, **kwargs: Any) -> PartialWrapper:
        """This class as a constructor with keyword arguments already given."""
        return PartialWrapper(partial(cls, **kwargs))

    @classmethod
    def with_callable_args(cls, **kwargs: Callable[[], Any]) -> PartialWrapper:
        """This class as a constructor with arguments that are computed each time it is called."""
        return PartialWrapper(partial(cls)).with_callable_args(**kwargs)
