"""zeropoint show"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from zeropoint.cli.data import Batch, checked_data, load_batches
from zeropoint.cli.output import AsJson, show, work
from zeropoint.cli.paths import existing, writable

__all__ = ["show_program"]


def show_program(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="A .zpt file.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The HTML file; by default the program's path with .html.", callback=writable()
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="DATA",
            help="Inputs for timing; by default noise with the example shapes.",
            callback=checked_data,
        ),
    ] = None,
    batch: Batch = 1,
    timed: Annotated[bool, typer.Option("--time/--no-time", help="Run the program to time its steps.")] = True,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "",
    as_json: AsJson = False,
) -> None:
    """Write an HTML page with the steps, shapes, weights, times and memory of a program. Needs no PyTorch."""
    path = existing(program)
    if path.suffix != ".zpt":
        raise typer.BadParameter(f"{program} is not a .zpt program: create one with zeropoint quantize")
    page = path.with_suffix(".html") if output is None else output
    with work(as_json):
        from zeropoint import runtime
        from zeropoint.report.program_page import write_program_page

        loaded = runtime.load(path)
        inputs = None if data is None else _inputs(data, loaded, batch)
        facts = write_program_page(page, loaded, inputs, title=title or path.name, timed=timed)
        told: dict[str, Any] = {"output": str(page), "steps": len(facts.steps), "arena": facts.arena}
        if facts.seconds is not None:
            told["microseconds"] = facts.seconds * 1e6
        show(f"wrote {page}: {len(facts.steps)} steps", told, as_json)


def _inputs(data: str, program: Any, batch: int) -> list[Any]:
    first = load_batches(data, program, batch, batch)[0]
    return [first[name] for name, _, _ in program.inputs] if isinstance(first, dict) else list(first)
