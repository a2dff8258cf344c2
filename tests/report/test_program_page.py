"""The page of a program shows its steps, escapes what a file says, needs nothing from outside, and reacts."""

from __future__ import annotations

import dataclasses
import json
import re
import struct
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import opened, photographed, seen
from hostile_texts import with_texts

from zeropoint.report.program_facts import ProgramFacts, Source, example_inputs, program_facts
from zeropoint.report.program_page import _boxes, program_page, write_program_page
from zeropoint.report.svg_graph import HIGH, WIDE, graph_svg
from zeropoint.runtime import load

PROGRAMS = Path(__file__).parents[1] / "golden" / "programs"
EVIL = "</script><img src=x onerror=alert(1)>&\"'<!--"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ProgramFacts]:
    path = tmp_path_factory.mktemp("page") / "residual.html"
    return path, write_program_page(path, PROGRAMS / "residual.zpt")


def renamed(source: Path, target: Path, old: str, new: str) -> Path:
    """The program with another name for a value or a constant."""
    data = source.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    program = header["__metadata__"]["zeropoint.program"]
    assert json.dumps(old) in program
    header["__metadata__"]["zeropoint.program"] = program.replace(json.dumps(old), json.dumps(new))
    header = {new if name == old else name: tensor for name, tensor in header.items()}
    made = json.dumps(header).encode()
    target.write_bytes(struct.pack("<Q", len(made)) + made + data[8 + length :])
    return target


def hostile(value: Any) -> Any:
    """The same, with code in every text that a file may choose."""

    def source(part: Any) -> Any:
        if not isinstance(part, Source):
            return None
        return dataclasses.replace(part, name=hostile(part.name), shape=hostile(part.shape), dtype=EVIL)

    return with_texts(value, lambda text: text + EVIL, source)


class Tags(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def embedded(text: str) -> list[dict[str, object]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def test_every_step_has_a_row_and_details(written: tuple[Path, ProgramFacts]) -> None:
    path, facts = written
    text = path.read_text()
    rows = re.findall(r'<tr id="step=(\d+)">.*?<a href="#step=\1">([^<]+)</a><small class="mono">([^<]*)<', text)
    assert [(int(n), op, unescape(name)) for n, op, name in rows] == [(s.number, s.op, s.name) for s in facts.steps]
    assert [step["op"] for step in embedded(text)] == [s.op for s in facts.steps]


def test_every_text_of_a_program_is_escaped(written: tuple[Path, ProgramFacts]) -> None:
    plain = dataclasses.replace(written[1], state=(Source("state", "state", shape=(1, "n")),), profile=None)
    tags = [
        [(tag, *attributes) for tag, attributes in Tags(program_page(facts, facts.outputs[0])).seen]
        for facts in (plain, hostile(plain))
    ]
    assert tags[0] == tags[1]


def test_shapes_memory_and_times_are_those_of_the_program(written: tuple[Path, ProgramFacts]) -> None:
    _, facts = written
    program = load(PROGRAMS / "residual.zpt")
    inputs = example_inputs(program)
    profile = program.profile(*inputs, runs=1)
    assert {(row.step, row.shape, row.dtype_out, row.kernel) for row in profile if row.step >= 0} <= {
        (s.number, s.shape, s.dtype, s.kernel) for s in facts.steps
    }
    assert sum(step.macs for step in facts.steps) == sum(row.macs for row in profile)
    assert (facts.arena, facts.values, facts.file) == tuple(program.memory())
    assert max(block.offset + block.nbytes for block in facts.blocks) <= facts.arena
    assert facts.seconds is not None
    assert sum(s.seconds or 0.0 for s in facts.steps) + (facts.copies or 0.0) == pytest.approx(facts.seconds)


def test_blocks_in_use_at_the_same_time_do_not_overlap_unless_one_takes_over(
    written: tuple[Path, ProgramFacts],
) -> None:
    blocks = written[1].blocks
    assert blocks
    for i, a in enumerate(blocks):
        for b in blocks[:i]:
            together = min(a.last, b.last) - max(a.first, b.first)
            apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
            assert apart or together <= 0


def test_what_feeds_a_step_names_it_back() -> None:
    program = load(PROGRAMS / "encoder.zpt")
    steps = program_facts(program, example_inputs(program), runs=0).steps
    assert any(len(step.used_by) > 1 for step in steps)
    for step in steps:
        assert step.seconds is None
        for source in step.sources:
            assert (source.kind == "step") == (source.step >= 0)
            if source.step >= 0:
                assert step.number in steps[source.step].used_by
                assert source.step < step.number


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.zpt")), ids=lambda path: path.stem)
def test_every_kind_of_program_has_a_page(path: Path) -> None:
    program = load(path)
    facts = program_facts(program, example_inputs(program), runs=0)
    tags = Tags(program_page(facts, path.name))
    assert sum(tag == "tr" for tag, _ in tags.seen) == len(facts.steps) + 1
    assert sum(attrs.get("class") == "block" for _, attrs in tags.seen) == len(facts.blocks)
    boxes = [int(attrs["data-step"] or "") for _, attrs in tags.seen if (attrs.get("class") or "").startswith("box ")]
    assert boxes == [step.number for step in facts.steps if step.dtype]


@pytest.mark.parametrize("kind", ["output", "constant", "input"])
def test_names_of_a_hostile_file_are_escaped(tmp_path: Path, kind: str) -> None:
    program = load(PROGRAMS / "residual.zpt")
    facts = program_facts(program, example_inputs(program), runs=0)
    constant = next(s.name for step in facts.steps for s in step.sources if s.kind == "constant")
    old = {"output": facts.steps[1].name, "constant": constant, "input": facts.inputs[0].name}[kind]
    page = tmp_path / "page.html"
    write_program_page(page, renamed(PROGRAMS / "residual.zpt", tmp_path / "evil.zpt", old, EVIL), title=EVIL)
    text = page.read_text()
    tags = Tags(text)
    assert not [tag for tag, _ in tags.seen if tag in ("img", "iframe")]
    assert not [attrs for _, attrs in tags.seen if any(name.startswith("on") for name in attrs)]
    assert sum(tag == "script" for tag, _ in tags.seen) == 2
    assert EVIL in json.dumps(embedded(text), ensure_ascii=False).replace('\\"', '"')
    assert text.count("<!--") == 0


def test_only_its_own_script_may_run_and_nothing_comes_from_outside(written: tuple[Path, ProgramFacts]) -> None:
    text = written[0].read_text()
    assert "script-src 'sha256-" in text
    assert not re.search(r"(?:src|href)=[\"'](?!data:|#)", text)
    assert not re.search(r"https?://|url\(", text)


def test_inputs_that_are_given_are_the_ones_that_are_shown(tmp_path: Path) -> None:
    program = load(PROGRAMS / "channels.zpt")
    [given] = example_inputs(program)
    page = tmp_path / "page.html"
    facts = write_program_page(page, program, [given], title="mine", timed=False)
    assert facts.inputs[0].shape == given.shape
    assert "made-up" not in page.read_text()
    assert 'class="time"' not in page.read_text()
    with pytest.raises(ValueError, match=r"input|shape"):
        write_program_page(page, program, [np.zeros((1, 1), np.float32)])


def test_it_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import zeropoint\n"
        f"zeropoint.write_program_page({str(tmp_path / 'p.html')!r}, {str(PROGRAMS / 'lstm.zpt')!r})\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "p.html").exists()


# --------------------------------------------------------------------------------------------------------- the graph


def test_boxes_do_not_overlap_and_stand_below_what_they_read(written: tuple[Path, ProgramFacts]) -> None:
    boxes = _boxes(written[1])
    drawn = re.findall(r'<rect x="(-?\d+)" y="(\d+)"', graph_svg(boxes))
    places = [(int(x), int(y)) for x, y in drawn]
    for i, (box, (x, y)) in enumerate(zip(boxes, places)):
        assert all(places[source][1] + HIGH < y for source, _ in box.sources)
        assert all(abs(x - x1) >= WIDE or abs(y - y1) >= HIGH for x1, y1 in places[:i])


def test_steps_of_a_module_are_one_box_where_there_are_too_many(
    written: tuple[Path, ProgramFacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = tuple(
        dataclasses.replace(step, outputs=(f"layers.{step.number // 3}.part.{step.op}",)) for step in written[1].steps
    )
    facts = dataclasses.replace(written[1], steps=steps)
    monkeypatch.setattr("zeropoint.report.program_page.MOST_BOXES", len(steps) // 2)
    boxes = _boxes(facts)
    assert [box.title for box in boxes] == [f"layers.{i}.part" for i in range(len(boxes))]
    assert len(boxes) == -(-len(steps) // 3)


# ------------------------------------------------------------------------------------------------------ in a browser


def test_a_chosen_step_is_marked_in_the_graph_and_what_is_not_searched_for_fades(
    written: tuple[Path, ProgramFacts],
) -> None:
    path, facts = written
    document = opened(path, "#step=1")
    assert re.search(r'<g class="box int8 chosen" data-step="1">', document)
    assert re.search(r'<g class="box \w+ feeds" data-step="0">', document)
    assert 'class="bars"' in document  # of the weights
    found = opened(path, "#search=conv")
    faded = {int(step) for step in re.findall(r'<g class="box \w+ missed" data-step="(\d+)">', found)}
    assert faded
    assert not any(facts.steps[step].op == "conv" for step in faded)


def test_the_browser_has_nothing_to_complain_about_and_a_step_opens(written: tuple[Path, ProgramFacts]) -> None:
    path, facts = written
    document, complaints = seen(path, "#step=1")
    assert complaints == []
    panel = document[document.index('<aside id="details"') : document.index("</aside>")]
    assert f"<h3>1 {facts.steps[1].op}</h3>" in panel
    for source in facts.steps[1].sources:
        assert source.name in panel
    assert re.search(r'<tr id="step=1" class="chosen">', document)


def test_a_search_hides_the_other_steps(written: tuple[Path, ProgramFacts]) -> None:
    path, facts = written
    document = opened(path, "#search=dequantize")
    shown = re.findall(r'<tr id="step=(\d+)">', document)
    hidden = re.findall(r'<tr id="step=(\d+)" hidden="">', document)
    assert len(shown) + len(hidden) == len(facts.steps)
    assert {facts.steps[int(n)].op for n in shown} == {"dequantize"}
    assert f"{len(shown)} of {len(facts.steps)}" in document


def test_a_hostile_file_runs_nothing_in_the_browser(tmp_path: Path) -> None:
    program = load(PROGRAMS / "residual.zpt")
    name = program_facts(program, example_inputs(program), runs=0).steps[1].name
    page = tmp_path / "page.html"
    write_program_page(page, renamed(PROGRAMS / "residual.zpt", tmp_path / "evil.zpt", name, EVIL), title=EVIL)
    document, complaints = seen(page, "#step=1")
    assert complaints == []
    assert "<img" not in document


def test_it_can_be_photographed_in_the_dark(written: tuple[Path, ProgramFacts], tmp_path: Path) -> None:
    assert photographed(written[0], tmp_path / "page.png", 1280, 900, dark=True).stat().st_size > 10_000
