"""Tables and sizes for people, in terminals: with rich where it is installed (the `cli` extra), plain elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from zeropoint.terminal_text import printable


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in plain text: numbers to the right, the first column and words to the left.

    Example:
        >>> print(plain_table(["name", "size"], [["a", "10"], ["bcd", "5"]]))
        name  size
        ----  ----
        a       10
        bcd      5
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    titles = [title.split("\n") for title in header]
    height = max(len(title) for title in titles)
    head = list(zip(*([""] * (height - len(title)) + title for title in titles)))
    widths = [max(len(cell) for cell in column) for column in zip(*head, *rows)]
    lines = [*head, ["-" * width for width in widths], *rows]

    def line(cells: Sequence[str]) -> str:
        put = (c.ljust(w) if left else c.rjust(w) for c, w, left in zip(cells, widths, _to_the_left(rows)))
        return "  ".join(put).rstrip()

    return "\n".join(line(cells) for cells in lines)


def _to_the_left(rows: Sequence[Sequence[str]]) -> list[bool]:
    """For each column whether it is the first, or has words in it."""
    return [i == 0 or any(_is_word(cell) for cell in column) for i, column in enumerate(zip(*rows))]


def _is_word(cell: str) -> bool:
    return cell not in ("", "inf") and not cell[0].isdigit() and cell[0] not in "-+"


def rich_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """The same as a table of rich.

    Raises:
        ModuleNotFoundError: if rich is not installed.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for title, left in zip(header, _to_the_left(rows) or [True] * len(header)):
        table.add_column(title, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(printable, row))
    return table


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print with rich on a terminal that is wide enough, if rich is installed (the `cli` extra); else in plain text."""
    try:
        from rich.console import Console

        console, table = Console(), rich_table(header, rows)
        if console.is_terminal and console.measure(table).maximum <= console.width:
            console.print(table)
            return
    except ModuleNotFoundError:
        pass
    print(plain_table(header, rows))


def quantized_of(precisions: Iterable[str]) -> str:
    """How many operators of a model are quantized: those whose way, a row of `summary()`, is not float32.

    Commands, reports and pages count with this function. Steps of a program are fewer: one may stand for several.

    Example:
        >>> quantized_of(["int8", "int8 weights", "float32"])
        '2 of 3'
    """
    precisions = list(precisions)
    return f"{sum(precision != 'float32' for precision in precisions)} of {len(precisions)}"


def readable_bytes(count: int) -> str:
    """A number of bytes for people.

    Example:
        >>> readable_bytes(999), readable_bytes(1500), readable_bytes(44_700_000)
        ('999 B', '1.5 kB', '44.7 MB')
    """
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def size_change(before: int, after: int) -> str:
    """How much smaller or larger a size became. Files of tiny models grow, because they also hold the program.

    Example:
        >>> size_change(4000, 1000), size_change(1000, 1250)
        ('4.0x smaller', '1.2x larger')
    """
    ratio = before / max(after, 1)
    return f"{ratio:.1f}x smaller" if ratio >= 1 else f"{1 / max(ratio, 1e-9):.1f}x larger"
