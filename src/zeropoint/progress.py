"""Progress on a terminal, on standard error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")


def shown(steps: Iterable[T], title: str, progress: bool, total: int | None = None) -> Iterator[T]:
    """The steps, with a bar while they are taken: where standard error is a terminal and rich is installed.

    Example:
        >>> list(shown([1, 2], "counting", progress=False))
        [1, 2]
    """
    console = _terminal(progress)
    if console is None:
        yield from steps
    else:
        from rich.progress import track

        yield from track(steps, title, total=total, console=console, transient=True)


def said(text: str, progress: bool) -> None:
    """A line about what has been done; shown as `shown` is."""
    console = _terminal(progress)
    if console is not None:
        console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)


@contextlib.contextmanager
def during(title: str, progress: bool) -> Iterator[None]:
    """What is being done, for work whose length is not known; shown as `shown` is.

    Example:
        >>> with during("counting", progress=False):
        ...     print(sum(range(3)))
        3
    """
    console = _terminal(progress)
    with contextlib.nullcontext() if console is None else console.status(title):
        yield


def _terminal(progress: bool) -> Console | None:
    """Standard error, if it is a terminal, rich is installed, and progress is wanted."""
    if not progress:
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    return console if console.is_terminal else None
