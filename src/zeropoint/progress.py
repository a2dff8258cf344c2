"""Progress on a terminal, on standard error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def shown(steps: Iterable[T], title: str, progress: bool, total: int | None = None) -> Iterator[T]:
    """The steps, with a bar while they are taken: where standard error is a terminal and rich is installed.

    Example:
        >>> list(shown([1, 2], "counting", progress=False))
        [1, 2]
    """
    if progress:
        try:
            from rich.console import Console
            from rich.progress import track
        except ImportError:
            pass
        else:
            console = Console(stderr=True)
            hidden = not console.is_terminal
            yield from track(steps, title, total=total, console=console, disable=hidden, transient=True)
            return
    yield from steps


def said(text: str, progress: bool) -> None:
    """A line about what has been done; shown as `shown` is."""
    if progress:
        try:
            from rich.console import Console
        except ImportError:
            return
        console = Console(stderr=True)
        if console.is_terminal:
            console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)


@contextlib.contextmanager
def during(title: str, progress: bool) -> Iterator[None]:
    """What is being done, for work whose length is not known; shown as `shown` is.

    Example:
        >>> with during("counting", progress=False):
        ...     print(sum(range(3)))
        3
    """
    if progress:
        try:
            from rich.console import Console
        except ImportError:
            pass
        else:
            console = Console(stderr=True)
            if console.is_terminal:
                with console.status(title):
                    yield
                return
    yield
