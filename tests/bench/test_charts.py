"""The charts show what README.md and docs/benchmarks.md say, and what the JSON has."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "docs" / "benchmarks.json").read_text())


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def tables() -> list[list[dict[str, Any]]]:
    """The rows of the tables of README.md and of docs/benchmarks.md, as the JSON has them."""
    text = (ROOT / "README.md").read_text() + (ROOT / "docs" / "benchmarks.md").read_text()
    found = []
    for table in re.findall(r"(\| model, batch \|.*?)\n\n", text, re.DOTALL):
        titles = [title.strip() for title in table.splitlines()[0].strip("|").split("|")]
        rows = []
        for line in table.splitlines()[2:]:
            cells = dict(zip(titles, (cell.strip() for cell in line.strip("|").split("|"))))
            model, batch = cells["model, batch"].rsplit(", ", 1)
            peers = ("torch float32", "torch.ao jit", "ONNX Runtime", "OpenVINO")
            ratios = {p: None if cells[p] == "not run" else float(cells[p].removesuffix("x")) for p in peers}
            ours = float(cells["zeropoint"].split()[0])
            rows.append({"model": model, "batch": int(batch), "zeropoint_ms": ours, "ratios": ratios})
        found.append(rows)
    return found


def test_the_json_is_what_the_pages_say() -> None:
    assert [cpu["rows"] for cpu in RESULTS["cpus"]] == tables()


@pytest.mark.parametrize("cpu", RESULTS["cpus"], ids=lambda cpu: cpu["key"])
def test_the_picture_is_drawn_from_the_json(cpu: dict[str, Any]) -> None:
    drawn = script("charts").bars(cpu, RESULTS["versions"])
    assert (ROOT / "docs" / "pictures" / f"benchmarks_{cpu['key']}.svg").read_text() == drawn
    rects = ElementTree.fromstring(drawn).findall(".//{*}rect/{*}title/..")
    known = sum(1 + sum(ratio is not None for ratio in row["ratios"].values()) for row in cpu["rows"])
    assert len(rects) == known


def test_the_pipeline_is_that_of_the_model() -> None:
    assert script("charts").pipeline() == (ROOT / "docs" / "pictures" / "pipeline.svg").read_text()


def test_the_recording_shows_lines_in_the_order_in_which_they_came() -> None:
    recorder = script("record_terminal")
    lines = [recorder.Shown("$ zeropoint <run>", "typed", 0.5), recorder.Shown("done & over", "out", 2.0)]
    texts = ElementTree.fromstring(recorder.drawn(lines)).findall(".//{*}text")
    assert [text.text for text in texts] == ["$ zeropoint <run>", "done & over"]
    recorded = ElementTree.parse(ROOT / "docs" / "pictures" / "quickstart.svg").findall(".//{*}text")
    commands = [text.text for text in recorded if (text.text or "").startswith("$ ")]
    assert commands == [f"$ {command}" for command in recorder.COMMANDS]
