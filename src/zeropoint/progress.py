"""Progress on a terminal, on standard error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["shown"]

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
