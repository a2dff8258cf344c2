"""The page that sets two things side by side: `page.html`, filled in. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from os import PathLike
from string import Template

from zeropoint.atomic_file import replacing
from zeropoint.report.markup import asset, digest


def write_comparison(path: str | PathLike[str], names: Sequence[str], how: str, cards: str, sections: str) -> None:
    """Write the page; `how` says, behind the names, how both were compared."""
    script = asset("sort.js")
    text = Template(asset("page.html")).substitute(
        brand="zeropoint comparison",
        digest=digest(script),
        style=asset("style.css"),
        script=script,
        title=escape(" and ".join(names)),
        verdict=escape(f"{names[1]} compared with {names[0]}{how}"),
        cards=cards,
        sections=sections,
        footer="",
    )
    with replacing(path) as new:
        new.write_bytes(text.encode("utf-8", errors="replace"))
