"""``python -m bench.plot scaling.json picture.svg``: time over work, from what ``bench scaling --json`` wrote.

Both axes are logarithmic: a cost that grows linearly is parallel to the thin lines.
"""

from __future__ import annotations

import html
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, SIDE = 720, 420, 62, 28, 340
FONT = 'font-family="sans-serif" font-size="12"'
COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777")


def picture(results: dict[str, Any]) -> str:
    """An SVG of all sweeps."""
    sweeps: dict[str, list[tuple[float, float, int]]] = {}
    for row in results["rows"]:
        if "sweep" in row and not row["failed"]:
            point = (row["macs"] / 1e9, row["milliseconds"]["zeropoint"], row["size"])
            sweeps.setdefault(row["sweep"], []).append(point)
    if not sweeps:
        raise ValueError("there are no rows of the suite scaling: make them with  python -m bench scaling --json FILE")
    points = [point for found in sweeps.values() for point in found]
    xs, ys = _decades([x for x, _, _ in points]), _decades([y for _, y, _ in points])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_grid(xs, ys),
    ]
    for (name, found), colour in zip(sorted(sweeps.items()), COLOURS, strict=False):
        parts += _curve(name, sorted(found), colour, xs, ys)
    parts += _legend(sorted(sweeps), {name: sorted(found) for name, found in sweeps.items()})
    machine = html.escape(results["machine"].splitlines()[0])
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}" font-size="10" fill="#666">{machine}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _decades(values: list[float]) -> tuple[int, int]:
    return math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))


def _at(value: float, ends: tuple[int, int], start: float, length: float) -> float:
    return start + length * (math.log10(value) - ends[0]) / (ends[1] - ends[0])


def _x(value: float, xs: tuple[int, int]) -> float:
    return _at(value, xs, LEFT, WIDTH - LEFT - 240)


def _y(value: float, ys: tuple[int, int]) -> float:
    return _at(value, ys, TOP + SIDE, -SIDE)


def _grid(xs: tuple[int, int], ys: tuple[int, int]) -> Iterator[str]:
    right, bottom = _x(10.0 ** xs[1], xs), TOP + SIDE
    for power in range(xs[0], xs[1] + 1):
        x = _x(10.0**power, xs)
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{10.0**power:g}</text>'
    for power in range(ys[0], ys[1] + 1):
        y = _y(10.0**power, ys)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
    for power in range(xs[0] - ys[1], xs[1] - ys[0] + 1):  # time in proportion to work
        ends = [(10.0 ** (power + y), 10.0**y) for y in ys]
        inside = [(min(max(x, 10.0 ** xs[0]), 10.0 ** xs[1]), x) for x, _ in ends]
        (x1, y1), (x2, y2) = ((x, y * x / whole) for (x, whole), (_, y) in zip(inside, ends, strict=True))
        if x1 < x2:
            yield (
                f'<line x1="{_x(x1, xs):.1f}" y1="{_y(y1, ys):.1f}" x2="{_x(x2, xs):.1f}" y2="{_y(y2, ys):.1f}"'
                ' stroke="#eee"/>'
            )
    middle = (LEFT + right) / 2
    yield f'<text x="{middle:.0f}" y="{bottom + 34}" text-anchor="middle">billions of multiplications</text>'
    yield f'<text x="{LEFT - 46}" y="{TOP - 10}">milliseconds</text>'


def _curve(
    name: str, found: list[tuple[float, float, int]], colour: str, xs: tuple[int, int], ys: tuple[int, int]
) -> Iterator[str]:
    at = [(_x(x, xs), _y(y, ys), size) for x, y, size in found]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in at)
    title = f"<title>{html.escape(name)}</title>"
    yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2">{title}</polyline>'
    for x, y, size in at:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
        yield f'<text x="{x + 5:.1f}" y="{y + 12:.1f}" font-size="9" fill="{colour}">{size}</text>'


def _legend(names: list[str], sweeps: dict[str, list[tuple[float, float, int]]]) -> Iterator[str]:
    for i, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        y, left, found = TOP + 20 + 46 * i, WIDTH - 220, sweeps[name]
        speeds = [x / ms * 1e3 for x, ms, _ in found]
        sizes = f"{found[0][2]} to {found[-1][2]}"
        yield f'<line x1="{left}" y1="{y - 4}" x2="{left + 24}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>'
        yield f'<text x="{left + 30}" y="{y}">{html.escape(name)} {sizes}</text>'
        yield f'<text x="{left + 30}" y="{y + 15}" fill="#666">{min(speeds):.0f} to {max(speeds):.0f} GMAC/s</text>'


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(picture(json.loads(Path(sys.argv[1]).read_text())))
