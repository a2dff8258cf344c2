"""Tables for notebooks: HTML with styles of its own, and bars behind numbers. Needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

MOST = 200  # rows that are shown; the text of an object has all
_CELL = "padding:2px 10px;text-align:{};white-space:nowrap"
_BAR = "linear-gradient(to right,rgba(95,134,217,.35) {0:.1f}%,transparent {0:.1f}%)"


class Bar(str):
    """A cell with a bar behind its text.

    Example:
        >>> Bar("12%", 0.12).share
        0.12
    """

    share: float

    def __new__(cls, text: str, share: float) -> Bar:
        made = super().__new__(cls, text)
        made.share = min(max(share, 0.0), 1.0) if share == share else 0.0
        return made


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], *lines: str) -> str:
    """A table, and lines below it.

    Example:
        >>> html_table(["name"], [["<fc>"]]).count("&lt;fc&gt;")
        1
    """
    head = "".join(f'<th style="{_CELL.format("left")}">{escape(title)}</th>' for title in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if header else ""
    more = [f"{len(rows) - MOST} more rows"] if len(rows) > MOST else []
    return f"{table}{''.join(f'<div>{escape(line)}</div>' for line in (*more, *lines))}"


def _cell(text: str) -> str:
    place = "right" if text[:1].isdigit() or text[:1] in ("-", "+") else "left"
    back = f";background:{_BAR.format(100 * text.share)}" if isinstance(text, Bar) else ""
    return f'<td style="{_CELL.format(place)}{back}">{escape(text)}</td>'
