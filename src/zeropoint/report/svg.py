"""Pictures as SVG, in the colours of the page they stand in (`currentColor` and CSS classes)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from zeropoint.report.histograms import Histogram


def histogram_svg(histogram: Histogram, width: int = 240, height: int = 64) -> str:
    """Bars with heights ``log(1 + count)``, so that a few values far out are seen; behind them, the chosen range.

    Example:
        >>> histogram_svg(Histogram((1, 0), 0.0, 1.0, (0.0, 0.5))).count("<rect")
        1
    """
    counts, span = histogram.counts, histogram.high - histogram.low
    tallest = math.log1p(max(counts, default=0)) or 1.0
    bar = width / max(len(counts), 1)
    path = []
    for i, count in enumerate(counts):
        if count:
            tall = max(1.0, (height - 4) * math.log1p(count) / tallest)
            path.append(f"M{i * bar + 0.4:.1f} {height}v-{tall:.1f}h{bar - 0.8:.1f}v{tall:.1f}z")
    chosen = ""
    if histogram.range is not None:
        left, right = ((end - histogram.low) / span * width for end in histogram.range)
        chosen = (
            f'<rect class="range" x="{left:.1f}" y="0" width="{max(right - left, 1):.1f}" height="{height}"/>'
            f'<path class="ends" d="M{left:.1f} 0V{height}M{right:.1f} 0V{height}"/>'
        )
    return (
        f'<svg class="histogram" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img"'
        f' aria-label="histogram">{chosen}<path class="bars" d="{"".join(path)}"/></svg>'
    )


def lines_svg(
    series: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], width: int = 1000, height: int = 220
) -> str:
    """Lines over the number of the step, in dB, each with its class; what is infinite is at the top.

    Args:
        series: (CSS class, values), all of the same length.
        names: of the points, for who points at one.
    """
    known = [v for _, values in series for v in values if math.isfinite(v)]
    low, high = math.floor(min(known, default=0.0) / 10) * 10, math.ceil(max(known, default=1.0) / 10) * 10
    if high <= low:
        high = low + 10
    left, top, bottom = 34, 8, height - 8

    def y(value: float) -> float:
        return bottom - (min(value, high) - low) / (high - low) * (bottom - top) if value > -math.inf else bottom

    count = max((len(values) for _, values in series), default=0)
    step = (width - left - 8) / max(count - 1, 1)
    marks = []
    apart = max(10, math.ceil((high - low) / 50) * 10)
    for mark in range(int(low), int(high) + 1, apart):
        marks.append(
            f'<path class="grid" d="M{left} {y(mark):.1f}H{width}"/>'
            f'<text x="{left - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark}</text>'
        )
    drawn = []
    for name, values in series:
        points = [(left + i * step, y(v)) for i, v in enumerate(values)]
        line = " ".join(f"{x:.1f},{at:.1f}" for x, at in points)
        drawn.append(f'<polyline class="{name}" points="{line}"/>')
        for (x, at), label, level in zip(points, names, values):
            title = f"<title>{escape(label)}: {level:.1f} dB</title>"
            drawn.append(f'<circle class="{name}" cx="{x:.1f}" cy="{at:.1f}" r="3">{title}</circle>')
    return (
        f'<svg class="lines" viewBox="0 0 {width} {height}" role="img" aria-label="dB by layer">'
        f"{''.join(marks)}{''.join(drawn)}</svg>"
    )


def points_svg(points: Sequence[tuple[float, float, str]], width: int = 1000, height: int = 260) -> str:
    """Milliseconds, along, against dB, up, as points on a line; each has a text for who points at it.

    What is infinite is at the top.

    Example:
        >>> points_svg([(1.0, 20.0, "int8"), (4.0, 60.0, "float")]).count("<circle")
        2
    """
    known = [level for _, level, _ in points if math.isfinite(level)]
    low, high = math.floor(min(known, default=0.0) / 10) * 10, math.ceil(max(known, default=1.0) / 10) * 10 + 10
    slowest = max((milliseconds for milliseconds, _, _ in points), default=1.0) or 1.0
    left, top, bottom = 34, 8, height - 28

    def place(milliseconds: float, level: float) -> tuple[float, float]:
        up = (min(max(level, low), high) - low) / (high - low)
        return left + milliseconds / slowest * (width - left - 16), bottom - up * (bottom - top)

    marks = []
    for mark in range(int(low), int(high) + 1, max(10, math.ceil((high - low) / 50) * 10)):
        y = place(0.0, mark)[1]
        marks.append(
            f'<path class="grid" d="M{left} {y:.1f}H{width}"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{mark}</text>'
        )
    for part in range(5):
        milliseconds = slowest * part / 4
        x = place(milliseconds, low)[0]
        marks.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{milliseconds:.3g} ms</text>')
    places = [place(milliseconds, level) for milliseconds, level, _ in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    circles = "".join(
        f'<circle class="all" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(text)}</title></circle>'
        for (x, y), (_, _, text) in zip(places, points)
    )
    return (
        f'<svg class="lines" viewBox="0 0 {width} {height}" role="img" aria-label="dB against milliseconds">'
        f'{"".join(marks)}<polyline class="all" points="{line}"/>{circles}</svg>'
    )
