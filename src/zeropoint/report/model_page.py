"""A float model as one page: what `to_int8` would make of each operator, and why, before anything is quantized."""

from __future__ import annotations

from html import escape
from os import PathLike
from string import Template
from typing import Any

from torch import fx, nn

from zeropoint.atomic_file import replacing
from zeropoint.graph.policy import Policy
from zeropoint.graph.provenance import origin
from zeropoint.graph.summary import Row
from zeropoint.graph.to_int8 import evaluated, prepare_int8
from zeropoint.operators.choice import Precision
from zeropoint.report.markup import asset, card, digest, drawing, layer_name, section, table
from zeropoint.report.svg_graph import Box, graph_svg
from zeropoint.table import quantized_of, readable_bytes

_NOT_COUNTED = (Precision.PASSED, Precision.FUSED)  # as in `summary()`


def write_model_page(
    path: str | PathLike[str], model: nn.Module, example_inputs: Any, *, title: str = "", mode: str = "static"
) -> tuple[Row, ...]:
    """Write an HTML page about a float model: its graph, and for each operator whether it will be quantized.

    Args:
        path: the file to write.
        example_inputs: as in `to_int8`.
        title: the heading of the page; the class of the model by default.
        mode: as in `to_int8`.

    Returns:
        the rows of `summary()`.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = write_model_page(f"{folder}/model.html", nn.Sequential(nn.Linear(4, 2)), (torch.ones(1, 4),))
        >>> [(row.path, row.precision) for row in rows]
        [('0', 'int8')]
    """
    Policy().mapping(None, mode)
    prepared, _ = prepare_int8(evaluated(model), example_inputs, None, mode, None)
    rows = prepared.summary().rows
    nodes = [node for node, choice in prepared.choices().items() if choice.precision not in _NOT_COUNTED]
    script = asset("sort.js") + asset("graph.js") + asset("model.js")
    precisions = [row.precision for row in rows]
    text = Template(asset("page.html")).substitute(
        brand="zeropoint plan",
        digest=digest(script),
        style=asset("style.css") + asset("graph.css"),
        script=script,
        title=escape(title or type(model).__name__),
        verdict="What quantization would make of this model. Nothing has been calibrated or changed.",
        cards=card("Operators quantized", quantized_of(precisions), "as to_int8 would do it")
        + card("In float", str(precisions.count("float32")), "the table says why"),
        sections=_graph(nodes, rows) + _operators(rows),
        footer="",
    )
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")
    return rows


def _graph(nodes: list[fx.Node], rows: tuple[Row, ...]) -> str:
    place = {node: i for i, node in enumerate(nodes)}
    boxes = []
    for i, (node, row) in enumerate(zip(nodes, rows)):
        sources = {place[n]: _passes(n) for n in _read(node, place) if place[n] < i}
        kind = "float" if row.precision == "float32" else "int8"
        title = origin(node).path or row.operator
        boxes.append(Box(title, f"{row.operator} {_shape(node)}", kind, i, tuple(sources.items())))
    if not boxes:
        return ""
    about = "The operators of the model, from top to bottom. Click a box to see its row in the table; drag to move."
    return section("Graph", about, drawing(graph_svg(boxes)))


def _read(node: fx.Node, known: dict[fx.Node, int]) -> list[fx.Node]:
    """The operators whose results a node reads, through observers and what is no operator of its own."""
    found: dict[fx.Node, None] = {}
    waiting, seen = list(node.all_input_nodes), set()
    while waiting:
        before = waiting.pop()
        if before in known:
            found[before] = None
        elif before not in seen:
            seen.add(before)
            waiting += before.all_input_nodes
    return list(found)


def _shape(node: fx.Node) -> str:
    return "×".join(map(str, getattr(node.meta.get("val"), "shape", ())))


def _passes(node: fx.Node) -> str:
    value = node.meta.get("val")
    sizes = getattr(value, "shape", ())
    if not sizes or not all(isinstance(size, int) for size in sizes):
        return ""
    return readable_bytes(value.numel() * value.element_size())


def _operators(rows: tuple[Row, ...]) -> str:
    head = "".join(
        f'<th scope="col" class="text"><button type="button">{title}</button></th>'
        for title in ("operator", "will be", "why")
    )
    lines = []
    for i, row in enumerate(rows):
        tag = f'<span class="tag{" float" if row.precision == "float32" else ""}">{escape(row.precision)}</span>'
        lines.append(
            f'<tr id="step={i}"><td class="text" data-value="{i}">{layer_name(row.path, row.operator)}</td>'
            f'<td class="text" data-value="{escape(row.precision)}">{tag}</td>'
            f'<td class="text" data-value="{escape(row.reason)}">{escape(row.reason)}</td></tr>'
        )
    find = (
        '<div class="find"><input id="search" type="search" placeholder="Search: conv, a module, float32 …"'
        ' aria-label="Search operators" autocomplete="off" spellcheck="false"><output id="count"></output></div>'
    )
    about = "Each operator, what it will be, and why it stays in float."
    return section("Operators", about, find + table("operators", head, lines))
