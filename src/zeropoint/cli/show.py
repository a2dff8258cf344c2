"""zeropoint show"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from zeropoint.atomic_file import replacing
from zeropoint.cli.data import Batch, checked_data, load_batches
from zeropoint.cli.output import AsJson, show, work
from zeropoint.cli.paths import existing, require_other, writable


def show_program(
    program: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A .zpt program, or a .pt2 model before it is quantized, or a report (.html)."
        ),
    ],
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="Another program or report, for a page of both side by side.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The HTML file; by default FILE's path with .html, of a model .plan.html, of two programs A-B.html.",
            callback=writable(),
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
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", help="Also write a trace for Perfetto or chrome://tracing.", callback=writable(".json")
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "",
    as_json: AsJson = False,
) -> None:
    """Write an HTML page about a program, a model before it is quantized, or two programs or reports side by side.

    Of a program: its graph, steps, shapes, weights, times and memory, without PyTorch.

    Of a `.pt2` model: what would be quantized, and why the rest would stay float. Of two programs: how alike the
    results of each module are, its time and size, those whose time changed most first. Of two reports: error, time and
    size of each layer.
    """
    path = existing(program)
    if path.suffix == ".html":
        _reports(path, other, output, data, trace, as_json)
        return
    if path.suffix not in (".zpt", ".pt2"):
        raise typer.BadParameter(
            f"{program} must be a .zpt program or a .pt2 model: create one with zeropoint quantize"
        )
    others = {"a second file": other, "--data": data, "--trace": trace}
    for option, given in others.items():
        if given is not None and path.suffix == ".pt2":
            raise typer.BadParameter(f"{option} needs a .zpt program, got {program}")
    if other is not None and existing(other).suffix != ".zpt":
        raise typer.BadParameter(f"the second file must be a .zpt program, got {other}")
    if trace is not None and (other is not None or not timed):
        raise typer.BadParameter("--trace needs the times of one program: omit the second file and --no-time")
    if output is not None:
        page = output
    elif other is not None:
        page = path.with_name(f"{path.stem}-{Path(other).stem}.html")
    else:
        page = path.with_suffix(".html" if path.suffix == ".zpt" else ".plan.html")
    with work(as_json):
        if path.suffix == ".pt2":
            _plan(path, page, title or path.name, as_json)
        elif other is not None:
            _compare(path, Path(other), page, data, batch, as_json)
        else:
            _program(path, page, data, batch, timed, trace, title or path.name, as_json)


def _program(
    path: Path, page: Path, data: str | None, batch: int, timed: bool, trace: Path | None, title: str, as_json: bool
) -> None:
    from zeropoint import runtime
    from zeropoint.report.program_page import write_program_page

    loaded = runtime.load(path)
    inputs = None if data is None else _inputs(data, loaded, batch)
    link = None if trace is None else os.path.relpath(trace, page.parent)
    facts = write_program_page(page, loaded, inputs, title=title, timed=timed, trace=link)
    told: dict[str, Any] = {"output": str(page), "steps": len(facts.steps), "arena": facts.arena}
    if facts.profile is not None:
        told["microseconds"] = facts.profile.seconds * 1e6
    if trace is not None and facts.profile is not None:
        with replacing(trace) as new:
            new.write_text(facts.profile.trace(), encoding="utf-8")
        told["trace"] = str(trace)
    show(f"wrote {page}: {len(facts.steps)} steps", told, as_json)


def _plan(path: Path, page: Path, title: str, as_json: bool) -> None:
    from zeropoint.cli.models import load_exported
    from zeropoint.report.model_page import write_model_page
    from zeropoint.table import quantized_of

    exported = load_exported(path, False)
    example = exported.example_inputs
    if example is None or example[1]:
        raise ValueError(
            f"{path} has no positional example inputs: use zeropoint quantize {path} --data DATA --dry-run"
        )
    rows = write_model_page(page, exported.module(), example[0], title=title)
    counted = quantized_of(row.precision for row in rows)
    told = {"output": str(page), "operators": [dataclasses.asdict(row) for row in rows]}
    show(f"wrote {page}: {counted} operators would be quantized", told, as_json)


def _compare(first: Path, second: Path, page: Path, data: str | None, batch: int, as_json: bool) -> None:
    from zeropoint import runtime
    from zeropoint.report.diff_page import write_diff_page

    programs = [runtime.load(first), runtime.load(second)]
    inputs = None if data is None else _inputs(data, programs[0], batch)
    rows = write_diff_page(page, programs, [first.name, second.name], inputs)
    told = {"output": str(page), "modules": [dataclasses.asdict(row) for row in rows]}
    show(f"wrote {page}: {len(rows)} modules", told, as_json)


def _reports(
    path: Path, other: str | None, output: Path | None, data: str | None, trace: Path | None, as_json: bool
) -> None:
    if other is None or existing(other).suffix != ".html":
        raise typer.BadParameter("pass two reports, as in zeropoint show before.html after.html")
    if data is not None or trace is not None:
        raise typer.BadParameter("--data and --trace are for programs: omit them")
    page = output or path.with_name(f"{path.stem}-{Path(other).stem}.html")
    require_other(page, str(path), other)
    with work(as_json):
        from zeropoint.report.report_diff import ReportFacts, write_report_diff

        pairs = write_report_diff(
            page, [ReportFacts.read(path), ReportFacts.read(other)], [path.name, Path(other).name]
        )
        told = [[None if layer is None else dataclasses.asdict(layer) for layer in pair] for pair in pairs]
        show(f"wrote {page}: {len(pairs)} layers", {"output": str(page), "layers": told}, as_json)


def _inputs(data: str, program: Any, batch: int) -> list[Any]:
    first = load_batches(data, program, batch, batch)[0]
    return [first[name] for name, _, _ in program.inputs] if isinstance(first, dict) else list(first)
