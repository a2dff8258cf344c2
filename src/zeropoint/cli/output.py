"""What commands print: results on standard output, as tables or as JSON; all else on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import console
from rich.segment import Segment

from zeropoint.described import shortened
from zeropoint.terminal_text import printable

_traceback: ContextVar[bool] = ContextVar("traceback", default=False)
_TOLD = (ValueError, TypeError, NotImplementedError, OSError, RuntimeError, ImportError)
_LIBRARIES = (str(Path(__file__).parents[1]), *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})

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


def show_tracebacks(wanted: bool) -> None:
    """Whether `work` leaves errors to Python, which shows where they were raised."""
    _traceback.set(wanted)


def _place_in_users_code(error: BaseException) -> str | None:
    """File and line in which code that is neither a library's nor zeropoint's failed."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(("<", *_LIBRARIES)):
            return f"{os.path.relpath(frame.filename)}, line {frame.lineno}, in {frame.name}"
    return None if error.__cause__ is None else _place_in_users_code(error.__cause__)


@contextlib.contextmanager
def work(as_json: bool) -> Iterator[None]:
    """Turn a failure of the work into one line and exit code 1; with ``--traceback``, into Python's report."""
    try:
        yield
    except Exception as error:
        place = _place_in_users_code(error)
        told = place or isinstance(error, _TOLD)
        if not told or _traceback.get() or isinstance(error, (typer.Exit, typer.BadParameter)):
            raise
        text = shortened(str(error)) or type(error).__name__
        if place:
            text = f"{place}: {type(error).__name__}: {text}. The option --traceback shows the calls"
        if as_json:
            sys.stdout.write(json.dumps({"error": text}) + "\n")
        Console(stderr=True).print(f"error: {text}", style="red", highlight=False, markup=False)
        raise typer.Exit(1) from error
