"""A program as one page: `program.html`, filled in. It needs no network, and no torch to write it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from os import PathLike
from string import Template
from typing import Any

import numpy as np

from zeropoint.atomic_file import replacing
from zeropoint.cpu import cpu_info, get_num_threads
from zeropoint.report.markup import asset, bar, card, digest, drawing, milliseconds, panel, section, table
from zeropoint.report.program_facts import ProgramFacts, Source, StepFacts, example_inputs, program_facts
from zeropoint.report.svg_arena import arena_svg
from zeropoint.report.svg_graph import Box, graph_svg
from zeropoint.runtime import Program, load
from zeropoint.table import quantized_of, readable_bytes

LONGEST = 600  # characters of an attribute that are shown
MOST_BOXES = 400  # of the graph
KINDS = 12  # kinds of steps in the summary; the others are one line


def write_program_page(
    path: str | PathLike[str],
    program: Program | str | PathLike[str],
    inputs: Sequence[Any] | None = None,
    *,
    title: str = "",
    timed: bool = True,
    trace: str | None = None,
) -> ProgramFacts:
    """Write an HTML page that shows the steps of a program: their inputs, shapes, weights and times, and the memory.

    The page is one file that works offline. This function needs numpy but not PyTorch.

    Args:
        path: the file to write, such as "model.html".
        program: a program from `zeropoint.compile` or `zeropoint.runtime.load`, or the path of a `.zpt` file.
        inputs: one array for each input. By default, noise with the shapes of the example inputs.
        title: the heading of the page; by default the name of the file.
        timed: run the program a few times to time its steps.
        trace: where a trace of the steps will be, from the page, to be linked.

    Returns:
        the content of the page.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     facts = write_program_page(f"{folder}/moved.html", "tests/golden/programs/moved.zpt")
        >>> [step.op for step in facts.steps]
        ['transpose', 'contiguous', 'lookup']
    """
    if not isinstance(program, Program):
        title = title or str(program).replace("\\", "/").rsplit("/", 1)[-1]
        program = load(program)
    given = example_inputs(program) if inputs is None else [np.asanyarray(x) for x in inputs]
    facts = program_facts(program, given, runs=5 if timed else 0)
    text = program_page(facts, title or "Program", made_up=inputs is None, trace=trace)
    with replacing(path) as new:
        new.write_bytes(text.encode("utf-8", errors="replace"))
    return facts


def program_page(facts: ProgramFacts, title: str, *, made_up: bool = False, trace: str | None = None) -> str:
    """The page, as text."""
    script = asset("sort.js") + asset("graph.js") + asset("program.js")
    return Template(asset("program.html")).substitute(
        digest=digest(script),
        style=asset("style.css") + asset("graph.css") + asset("program.css"),
        title=escape(title),
        about=_about(facts, made_up) + (f' <a href="{escape(trace)}">Trace for Perfetto</a>' if trace else ""),
        cards=_cards(facts),
        sections=_graph(facts) + _memory(facts) + _kinds(facts),
        steps=_steps(facts),
        footer=_footer(),
        data=_embedded(facts),
        script=script,
    )


# ---------------------------------------------------------------------------------------------------- the summary


def _shape(shape: Sequence[int | str]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _about(f: ProgramFacts, made_up: bool) -> str:
    takes = ", ".join(f"{source.name}: {source.dtype} {_shape(source.shape)}" for source in f.inputs)
    shown = f"Takes {takes or 'no inputs'}."
    if f.state:
        kept = ", ".join(f"{source.name} {_shape(source.shape)}" for source in f.state[:4])
        shown += f" State: {kept}{', …' if len(f.state) > 4 else ''}."
    if f.profile is not None:
        shown += " Times are medians of 5 runs" + (" on random inputs of these shapes." if made_up else ".")
    return escape(shown)


def _cards(f: ProgramFacts) -> str:
    kinds = len({step.op for step in f.steps})
    precisions = [precision for _, _, precision, _ in f.operators]
    stored = sum({s.name: s.nbytes for step in f.steps for s in step.sources if s.kind == "constant"}.values())
    shared = f"{readable_bytes(f.values)} without reuse"
    cards = [
        *(
            [
                card(
                    "Operators quantized",
                    quantized_of(precisions),
                    f"{len(precisions)} operators run as {len(f.steps)} steps",
                )
            ]
            if precisions
            else [card("Steps", f"{len(f.steps)}", f"{kinds} operations")]
        ),
        card("Weights", readable_bytes(stored), f"file {readable_bytes(f.file)}"),
        card("Arena", readable_bytes(f.arena), shared),
    ]
    macs = sum(step.macs for step in f.steps)
    if f.seconds is not None:
        threads = get_num_threads()
        note = f"{threads} thread{'s' if threads > 1 else ''}"
        speed = f", {macs / f.seconds / 1e9:.0f} GMAC/s" if macs and f.seconds else ""
        cards.append(card("Time per run", milliseconds(1e3 * f.seconds), note + speed))
        small = sum(row.seconds for row in f.profile or () if row.precision.startswith("int8"))
        cards.append(card("Time in int8", f"{small / (f.seconds or 1.0):.0%}", "share of int8 steps"))
    elif macs:
        cards.append(card("Multiplications", _count(macs), "per run"))
    return "".join(cards)


def _count(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f}"


def _graph(f: ProgramFacts) -> str:
    boxes = _boxes(f)
    if not boxes:
        return ""
    return section(
        "Graph",
        "What the program does, from top to bottom, by the modules of the model. A bar is the time of a step, a number"
        " at a line the bytes that pass. Click a box for details; drag to move.",
        drawing(graph_svg(boxes)),
    )


def _boxes(f: ProgramFacts) -> list[Box]:
    """A box for each step that makes a tensor, or, where there are too many, for those of one module."""
    drawn = [step for step in f.steps if step.dtype]
    names = {step.number: step.path or step.op for step in drawn}
    parts = max((name.count(".") for name in names.values()), default=0) + 1
    groups = {number: str(number) for number in names}
    while len(set(groups.values())) > MOST_BOXES and parts:
        groups = {number: ".".join(name.split(".")[:parts]) for number, name in names.items()}
        parts -= 1
    place = {group: i for i, group in enumerate(dict.fromkeys(groups.values()))}
    longest = max((step.seconds or 0.0 for step in drawn), default=0.0) or 1.0
    boxes = []
    for group in place:
        steps = [step for step in drawn if groups[step.number] == group]
        first = next((step for step in steps if step.macs), steps[0])
        seconds = sum(step.seconds or 0.0 for step in steps)
        passing: dict[int, int] = {}
        for source in (source for step in steps for source in step.sources if source.step in groups):
            before = place[groups[source.step]]
            if before < place[group]:
                passing[before] = passing.get(before, 0) + source.nbytes
        title = (first.path or first.op) if len(steps) == 1 else group
        what = first.op if len(steps) == 1 else f"{len(steps)} steps"
        how = milliseconds(1e3 * seconds) if seconds else readable_bytes(sum(step.stored for step in steps))
        sources = tuple((before, readable_bytes(nbytes) if nbytes else "") for before, nbytes in passing.items())
        kinds = [step.precision for step in steps]
        kind = "int8" if "int8" in kinds else "float" if "float" in kinds else "other"
        boxes.append(Box(title, f"{what}, {how}", kind, first.number, sources, seconds / longest))
    return boxes


def _memory(f: ProgramFacts) -> str:
    if not f.blocks:
        return ""
    names = {step.number: f"{step.number} {step.op} {step.name}" for step in f.steps}
    return section(
        "Memory over time",
        "The arena holds all intermediate values of one run. Time runs from left to right, step by step. Each block is"
        " a value, from the step that writes it to the last step that reads it. The caller owns the memory of inputs"
        " and outputs.",
        panel(f'<div class="chart">{arena_svg(f.blocks, f.instructions, f.arena, names)}</div>'),
    )


def _kinds(f: ProgramFacts) -> str:
    kinds: dict[str, list[StepFacts]] = {}
    for step in f.steps:
        kinds.setdefault(step.op, []).append(step)
    by_time = f.seconds is not None
    weight = {op: sum((s.seconds or 0.0) if by_time else float(s.stored) for s in steps) for op, steps in kinds.items()}
    if f.copies:
        kinds["copy"], weight["copy"] = [], f.copies
    total, most = sum(weight.values()) or 1.0, max(weight.values(), default=0.0) or 1.0
    ranked = sorted(kinds, key=lambda op: -weight[op])
    lines = [
        f'<div class="guilt"><div class="name"><span class="mono">{escape(op)}</span> <small>{_how_many(kinds[op])}'
        f'</small></div>{bar([(weight[op] / most, "")])}<div class="number">{weight[op] / total:.1%}</div></div>'
        for op in ranked[:KINDS]
    ]
    rest = ranked[KINDS:]
    if rest:
        left = sum(weight[op] for op in rest)
        lines.append(
            f'<div class="guilt"><div class="name">{len(rest)} other kinds</div>{bar([(left / most, "float")])}'
            f'<div class="number">{left / total:.1%}</div></div>'
        )
    advice = " ".join(f.profile.advice) if f.profile is not None else ""
    heading = "Time by operation" if by_time else "Weights by operation"
    return section(heading, escape(advice), panel("".join(lines)))


def _how_many(steps: list[StepFacts]) -> str:
    if not steps:
        return "at the end, of results"
    stored = sum(step.stored for step in steps)
    return f"{len(steps)} step{'s' if len(steps) > 1 else ''}" + (f", {readable_bytes(stored)}" if stored else "")


# ------------------------------------------------------------------------------------------------------ the steps


def _steps(f: ProgramFacts) -> str:
    longest = max((step.seconds or 0.0 for step in f.steps), default=0.0) or 1.0
    columns = [("number", "#", False), ("step", "step", True), ("output", "output", True), ("kernel", "kernel", True),
               ("weights", "weights", False)]  # fmt: skip
    if f.seconds is not None:
        columns.append(("time", "time", False))
    head = "".join(
        f'<th scope="col" data-key="{key}" class="{key}{" text" if text else ""}"'
        f'{" aria-sort=ascending" if key == "number" else ""}><button type="button">{title}</button></th>'
        for key, title, text in columns
    )
    return table("steps", head, [_step(step, f.seconds, longest) for step in f.steps])


def _step(step: StepFacts, total: float | None, longest: float) -> str:
    op, name = escape(step.op), escape(step.name)
    first = next((source.name for source in step.sources if source.kind == "constant"), "")
    weight = f'<small class="mono">{escape(first)}</small>' if first else ""
    kernel = escape(f"{step.kernel} {step.isa}".strip())
    output = f"{escape(step.dtype)} {_shape(step.shape)}" if step.dtype else "number"
    cells = [
        f'<td class="number" data-value="{step.number}">{step.number}</td>',
        (
            f'<td class="step text" data-value="{op} {name}"><a href="#step={step.number}">{op}</a>'
            f'<small class="mono">{name}</small>{weight}<small class="narrow">{output}</small></td>'
        ),
        (
            f'<td class="output text" data-value="{output}"><small class="dtype">{escape(step.dtype)}</small>'
            f"{_shape(step.shape) if step.dtype else 'number'}</td>"
        ),
        f'<td class="kernel text" data-value="{kernel}">{kernel}</td>',
        f'<td class="weights" data-value="{step.stored}">{readable_bytes(step.stored) if step.stored else ""}</td>',
    ]
    if total is not None:
        seconds = step.seconds or 0.0
        shown = f"{milliseconds(1e3 * seconds)} <small>{seconds / (total or 1.0):.1%}</small>" if seconds else ""
        cells.append(
            f'<td class="time" data-value="{seconds:.9f}">{shown}{bar([(seconds / longest, "")]) if seconds else ""}'
            "</td>"
        )
    return f'<tr id="step={step.number}">{"".join(cells)}</tr>'


# ------------------------------------------------------------------------------- what the script shows on a click


def _embedded(f: ProgramFacts) -> str:
    """JSON inside of a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps([_details(step, f) for step in f.steps], separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _details(step: StepFacts, f: ProgramFacts) -> dict[str, Any]:
    rows: list[tuple[str, str]] = []
    if step.dtype:
        rows.append(("output", f"{step.dtype} {_shape(step.shape)}, {readable_bytes(step.written)}"))
    if step.kernel:
        rows.append(("kernel", f"{step.kernel} {step.isa}".strip()))
    if step.macs:
        rows.append(("multiplications", _count(step.macs)))
    if step.stored:
        rows.append(("weights", readable_bytes(step.stored)))
    if step.read:
        rows.append(("reads", readable_bytes(step.read)))
    if step.seconds:
        rows.append(("time", f"{milliseconds(1e3 * step.seconds)}, {step.seconds / (f.seconds or 1.0):.1%} of the run"))
        if step.macs:
            near = "" if step.of_peak is None else f", {step.of_peak:.0%} of the peak"
            rows.append(("speed", f"{step.macs / step.seconds / 1e9:.0f} GMAC/s{near}"))
        if step.limit:
            rows.append(("limited by", step.limit))
    if step.name in f.outputs:
        rows.append(("result", "of the program"))
    why = next(
        (reason for path, _, precision, reason in f.operators if path == step.path and precision == "float32"), ""
    )
    if why and step.precision == "float":
        rows.append(("why float", why))
    return {
        "op": step.op,
        "path": step.path,
        "histogram": list(step.histogram),
        "names": list(step.outputs),
        "rows": rows,
        "inputs": [_source(source) for source in step.sources if source.kind != "none"],
        "users": list(step.used_by),
        "attributes": [[key, _attribute(value)] for key, value in step.attributes.items()],
    }


def _source(source: Source) -> list[Any]:
    kinds = {"step": "", "constant": "constant ", "input": "input ", "state": "state "}
    text = kinds[source.kind]
    if source.dtype:
        text += f"{source.dtype} {_shape(source.shape)}"
    if source.nbytes:
        text += f", {readable_bytes(source.nbytes)}"
    return [source.name, text, source.step]


def _attribute(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _footer() -> str:
    cpu = cpu_info()
    facts = [("CPU", cpu.brand or "unknown"), ("kernels", cpu.isa), ("threads", str(get_num_threads()))]
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts) + "</dl>"
