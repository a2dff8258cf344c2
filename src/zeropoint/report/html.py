"""The report as one page: `page.html`, filled in. It needs no network, and shows everything without scripts, too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from torch import nn

from zeropoint.atomic_file import replacing
from zeropoint.comparison.layers import LayerRow
from zeropoint.comparison.sensitivity import Sensitivity
from zeropoint.comparison.timing import Step
from zeropoint.report.findings import Findings, Search, gather
from zeropoint.report.histograms import Histogram
from zeropoint.report.markup import asset, bar, card, digest, layer_name, milliseconds, panel, section, table
from zeropoint.report.report_diff import LayerFacts, ReportFacts, capped
from zeropoint.report.svg import histogram_svg, lines_svg, points_svg
from zeropoint.table import quantized_of, readable_bytes, size_change

SHOWN = 12  # layers in full; the others fold away
NOTABLE = 0.005  # the least share of the error that is listed
GOOD, POOR = 30.0, 20.0  # dB of the output: as good as float for most uses; to be looked at


def write_report(
    path: str | Path,
    float_model: nn.Module,
    quantized: nn.Module,
    data: Iterable[Any],
    *,
    title: str = "",
    sensitivity: Sensitivity | None = None,
    search: Search | None = None,
    timed: Any = None,
    progress: bool = True,
) -> Findings:
    """Compare a model with its quantized version, time both, and write a report as one HTML file that works offline.

    Args:
        path: the file to write, such as "report.html".
        float_model, quantized, data: as for `compare`.
        title: the title of the page; by default the class name of the model.
        sensitivity: a result of `sensitivity` to include.
        search: the attempts of `tune` to include; `Tuned.write_report` passes them.
        timed: the batch on which both are timed; by default the first one of `data`.
        progress: show a progress bar on a terminal.

    Returns:
        the content of the page.

    Example:
        >>> import tempfile, torch, zeropoint
        >>> model = nn.Sequential(nn.Linear(4, 2)).eval()
        >>> quantized = zeropoint.to_int8(model, (torch.ones(1, 4),), progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = write_report(f"{folder}/report.html", model, quantized, [torch.ones(1, 4)])
        >>> found.title
        'Sequential'
    """
    findings = gather(
        float_model,
        quantized,
        data,
        title=title,
        sensitivity=sensitivity,
        search=search,
        timed=timed,
        progress=progress,
    )
    text = page(findings)
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")
    return findings


def page(findings: Findings) -> str:
    """The page, as text."""
    script = asset("sort.js") + asset("report.js")
    sections = (_guilt, _along, _layers, _spread, _speed, _size, _sensitivity, _search, _left_in_float)
    return Template(asset("page.html")).substitute(
        brand="zeropoint report",
        digest=digest(script),
        style=asset("style.css"),
        script=script,
        title=escape(findings.title),
        verdict=_verdict(findings),
        cards=_cards(findings),
        sections="\n".join(part(findings) for part in sections),
        footer=_footer(findings) + _facts(findings).block(),
    )


# --------------------------------------------------------------------------------------------------- the summary


def _grade(sqnr: float) -> str:
    return "good" if sqnr >= GOOD else "warn" if sqnr >= POOR else "bad"


def _decibels(value: float) -> str:
    return "exact" if value == math.inf else f"{value:.1f}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio >= 0.95 else f"{ratio:.2f}x"


def _verdict(f: Findings) -> str:
    sqnr = f.comparison.sqnr
    words = {
        "good": "The quantized model follows the float model closely.",
        "warn": "The quantized model follows the float model roughly: check the accuracy of your task.",
        "bad": "The quantized model differs strongly from the float model: check the first layers below.",
    }[_grade(sqnr)]
    faster = f.float_milliseconds / max(f.milliseconds, 1e-9)
    speed = f"{_times(faster)} as fast" if faster >= 1 else f"{_times(1 / faster)} slower"
    size = size_change(f.float_nbytes, f.nbytes)
    return escape(f"{words} It is {size} and, {f.runs_as}, {speed} on a batch of {f.batch}.")


def _cards(f: Findings) -> str:
    rows = f.comparison.rows
    worst = rows[0] if rows else None
    faster = f.float_milliseconds / max(f.milliseconds, 1e-9)
    cards = [
        card("Output SQNR", _decibels(f.comparison.sqnr) + (" dB" if f.comparison.sqnr < math.inf else ""),
              f"cosine {f.comparison.cosine:.5f}, {f.comparison.batches} batches", _grade(f.comparison.sqnr)),
        card("Weights", readable_bytes(f.nbytes),
              f"float {readable_bytes(f.float_nbytes)}, {size_change(f.float_nbytes, f.nbytes)}"),
        card("Time for a batch", milliseconds(f.milliseconds),
              f"float {milliseconds(f.float_milliseconds)}, {_times(faster)}", "good" if faster >= 1 else "warn"),
        card("Operators quantized", quantized_of(r.precision for r in f.operators), f"{len(f.left_in_float)} in float"),
    ]  # fmt: skip
    if worst is not None:
        cards.append(card("Worst layer", worst.path or "(model)", f"{worst.share:.0%} of the error", "words"))
    return "".join(cards)


# -------------------------------------------------------------------------------------------------- the sections


def _folded(items: list[str], wrap: Callable[[str], str]) -> str:
    """The first few, and the rest behind a line that opens them."""
    shown = wrap("".join(items[:SHOWN]))
    if len(items) > SHOWN:
        rest = wrap("".join(items[SHOWN:]))
        shown += f"<details><summary>{len(items) - SHOWN} more</summary>{rest}</details>"
    return shown


def _guilt(f: Findings) -> str:
    most = max((row.share for row in f.comparison.rows), default=1.0) or 1.0
    rows = [row for row in f.comparison.rows if row.share >= NOTABLE or row.why]
    items = [
        f'<div class="guilt"><div class="name">{layer_name(row.path, row.operator)}</div>'
        f'{bar([(row.share / most, "")])}<div class="number">{row.share:.1%}</div>'
        + (f'<div class="reason">{escape(row.why)}</div>' if row.why else "")
        + "</div>"
        for row in rows
    ]
    others = len(f.comparison.rows) - len(rows)
    if others:
        left, plural = 1 - sum(row.share for row in rows), "s" if others > 1 else ""
        track = bar([(left / most, "float")])
        items.append(
            f'<div class="guilt"><div class="name">{others} other{plural}</div>{track}'
            f'<div class="number">{max(left, 0):.1%}</div></div>'
        )
    return section(
        "Layers with the largest error",
        "The share of each layer in the total error, relative to its signal. It counts the error that the layer adds,"
        " not the error that it receives.",
        _folded(items, panel),
    )


def _along(f: Findings) -> str:
    rows = f.comparison.in_order()
    names = [f"{row.path or '(model)'} {row.operator}" for row in rows]
    picture = lines_svg([("alone", [r.alone for r in rows]), ("all", [r.sqnr for r in rows])], names)
    legend = '<div class="legend"><span><b></b>accumulated</span><span><b class="alone"></b>layer only</span></div>'
    return section(
        "Error from input to output",
        "Signal-to-quantization-noise ratio in dB, layer by layer. One bit is about 6 dB. A drop of the solid line"
        " marks a layer that loses accuracy.",
        panel(f'{legend}<div class="chart">{picture}</div>'),
    )


_COLUMNS: tuple[tuple[str, str, bool, Callable[[Any], tuple[Any, str]]], ...] = (
    ("layer", "layer", True, lambda x: (x[0].path or "(model)", layer_name(x[0].path, x[0].operator))),
    ("order", "#", False, lambda x: (x[1], str(x[1]))),
    ("computed", "computed", True, lambda x: (x[0].computed, _tag(x[0].computed))),
    ("sqnr", "SQNR dB", False, lambda x: (x[0].sqnr, _graded(x[0].sqnr))),
    ("alone", "alone dB", False, lambda x: (x[0].alone, _graded(x[0].alone))),
    ("cosine", "cosine", False, lambda x: (x[0].cosine, f"{x[0].cosine:.5f}")),
    ("share", "share", False, lambda x: (x[0].share, f"{x[0].share:.1%}")),
    ("clipped", "clipped", False, lambda x: (x[0].clipped, _shown(x[0].scale and x[0].clipped, ".2%"))),
    ("scale", "scale", False, lambda x: (x[0].scale or 0.0, _shown(x[0].scale, ".4g"))),
    ("zero_point", "zero point", False, lambda x: (x[0].zero_point or 0, _shown(x[0].zero_point, "d"))),
    ("dtype", "dtype", True, lambda x: (x[0].dtype, escape(x[0].dtype))),
    ("range", "values from, to", False, lambda x: (x[0].high - x[0].low, f"{x[0].low:.3g}, {x[0].high:.3g}")),
    ("bytes", "bytes", False, lambda x: (x[0].nbytes, readable_bytes(x[0].nbytes) if x[0].nbytes else "")),
    ("time", "time", False, lambda x: (x[2] or 0.0, "" if x[2] is None else milliseconds(x[2]))),
)  # fmt: skip


def _shown(value: Any, how: str) -> str:
    return "" if value is None else format(value, how)


def _tag(computed: str) -> str:
    return f'<span class="tag{" float" if computed == "float32" else ""}">{escape(computed)}</span>'


def _graded(value: float) -> str:
    return f'<span class="{"" if value >= GOOD else _grade(value)}">{_decibels(value)}</span>'


def _sortable(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "1e999" if value > 0 else "-1e999"
    return escape(str(value))


def _layers(f: Findings) -> str:
    place = {row.name: i + 1 for i, row in enumerate(f.comparison.in_order())}
    times = {step.name: step.milliseconds for step in f.steps}
    head = "".join(
        f'<th scope="col" data-key="{key}"{_kind(text)}{_sorted_first(key)}><button type="button">{title}</button></th>'
        for key, title, text, _ in _COLUMNS
    )
    lines = []
    for row in f.comparison.rows:
        cells = []
        for _, _, text, make in _COLUMNS:
            value, shown = make((row, place[row.name], times.get(row.name)))
            cells.append(f'<td data-value="{_sortable(value)}"{_kind(text)}>{shown}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return section(
        "Layers",
        "Click a column to sort. <em>SQNR</em>: compared with the float model. <em>alone</em>: compared with the float"
        " layer on the same inputs. <em>clipped</em>: values outside the range. <em>time</em>: time of the step; empty"
        " if the layer is fused into a later step.",
        table("layers", head, lines),
    )


def _kind(text: bool) -> str:
    return ' class="text"' if text else ""


def _sorted_first(key: str) -> str:
    return ' aria-sort="descending"' if key == "share" else ""


def _spread(f: Findings) -> str:
    cards = [
        f'<div class="card"><h3>{layer_name(row.path, row.operator)}</h3>'
        + _figure("outputs", f.activations.get(row.name), row)
        + _figure("weights", f.weights.get(row.name), row)
        + "</div>"
        for row in f.comparison.rows
        if row.name in f.activations
    ]
    return section(
        "Distribution of values",
        "Outputs of the float layers on the first batch, and float weights, on a logarithmic scale. The shaded area"
        " is the quantized range: bars outside it are clipped, and empty parts waste precision.",
        _folded(cards, lambda inside: f'<div class="grid">{inside}</div>'),
    )


def _figure(what: str, histogram: Histogram | None, row: LayerRow) -> str:
    if histogram is None:
        return ""
    note = f"{row.weight_sqnr:.0f} dB" if what == "weights" and row.weight_sqnr is not None else ""
    if what == "outputs" and row.scale is not None:
        note = f"scale {row.scale:.3g}, zero point {row.zero_point}"
    return (
        f"<figure>{histogram_svg(histogram)}<figcaption><span>{histogram.low:.3g}</span><span>{what}"
        f"{', ' if note else ''}{escape(note)}</span><span>{histogram.high:.3g}</span></figcaption></figure>"
    )


def _speed_of(step: Step) -> str:
    speed = f", {step.gmacs:.0f} GMAC/s" if step.gmacs else ""
    near = "" if step.of_peak is None else f", {step.of_peak:.0%} of the peak"
    return speed + near + (f", limited by {step.limit}" if step.limit else "")


def _speed(f: Findings) -> str:
    if not f.steps:
        return ""
    total = sum(step.milliseconds for step in f.steps) or 1.0
    ranked = sorted(f.steps, key=lambda step: -step.milliseconds)
    longest = ranked[0].milliseconds or 1.0
    items = [
        f'<div class="guilt"><div class="name">{layer_name(step.path, step.operator + _speed_of(step))}</div>'
        f'{bar([(step.milliseconds / longest, "")])}<div class="number">{milliseconds(step.milliseconds)}</div></div>'
        for step in ranked
        if step.milliseconds >= 0.002 * total
    ]
    about = f"Median time of each step {f.runs_as}, on a batch of {f.batch}; {milliseconds(total)} in all."
    return section(
        "Speed by step",
        escape(" ".join((about, *f.advice))),
        _folded(items, panel),
    )


def _size(f: Findings) -> str:
    rows = sorted((r for r in f.comparison.rows if r.nbytes), key=lambda r: -max(r.nbytes, r.float_nbytes))
    if not rows:
        return ""
    largest = max(rows[0].nbytes, rows[0].float_nbytes)
    items = [
        f'<div class="guilt"><div class="name">{layer_name(row.path, row.operator)}</div>'
        f"{bar([(row.float_nbytes / largest, 'float'), (row.nbytes / largest, '')])}"
        f'<div class="number">{readable_bytes(row.nbytes)}</div></div>'
        for row in rows
    ]
    legend = '<div class="legend"><span><b class="float"></b>in float</span><span><b></b>quantized</span></div>'
    return section(
        "Size by layer",
        "Bytes of weights, biases and scales.",
        panel(legend + "".join(items[:SHOWN])) + _folded_rest(items),
    )


def _folded_rest(items: list[str]) -> str:
    rest = items[SHOWN:]
    return f"<details><summary>{len(rest)} more</summary>{panel(''.join(rest))}</details>" if rest else ""


def _sensitivity(f: Findings) -> str:
    found = f.sensitivity
    if found is None:
        return ""
    lines = [
        f'<tr><td class="text">{layer_name(row.path, row.operator)}</td><td>{row.alone:.4g}</td>'
        f"<td>{'' if row.cumulative is None else f'{row.cumulative:.4g}'}</td></tr>"
        for row in found.rows
    ]
    head = f'<th class="text">layer</th><th>{escape(found.metric)}, alone</th><th>with all below it</th>'
    return section(
        "Sensitivity",
        escape(
            f"{found.metric} of the whole model with only this layer quantized, and with this layer and all layers"
            f" below it in the table. Float: {found.float_metric:.4g}."
        ),
        table("sensitivity", head, lines),
    )


def _search(f: Findings) -> str:
    found = f.search
    if found is None:
        return ""
    lines = ["<tr>" + "".join(f'<td class="text">{escape(cell)}</td>' for cell in row) + "</tr>" for row in found.rows]
    head = "".join(f'<th class="text">{escape(title)}</th>' for title in found.header)
    picture = panel(f'<div class="chart">{points_svg(found.points)}</div>') if found.points else ""
    about = "Every attempt, cheapest first." + (
        " The plot shows the fastest precision of each layer for a given total error (Pareto front)."
        if found.points
        else ""
    )
    return section("Tuning", escape(f"{about} {found.result}"), table("tuning", head, lines) + picture)


def _left_in_float(f: Findings) -> str:
    if not f.left_in_float:
        return ""
    lines = [
        f'<tr><td class="text">{layer_name(row.path, row.operator)}</td><td class="text">{escape(row.reason)}</td></tr>'
        for row in f.left_in_float
    ]
    return section(
        "Operators in float",
        "Operators that run in float32, and the reason.",
        table("float", '<th class="text">operator</th><th class="text">why</th>', lines),
    )


def _facts(f: Findings) -> ReportFacts:
    """What another report is compared with: the layers by their paths."""
    times: dict[str, float] = {}
    for step in f.steps:
        times[step.path] = times.get(step.path, 0.0) + step.milliseconds
    layers: dict[str, LayerFacts] = {}
    for row in f.comparison.in_order():
        alone, nbytes, computed = capped(row.alone), row.nbytes, row.computed
        if before := layers.get(row.path):  # such as the rounding of a layer's input
            alone, nbytes = min(alone, before.alone), nbytes + before.nbytes
        layers[row.path] = LayerFacts(row.path, computed, alone, times.get(row.path, 0.0), nbytes)
    return ReportFacts(f.title, capped(f.comparison.sqnr), f.milliseconds, f.nbytes, f.batch, tuple(layers.values()))


def _footer(f: Findings) -> str:
    facts = list(f.versions)
    if f.cpu is not None:
        facts += [("CPU", f.cpu.brand or "unknown"), ("kernels", f.cpu.isa), ("threads", str(f.cpu.threads))]
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts) + "</dl>"
