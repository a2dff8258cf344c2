"""What commands print: results on standard output, as tables or as JSON; all else on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich import console
from rich.segment import Segment

from zeropoint.described import shortened
from zeropoint.terminal_text import printable

__all__ = ["AsJson", "note", "show", "work"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class Console(console.Console):
    """Prints what files say as text: none of it reaches the terminal as a command."""

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def show(result: Any, data: Any, as_json: bool) -> None:
    """Print `result`, text or something rich can print, or `data` as JSON."""
    if as_json:
        sys.stdout.write((data if isinstance(data, str) else json.dumps(data)) + "\n")
    else:
        screen = Console()
        if not screen.is_terminal:
            screen = Console(width=200)  # a file has no edge to break lines at
        screen.print(result, highlight=False, markup=False)


def note(text: str) -> None:
    """Print a note that is not part of the result."""
    Console(stderr=True).print(text, highlight=False, markup=False, style="dim", soft_wrap=True)


@contextlib.contextmanager
def work(as_json: bool) -> Iterator[None]:
    """Turn a failure of the work into one line and exit code 1."""
    try:
        yield
    except (ValueError, TypeError, NotImplementedError, OSError, RuntimeError, ImportError) as error:
        if isinstance(error, typer.Exit):
            raise
        text = shortened(str(error)) or type(error).__name__
        if as_json:
            sys.stdout.write(json.dumps({"error": text}) + "\n")
        Console(stderr=True).print(f"error: {text}", style="red", highlight=False, markup=False)
        raise typer.Exit(1) from error
