"""What notebooks show: results as tables, escaped, with bars where numbers are compared."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from torch import nn

import zeropoint
from zeropoint.graph.summary import Row, Summary
from zeropoint.html_table import MOST, Bar, html_table


class Cells(HTMLParser):
    """The texts of all cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._inside = tag in ("td", "th", "div", "pre")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found.append(data)


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    batches = [torch.randn(4, 8) for _ in range(4)]
    quantized = zeropoint.to_int8(model, (batches[0],), batches, progress=False)
    program = zeropoint.compile(quantized, (batches[0],))
    return {
        "summary": quantized.summary(),
        "comparison": zeropoint.compare(model, quantized, batches, progress=False),
        "sensitivity": zeropoint.sensitivity(model, batches, progress=False),
        "tuned": zeropoint.tune(model, (batches[0],), batches, target=20.0, progress=False),
        "program": program,
        "profile": program.profile(batches[0]),
        "tensor": zeropoint.quantize_per_tensor(batches[0], 0.1, 3, zeropoint.qint8),
        "channels": zeropoint.quantize_per_channel(
            batches[0], torch.ones(4), torch.zeros(4, dtype=torch.long), 0, zeropoint.qint8
        ),
    }


@pytest.mark.parametrize(
    ("name", "words", "bars"),
    [
        ("summary", ["0", "linear", "int8", "2 int8"], False),
        ("comparison", ["layer", "0", "2"], True),
        ("sensitivity", ["layer", "linear"], False),
        ("tuned", ["plain", "plain int8"], True),
        ("program", ["input", "float32"], False),
        ("profile", ["module", "2", "linear"], True),
        ("tensor", ["4×8", "zeropoint.qint8", "scale", "0.1"], False),
        ("channels", ["scale"], False),
    ],
)
def test_results_are_tables_in_notebooks(made: dict[str, Any], name: str, words: list[str], bars: bool) -> None:
    text = made[name]._repr_html_()
    assert "<table>" in text
    assert set(words) <= set(Cells(text).found)
    assert ("linear-gradient" in text) == bars


def test_names_are_escaped_and_long_tables_are_cut() -> None:
    row = Row("<img src=x onerror=alert(1)>", "<b>", "int8")
    text = Summary((row,) * (MOST + 5))._repr_html_()
    assert "<img" not in text
    assert "<b>" not in text
    assert text.count("<tr>") == MOST + 1
    assert "5 more rows" in text


def test_a_bar_is_never_longer_than_its_cell() -> None:
    assert [Bar("x", share).share for share in (-1.0, 0.5, 7.0, float("nan"))] == [0.0, 0.5, 1.0, 0.0]
    assert "transparent 50.0%" in html_table(["a"], [[Bar("1", 0.5)]])
