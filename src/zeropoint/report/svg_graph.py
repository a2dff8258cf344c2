"""A graph as SVG: boxes in layers from top to bottom, each behind what it reads. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDE, HIGH, ACROSS, DOWN = 196, 48, 26, 40  # of a box, and between boxes
LETTERS = 26  # of a title that fit


@dataclass(frozen=True)
class Box:
    """A step or a module.

    Attributes:
        link: the number of the step that a click opens.
        kind: int8, float or other, for its color.
        sources: places of the boxes that it reads, and what is said at the line from there; all come before it.
        share: of the longest time, for its bar.
    """

    title: str
    note: str
    kind: str
    link: int
    sources: tuple[tuple[int, str], ...] = ()
    share: float = 0.0


def graph_svg(boxes: Sequence[Box]) -> str:
    """The boxes and the lines between them.

    Example:
        >>> graph_svg([Box("a", "conv", "int8", 0), Box("b", "add", "int8", 1, ((0, "1 kB"),))]).count("<rect")
        2
    """
    depth = _depths(boxes)
    at = _places(boxes, depth)
    left, right = min(at) - ACROSS, max(at) + WIDE + ACROSS
    bottom = (max(depth) + 1) * (HIGH + DOWN) + 8
    lines, drawn = [], []
    for i, box in enumerate(boxes):
        y = depth[i] * (HIGH + DOWN)
        drawn.append(_drawn(box, at[i], y))
        for source, text in box.sources:
            above = depth[source] * (HIGH + DOWN) + HIGH
            lines.append(_line(at[source], above, at[i], y, text, depth[i] - depth[source]))
    view = f"{left} -14 {right - left} {bottom}"
    return (
        f'<svg class="graph" viewBox="{view}" data-whole="{view}" data-first="{at[0] + WIDE // 2}" role="img"'
        f' aria-label="graph of the model" style="height:min(62vh, {max(bottom, 320)}px)">'
        f"{''.join(lines)}{''.join(drawn)}</svg>"
    )


def _drawn(box: Box, x: int, y: int) -> str:
    title = box.title if len(box.title) <= LETTERS else f"…{box.title[1 - LETTERS :]}"
    long = (WIDE - 16) * min(box.share, 1)
    bar = f'<path class="bar" d="M{x + 8} {y + HIGH - 5}h{long:.1f}"/>' if box.share else ""
    return (
        f'<g class="box {box.kind}" data-step="{box.link}"><title>{escape(box.title)}: {escape(box.note)}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="8"/>'
        f'<text x="{x + 10}" y="{y + 19}">{escape(title)}</text>'
        f'<text class="note" x="{x + 10}" y="{y + 36}">{escape(box.note[:34])}</text>{bar}</g>'
    )


def _depths(boxes: Sequence[Box]) -> list[int]:
    found: list[int] = []
    for box in boxes:
        found.append(1 + max((found[source] for source, _ in box.sources), default=-1))
    return found


def _places(boxes: Sequence[Box], depth: Sequence[int]) -> list[int]:
    """The left edge of each box: below what it reads, and beside the others of its layer."""
    at = [0.0] * len(boxes)
    layers: dict[int, list[int]] = {}
    for i, layer in enumerate(depth):
        layers.setdefault(layer, []).append(i)
    for layer in sorted(layers):
        wanted = {}
        for i in layers[layer]:
            before = [at[source] for source, _ in boxes[i].sources]
            wanted[i] = sum(before) / len(before) if before else 0.0
        row = sorted(layers[layer], key=lambda i: (wanted[i], i))
        shift = sum(wanted[i] for i in row) / len(row) - (len(row) - 1) / 2 * (WIDE + ACROSS)
        for place, i in enumerate(row):
            at[i] = shift + place * (WIDE + ACROSS)
    return [round(x) for x in at]


def _line(x0: int, y0: int, x1: int, y1: int, text: str, layers: int) -> str:
    """From the bottom of a box to the top of another; around the boxes between them if there are any."""
    start, end, middle = x0 + WIDE // 2, x1 + WIDE // 2, (y0 + y1) // 2
    if layers > 1 and abs(start - end) < WIDE:
        side = max(x0, x1) + WIDE + 10
        bend = f"C{start} {y0 + 24} {side} {y0 + 4} {side} {y0 + 34}V{y1 - 34}C{side} {y1 - 4} {end} {y1 - 24}"
    else:
        bend = f"C{start} {middle} {end} {middle}"
    path = f'<path class="line" d="M{start} {y0}{bend} {end} {y1}"/>'
    if layers > 1 or not text:
        return path
    return f'{path}<text class="edge" x="{(start + end) // 2 + 6}" y="{middle + 4}">{escape(text)}</text>'
