"""Two programs side by side: likeness, time and size of each module, by change of time. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import takewhile
from os import PathLike
from typing import Any

import numpy as np

from zeropoint.report.comparison_page import write_comparison
from zeropoint.report.markup import card, head, layer_name, milliseconds, section, table
from zeropoint.report.module_values import MOST, likeness, module_values
from zeropoint.report.program_facts import ProgramFacts, example_inputs, program_facts
from zeropoint.runtime import Program
from zeropoint.table import quantized_of, readable_bytes, size_change

NOTABLE = 1e-7  # seconds: changes below it are not shown
POOR = 20.0  # dB: modules below it are marked


@dataclass(frozen=True)
class Side:
    """One module in both programs: seconds, bytes of weights, and what it computes on; None where it is not.

    Attributes:
        alike: how alike its results are, in dB, up to scale and zero point; None where they cannot be compared.
    """

    path: str
    seconds: tuple[float | None, float | None]
    nbytes: tuple[int | None, int | None]
    precisions: tuple[str, str]
    alike: float | None = None

    @property
    def change(self) -> float:
        """Seconds that the second takes more."""
        return (self.seconds[1] or 0.0) - (self.seconds[0] or 0.0)


def sides(first: ProgramFacts, second: ProgramFacts) -> list[Side]:
    """The modules of both, by how much their time changed."""
    parts = [_modules(first), _modules(second)]
    found = []
    for path in dict.fromkeys([*parts[0], *parts[1]]):
        a, b = (part.get(path) for part in parts)
        times, sizes = (None if x is None else x[0] for x in (a, b)), (None if x is None else x[1] for x in (a, b))
        found.append(Side(path, tuple(times), tuple(sizes), tuple("" if x is None else x[2] for x in (a, b))))  # type: ignore[arg-type]
    return sorted(found, key=lambda side: -abs(side.change))


def _modules(f: ProgramFacts) -> dict[str, tuple[float, int, str]]:
    found: dict[str, tuple[float, int, str]] = {}
    for step in (step for step in f.steps if step.dtype):  # those that make tensors
        path = step.path or step.op
        seconds, nbytes, precision = found.get(path, (0.0, 0, ""))
        precision = step.precision if step.macs or not precision else precision
        found[path] = seconds + (step.seconds or 0.0), nbytes + step.stored, precision
    return found


def write_diff_page(
    path: str | PathLike[str], programs: Sequence[Program], names: Sequence[str], inputs: Sequence[Any] | None = None
) -> list[Side]:
    """Write an HTML page that compares two programs for the same inputs, by the modules that their steps came from.

    Args:
        path: the file to write.
        programs: two programs with the same inputs.
        names: what they are called on the page.
        inputs: one array for each input. By default, noise with the shapes of the example inputs of the first.
    """
    given = example_inputs(programs[0]) if inputs is None else list(inputs)
    first, second = (program_facts(program, given) for program in programs)
    before, after = (module_values(program, facts, given) for program, facts in zip(programs, (first, second)))
    rows = [replace(side, alike=_likeness(before, after, side.path)) for side in sides(first, second)]
    write_comparison(
        path, names, ", on the same inputs.", _cards(first, second, _apart(programs, given)), _table(rows, names)
    )
    return rows


def _likeness(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> float | None:
    """Of a module that both have, how alike its results are.

    What only one of them has behind it, such as a ReLU, can be a part of its step in the other: the best is taken.
    """
    if path not in before or path not in after:
        return None
    pairs = [(a, b) for a in _results(before, path, after) for b in _results(after, path, before)]
    return max((found for pair in pairs if (found := likeness(*pair)) is not None), default=None)


def _results(values: Mapping[str, Any], path: str, other: Mapping[str, Any]) -> list[Any]:
    """The result of a module, and those of modules behind it that the other program does not have."""
    paths = list(values)
    behind = paths[paths.index(path) + 1 :]
    return [values[path], *(values[p] for p in takewhile(lambda p: p not in other, behind))]


def _apart(programs: Sequence[Program], inputs: Sequence[Any]) -> float:
    """Signal over difference of all float outputs, in dB."""
    found = [program.copy()._native.run(inputs) for program in programs]
    pairs = [
        (np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(*found) if np.shape(a) == np.shape(b)
    ]
    noise = sum(float(np.square(a - b).sum()) for a, b in pairs)
    signal = sum(float(np.square(a).sum()) for a, _ in pairs)
    return float("inf") if noise == 0 else 10 * float(np.log10(max(signal, 1e-300) / noise))


def _cards(a: ProgramFacts, b: ProgramFacts, apart: float) -> str:
    before, after = a.seconds or 0.0, b.seconds or 0.0
    ratio = before / after if after else 1.0
    speed = f"{ratio:.1f}x as fast" if ratio >= 1.05 else f"{1 / ratio:.1f}x slower" if ratio <= 0.95 else "as fast"
    sizes, change = [readable_bytes(f.file) for f in (a, b)], size_change(a.file, b.file)
    cards = [
        card("Outputs", "equal" if apart == float("inf") else f"{apart:.1f} dB", "signal over difference"),
        card("Time per run", milliseconds(1e3 * after), f"was {milliseconds(1e3 * before)}, {speed}"),
        card("File", sizes[1], f"was {sizes[0]}{'' if sizes[0] == sizes[1] else f', {change}'}"),
    ]
    if a.operators and b.operators:
        was, now = (quantized_of(precision for _, _, precision, _ in f.operators) for f in (a, b))
        cards.append(card("Operators quantized", now, f"was {was}"))
    return "".join(cards)


def _table(rows: Sequence[Side], names: Sequence[str]) -> str:
    titles = (
        "module",
        "computes on",
        "results alike",
        f"time, {names[0]}",
        f"time, {names[1]}",
        "change",
        f"weights, {names[0]}",
        f"weights, {names[1]}",
    )
    lines = []
    for side in rows:
        precision = (
            side.precisions[1]
            if side.precisions[0] == side.precisions[1]
            else " → ".join(w or "nothing" for w in side.precisions)
        )
        times = [f'<td data-value="{s or 0}">{"" if s is None else milliseconds(1e3 * s)}</td>' for s in side.seconds]
        sizes = [f'<td data-value="{n or 0}">{readable_bytes(n) if n else ""}</td>' for n in side.nbytes]
        sign, grade = ("+", "warn") if side.change > 0 else ("−", "good")
        shown = f"{sign}{milliseconds(1e3 * abs(side.change))}" if abs(side.change) >= NOTABLE else ""
        lines.append(
            f'<tr><td class="text" data-value="{escape(side.path)}">{layer_name(side.path, "")}</td>'
            f'<td class="text" data-value="{escape(precision)}">{escape(precision)}</td>{_alike(side.alike)}'
            f"{''.join(times)}"
            f'<td data-value="{side.change}" class="{grade}">{shown}</td>{"".join(sizes)}</tr>'
        )
    about = (
        "Those whose time changed most come first. Click a column to sort. Results are compared up to scale and zero "
        "point, signal over difference; if it is more alike, with what only one program computes behind a module, such "
        "as a ReLU."
    )
    return section("Modules", about, table("modules", head(titles), lines))


def _alike(decibels: float | None) -> str:
    if decibels is None:
        return '<td data-value="-1"></td>'
    shown = "equal" if decibels == MOST else f"{decibels:.1f} dB"
    return f'<td data-value="{decibels}" class="{"warn" if decibels < POOR else ""}">{shown}</td>'
