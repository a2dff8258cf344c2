"""The page shows what was found, escapes it, needs nothing from outside, and sorts."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import console, opened, photographed
from damaged_models import BAD, batches, net, per_tensor, with_outliers
from hostile_texts import with_texts
from torch import nn

import zeropoint
from zeropoint.comparison.layers import LayerRow
from zeropoint.graph.summary import Row
from zeropoint.report.findings import Findings, Search
from zeropoint.report.html import page

EVIL = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Findings]:
    model = with_outliers(net())
    quantized = zeropoint.to_int8(model, (batches()[0],), batches(), per_tensor(), progress=False)
    found = zeropoint.sensitivity(model, batches(1), qconfig=per_tensor(), progress=False)
    path = tmp_path_factory.mktemp("report") / "report.html"
    options = {"title": EVIL, "sensitivity": found, "progress": False}
    return path, zeropoint.write_report(path, model, quantized, batches(), **options)


class Tags(HTMLParser):
    """Checks that tags are closed in order."""

    EMPTY = frozenset(("meta", "link", "br", "wbr", "rect"))

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: Counter[tuple[str, ...]] = Counter()  # elements, with the names of their attributes

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[(tag, *(name for name, _ in attrs))] += 1
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """Closes itself."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def label(row: LayerRow) -> str:
    return row.path or "(model)"


def layers(document: str) -> list[str]:
    """The first cells of the table of layers, top to bottom."""
    table = document[document.index('id="layers"') :]
    return re.findall(r'<tr><td data-value="([^"]*)" class="text">', table[: table.index("</table>")])


def test_tags_are_closed_in_order(written: tuple[Path, Findings]) -> None:
    tags = Tags()
    tags.feed(written[0].read_text())
    assert tags.open == []


def test_the_title_is_escaped(written: tuple[Path, Findings]) -> None:
    text = written[0].read_text()
    assert EVIL not in text
    assert "&lt;script&gt;alert" in text


def test_names_of_layers_are_escaped() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("<img src=x>", nn.Linear(4, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.get_submodule("<img src=x>")(x)

    model = Named().eval()
    quantized = zeropoint.quantize_dynamic(model)
    text = page(zeropoint.report.findings.gather(model, quantized, [torch.ones(1, 4)], seconds=0.0))
    assert "<img" not in text
    assert "&lt;img src=x&gt;" in text


def hostile(value: Any) -> Any:
    """The same, with code in every text."""
    return with_texts(value, lambda text: f"{text}\"'>{EVIL}<img src=x onerror=alert(1)>")


def test_every_text_of_the_findings_is_escaped(written: tuple[Path, Findings]) -> None:
    tried = Search(("name",), (("first", "1 ms"),), "reached", ((1.0, 2.0, "point"),))
    plain = dataclasses.replace(written[1], search=tried, operators=(Row("layer", "op", "float32", "reason"),))
    counts = []
    for found in (plain, hostile(plain)):
        tags = Tags()
        tags.feed(page(found))
        counts.append(tags.count)
        assert tags.open == []
    assert set(counts[1]) <= set(counts[0])  # some names decide how many there are
    assert counts[1][("script",)] == 1


def test_only_the_script_of_the_page_may_run(written: tuple[Path, Findings]) -> None:
    text = written[0].read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:" in text


def test_nothing_comes_from_outside(written: tuple[Path, Findings]) -> None:
    text = written[0].read_text()
    assert not re.search(r"(?:src|href)=[\"'](?!data:)", text)
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text


def test_every_layer_has_a_row_and_the_worst_is_first(written: tuple[Path, Findings]) -> None:
    path, found = written
    assert layers(path.read_text()) == [label(row) for row in found.comparison.rows]
    assert layers(path.read_text())[0] == BAD
    assert "outliers in the weight" in path.read_text()


@pytest.mark.parametrize(
    "section",
    [
        "Layers with the largest error",
        "Error from",
        "Layers",
        "Distribution of",
        "Speed by step",
        "Size by",
        "Sensitivity",
    ],
)
def test_every_section_is_there(written: tuple[Path, Findings], section: str) -> None:
    assert f"<h2>{section}" in written[0].read_text()


def test_histograms_show_the_chosen_range(written: tuple[Path, Findings]) -> None:
    path, found = written
    [second] = [row for row in found.comparison.rows if row.path == BAD]
    histogram = found.activations[second.name]
    assert second.scale is not None
    assert histogram.range == pytest.approx((0.0, 255 * second.scale))
    assert sum(histogram.counts) == 4 * 16 * 8 * 8
    rounded = sum(histogram.range is not None for histogram in found.activations.values())
    assert rounded == len(found.activations) - 1  # what the last layer returns is not
    assert path.read_text().count('class="range"') == rounded + len(found.weights)


def test_eager_models_have_a_page_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    quantized = zeropoint.quantize_dynamic(model)
    found = zeropoint.write_report(tmp_path / "r.html", model, quantized, [torch.randn(5, 8)], progress=False)
    assert found.steps == ()
    assert sorted(layers((tmp_path / "r.html").read_text())) == ["0", "2"]


def test_the_browser_has_nothing_to_complain_about(written: tuple[Path, Findings]) -> None:
    assert console(written[0]) == []
    assert console(written[0], "#sort=time") == []


def test_a_complaint_would_be_seen(tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<script>nothing.here()</script>")
    assert console(bad)


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_layers_are_sorted_by_a_column(written: tuple[Path, Findings], order: str) -> None:
    path, found = written
    rows = sorted(found.comparison.rows, key=lambda row: row.sqnr, reverse=order == "descending")
    assert layers(opened(path, f"#sort=sqnr:{order}")) == [label(row) for row in rows]


def test_a_click_sorts_downwards_and_names_sort_as_text(written: tuple[Path, Findings]) -> None:
    path, found = written
    document = opened(path, "#sort=layer")
    assert layers(document) == sorted((label(row) for row in found.comparison.rows), reverse=True)
    assert re.search(r'<th scope="col" data-key="layer" class="text" aria-sort="descending">', document)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_can_be_photographed_on_a_phone(written: tuple[Path, Findings], tmp_path: Path, dark: bool) -> None:
    assert photographed(written[0], tmp_path / "phone.png", 390, 844, dark).stat().st_size > 10_000
