"""Two reports side by side: error, time and size of each layer, by change of error. Needs no torch."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from os import PathLike
from pathlib import Path

from zeropoint.regular_file import open_regular
from zeropoint.report.comparison_page import write_comparison
from zeropoint.report.markup import card, head, layer_name, milliseconds, section, table
from zeropoint.table import readable_bytes, size_change

EXACT = 200.0  # dB: what has no error counts as so good
_LARGEST = 64_000_000  # bytes of a page
_BLOCK = re.compile(rb'<script type="application/json" id="zeropoint-report">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class LayerFacts:
    """A layer in a report: dB of its own error, milliseconds of its steps, bytes of its weights."""

    path: str
    computed: str
    alone: float
    milliseconds: float
    nbytes: int


@dataclass(frozen=True)
class ReportFacts:
    """What a report says, to be compared with another.

    Attributes:
        sqnr: dB of the output.
        batch: the shapes of what was timed.
    """

    title: str
    sqnr: float
    milliseconds: float
    nbytes: int
    batch: str
    layers: tuple[LayerFacts, ...]

    def block(self) -> str:
        """The part of the page that keeps them; browsers do not run it."""
        text = json.dumps(asdict(self), allow_nan=False).replace("<", "\\u003c")
        return f'<script type="application/json" id="zeropoint-report">{text}</script>'

    @classmethod
    def read(cls, path: str | PathLike[str]) -> ReportFacts:
        """Those of a page.

        Raises:
            OSError: if it cannot be read.
            ValueError: if it is no report.
        """
        with open_regular(Path(path)) as file:
            data = file.read(_LARGEST)
        found = _BLOCK.search(data)
        if found is None:
            raise ValueError(
                f"{path} is no page of zeropoint report, or one of an older release: run `zeropoint report` again"
            )
        try:
            facts = json.loads(found[1])
            layers = tuple(LayerFacts(**layer) for layer in facts.pop("layers"))
            made = cls(**facts, layers=layers)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError(f"{path} is damaged: {str(error)[:200]}") from None
        texts = [made.title, made.batch, *(text for x in layers for text in (x.path, x.computed))]
        numbers = [
            made.sqnr, made.milliseconds, made.nbytes, *(n for x in layers for n in (x.alone, x.milliseconds, x.nbytes))
        ]  # fmt: skip
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{path} is damaged: a name is no text")
        if not all(type(n) in (int, float) and abs(n) < 1e15 for n in numbers):
            raise ValueError(f"{path} is damaged: a number is none")
        return made


def capped(decibels: float) -> float:
    """dB that JSON can hold."""
    return min(max(decibels, -EXACT), EXACT) if not math.isnan(decibels) else -EXACT


def write_report_diff(
    path: str | PathLike[str], reports: Sequence[ReportFacts], names: Sequence[str]
) -> list[tuple[LayerFacts | None, LayerFacts | None]]:
    """Write an HTML page that compares two reports.

    Returns:
        the layers of both, those whose error changed most first.
    """
    first, second = ({layer.path: layer for layer in report.layers} for report in reports)
    pairs = [(first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])]
    pairs.sort(key=lambda pair: -abs(_change(pair)))
    write_comparison(path, names, "; each was compared with its float model.", _cards(*reports), _table(pairs, names))
    return pairs


def _change(pair: tuple[LayerFacts | None, LayerFacts | None]) -> float:
    """dB that the second is better; a layer of one report alone is a change beyond all others."""
    before, after = pair
    return math.inf if before is None or after is None else after.alone - before.alone


def _cards(a: ReportFacts, b: ReportFacts) -> str:
    change = size_change(a.nbytes, b.nbytes)
    other = "" if a.batch == b.batch else f"; timed on {a.batch} and {b.batch}"
    return "".join(
        (
            card("Output SQNR", _decibels(b.sqnr), f"was {_decibels(a.sqnr)}", "good" if b.sqnr >= a.sqnr else "warn"),
            card("Time", milliseconds(b.milliseconds), escape(f"was {milliseconds(a.milliseconds)}{other}")),
            card("Weights", readable_bytes(b.nbytes), f"was {readable_bytes(a.nbytes)}, {change}"),
        )
    )


def _table(pairs: Sequence[tuple[LayerFacts | None, LayerFacts | None]], names: Sequence[str]) -> str:
    of = [title for what in ("error", "time", "weights") for title in (f"{what}, {names[0]}", f"{what}, {names[1]}")]
    titles = ("layer", "computed", *of[:2], "change", *of[2:])
    lines = []
    for pair in pairs:
        layer = pair[1] or pair[0]
        assert layer is not None
        computed = " → ".join(dict.fromkeys("nothing" if x is None else x.computed for x in pair))
        errors, times, sizes = zip(*(_cells(x) for x in pair))
        change = _change(pair)
        grade = "good" if change > 0 else "warn"
        told = abs(change) >= 0.05 and all(x is not None and x.alone < EXACT for x in pair)
        shown = f"{change:+.1f} dB" if told else ""  # without an error on one side, no number says the change
        lines.append(
            f'<tr><td class="text" data-value="{escape(layer.path)}">{layer_name(layer.path, "")}</td>'
            f'<td class="text" data-value="{escape(computed)}">{escape(computed)}</td>{"".join(errors)}'
            f'<td data-value="{change if math.isfinite(change) else 1e9}" class="{grade}">{shown}</td>'
            f"{''.join(times)}{''.join(sizes)}</tr>"
        )
    about = "Those whose own error, signal over error in dB, changed most come first. Click a column to sort."
    return section("Layers", about, table("layers", head(titles), lines))


def _cells(layer: LayerFacts | None) -> tuple[str, str, str]:
    if layer is None:
        return ("<td></td>",) * 3
    time = milliseconds(layer.milliseconds) if layer.milliseconds else ""
    return (
        f'<td data-value="{layer.alone}">{_decibels(layer.alone)}</td>',
        f'<td data-value="{layer.milliseconds}">{time}</td>',
        f'<td data-value="{layer.nbytes}">{readable_bytes(layer.nbytes) if layer.nbytes else ""}</td>',
    )


def _decibels(value: float) -> str:
    return "exact" if value >= EXACT else f"{value:.1f} dB"
