"""Parts of the pages as HTML text. What comes from a model or a file is escaped here. Needs no torch."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path


def asset(name: str) -> str:
    """The text of a file beside this one: a template, the style, a script."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def digest(script: str) -> str:
    """What names the one script that a page may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def card(title: str, value: str, note: str, grade: str = "") -> str:
    return (
        f'<div class="card"><h3>{escape(title)}</h3><div class="value {grade}">{escape(value)}</div>'
        f'<div class="note">{escape(note)}</div></div>'
    )


def milliseconds(value: float) -> str:
    if value >= 0.1:
        return f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"
    return f"{1000 * value:.0f} µs" if value >= 0.01 else f"{1000 * value:.1f} µs"


def section(title: str, text: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{text}</p>{body}</section>"


def layer_name(path: str, operator: str) -> str:
    """A layer; a long path may be broken after its dots and underscores."""
    place, kind = (re.sub(r"([._])(?=.)", r"\1<wbr>", escape(text)) for text in (path or "(model)", operator))
    return f'<span class="mono">{place}</span> <small>{kind}</small>'


def bar(parts: Iterable[tuple[float, str]]) -> str:
    tracks = (
        f'<div class="track"><i class="{kind}" style="width:{100 * min(max(part, 0), 1):.1f}%"></i></div>'
        for part, kind in parts
    )
    return f'<div class="bar">{"".join(tracks)}</div>'


def drawing(svg: str) -> str:
    """A graph that can be moved, and what its colors mean."""
    tools = (("closer", "+"), ("further", "−"), ("whole", "All"), ("begin", "Start"))
    buttons = "".join(f'<button type="button" id="{name}">{text}</button>' for name, text in tools)
    kinds = (("int8", "computes on 8-bit integers"), ("float", "computes on floats"), ("", "moves or counts"))
    key = "".join(f'<span><b class="{kind}"></b>{text}</span>' for kind, text in kinds)
    return f'<div class="panel drawing">{svg}<div class="tools">{buttons}</div></div><div class="key">{key}</div>'


def panel(inside: str) -> str:
    return f'<div class="panel">{inside}</div>'


def head(titles: Sequence[str]) -> str:
    """The titles of a table that can be sorted: two columns of text, then numbers."""
    return "".join(
        f'<th scope="col" data-key="c{i}"{" class=text" if i < 2 else ""}>'
        f'<button type="button">{escape(title)}</button></th>'
        for i, title in enumerate(titles)
    )


def table(name: str, head: str, lines: list[str]) -> str:
    body = "".join(lines)
    return f'<div class="scroll"><table id="{name}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
