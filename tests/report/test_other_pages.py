"""The page of a model before it is quantized, and that of two programs: what they say, and that browsers like them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from browser import seen
from torch import Tensor, nn

from zeropoint.report.diff_page import sides, write_diff_page
from zeropoint.report.model_page import write_model_page
from zeropoint.report.program_facts import example_inputs, program_facts
from zeropoint.runtime import load

PROGRAMS = Path(__file__).parents[1] / "golden" / "programs"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.conv(x))
        return torch.softmax(self.head((y + y.flip(-1)).mean((2, 3))), -1)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    path = tmp_path_factory.mktemp("plan") / "plan.html"
    rows = write_model_page(path, Net().eval(), (torch.randn(1, 3, 8, 8),), title="<Net>")
    return path, [row.precision for row in rows]


def test_a_model_is_drawn_as_it_would_be_quantized(plan: tuple[Path, list[str]]) -> None:
    path, ways = plan
    text = path.read_text()
    kinds = re.findall(r'<g class="box (\w+)" data-step', text)
    assert kinds == ["float" if way == "float32" else "int8" for way in ways]
    assert "float" in kinds
    assert "the model returns what becomes of it" in text
    assert "<h1>&lt;Net&gt;</h1>" in text


def test_the_browser_marks_what_was_clicked(plan: tuple[Path, list[str]]) -> None:
    document, complaints = seen(plan[0], "#step=1")
    assert complaints == []
    assert re.search(r'<g class="box \w+ chosen" data-step="1">', document)
    assert re.search(r'<tr id="step=1" class="chosen"', document)


def test_the_browser_finds_operators_by_their_words(plan: tuple[Path, list[str]]) -> None:
    document, complaints = seen(plan[0], "#search=float32")
    assert complaints == []
    kept = len(re.findall(r'<g class="box float"', document))
    assert kept == plan[1].count("float32")
    assert re.search(rf'<output id="count">{kept} of {len(plan[1])}</output>', document)


def test_a_program_is_the_same_as_itself_and_slower_parts_come_first(tmp_path: Path) -> None:
    program = load(PROGRAMS / "residual.zpt")
    rows = write_diff_page(tmp_path / "diff.html", [program, program], ["a & b", "c"])
    assert all(row.nbytes[0] == row.nbytes[1] and row.precisions[0] == row.precisions[1] for row in rows)
    document, complaints = seen(tmp_path / "diff.html")
    assert complaints == []
    assert "a &amp; b" in document
    assert ">equal<" in document


def test_what_only_one_program_has_is_shown() -> None:
    facts = [
        program_facts(program, example_inputs(program), runs=0)
        for program in (load(PROGRAMS / "residual.zpt"), load(PROGRAMS / "lstm.zpt"))
    ]
    found = sides(*facts)
    assert any(side.nbytes[0] is None for side in found)
    assert any(side.nbytes[1] is None for side in found)
