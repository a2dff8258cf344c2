"""The harness of the benchmarks: rows that fail say why, and results become tables and pictures."""

from __future__ import annotations

import functools
import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import beginnings, engine, held, models, plot, report, table, vision
from bench.timing import OURS, How, Result, Row
from zeropoint.interop.peer_process import Times


def test_plain_rows_leave_out_peers_by_name() -> None:
    row = Row("row", lambda: None, {"slow one": lambda: None, "other": lambda: None}, {"other": 0.0})
    found = row.measure(How(without=["slow one"], seconds=0.0, least_rounds=3))
    assert found.peers == ("other",)
    assert len(found.times[OURS].values) == 3
    assert "other" in report.line(found)


@pytest.mark.parametrize(("ours", "peer", "verdict"), [(1.0, 1.5, "reached"), (1.2, 1.0, "tie"), (2.0, 1.0, "missed")])
def test_small_differences_are_ties(ours: float, peer: float, verdict: str) -> None:
    found = Result(Row("row"), {OURS: Times((ours,)), "peer": Times((peer,))}, {"peer": 1.0})
    assert found.verdict("peer") == verdict


def test_the_summary_takes_the_best_peer_in_8_bits_of_each_row() -> None:
    times = {OURS: Times((1.0,)), "torch float32": Times((0.5,)), "quick": Times((1.5,)), "slow": Times((9.0,))}
    other = {OURS: Times((1.0,)), "quick": Times((6.0,))}
    found = report.summary([Result(Row("one"), times), Result(Row("two"), other), Result(Row("none"), {}, failed="no")])
    assert "2 rows" in found
    assert "3.00x our time" in found  # the geometric mean of 1.5 and 6
    assert "worst 1.50x, one" in found


def test_a_row_of_ours_that_failed_has_no_ratios_and_says_why() -> None:
    found = Result(Row("row"), {"peer": Times((1.0,))}, failed="no kernel")
    assert found.peers == ()
    assert "FAILED: no kernel" in report.line(found)
    assert json.loads(report.as_json([found]))["rows"][0]["failed"] == "no kernel"


def test_a_model_that_we_cannot_compile_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *_: Any) -> Any:
        raise ValueError(f"{name} refuses")

    monkeypatch.setattr(engine, "written", refuse)
    case = engine.Case("small", models.mlp, engine.floats(784), (1,))
    monkeypatch.setattr(engine, "CASES", (case,))
    (row,) = engine.rows()
    found = row.measure(How(seconds=0.0, least_rounds=1))
    assert found.failed == "zeropoint: ValueError: zeropoint refuses"
    assert any("OpenVINO refuses" in detail for detail in found.details)


@pytest.mark.parametrize(
    "case", [c for c in engine.CASES if "YOLO" not in c.name and "BERT" not in c.name], ids=lambda c: c.name
)
def test_models_take_their_inputs(case: engine.Case) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        assert torch.isfinite(case.make().eval()(*case.inputs(1))).all()


def test_the_detector_has_the_places_of_three_sizes() -> None:
    with torch.no_grad():
        found = vision.Detector().eval()(torch.randn(1, 3, 64, 64))
    assert found.shape == (1, 144, 8 * 8 + 4 * 4 + 2 * 2)


def scaling(growth: float) -> dict[str, Any]:
    rows = [
        {
            "name": f"net {n}",
            "sweep": "net <batch>",
            "size": n,
            "macs": 1e9 * n,
            "failed": "",
            "milliseconds": {OURS: n**growth},
        }
        for n in (1, 2, 4, 64)
    ]
    return {"machine": "a machine & its kernels\nmore", "rows": rows}


def test_a_picture_is_made_of_results() -> None:
    drawn = plot.picture(scaling(1.0))
    root = ET.fromstring(drawn)
    (line,) = root.iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, p.split(","))) for p in line.attrib["points"].split()]
    assert len(points) == 4
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert "a machine &amp; its kernels" in drawn
    assert "1000 to 1000 GMAC/s" in drawn


def test_a_picture_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="bench scaling --json"):
        plot.picture({"machine": "", "rows": [{"name": "other"}]})


def results() -> dict[str, Any]:
    known = {
        OURS: {"cosine": 0.99, "gmacs": 120.4, "of_peak": 0.51, "quantized": True, "setting": "a program"},
        "ONNX Runtime": {"cosine": 0.98, "quantized": False, "setting": "dynamic"},
        "OpenVINO": {"left_out": "it is not installed"},
    }
    row = {
        "name": "net, batch 1", "failed": "", "milliseconds": {OURS: 12.345}, "quartiles": {OURS: [12.1, 13.0]},
        "ratios": {"ONNX Runtime": 1.25}, "contenders": known,
    }  # fmt: skip
    broken = {"name": "other, batch 1", "failed": "no kernel", "contenders": {}, "ratios": {}}
    return {"machine": "one\ntwo", "rows": [row, broken]}


def test_a_table_marks_peers_that_stay_in_float() -> None:
    lines = table.table(results()).splitlines()
    assert lines[2] == "| net, batch 1 | 12.3 (12.1-13.0) | 120 (51%) | 1.25x * | 0.99000, 0.98000 |"
    assert "failed: no kernel" in lines[3]


def test_a_table_of_pretrained_networks_has_their_scores() -> None:
    found = results()
    found["rows"][0]["contenders"][OURS]["task"] = {"unit": "cents", "float": 0.0, "int8": 0.6012}
    lines = table.table(found).splitlines()
    assert lines[0].endswith("| task score: float, int8 |")
    assert lines[2].endswith("| 0.99000, 0.98000 | cents: 0, 0.6012 |")
    assert table.brief(found).startswith("one\n\n| model |")


def test_the_page_has_a_place_for_pretrained_networks() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    assert "\n\nnew\n\n" in table.put(page, "new", table.PRETRAINED)


def test_a_table_says_how_peers_ran() -> None:
    assert "- ONNX Runtime: dynamic (1 rows)" in table.settings(results())
    assert "- OpenVINO: left out: it is not installed (1 rows)" in table.settings(results())


def test_a_table_is_put_between_its_marks() -> None:
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    assert table.put(page, "new") == f"before\n{table.BEGIN}\n\nnew\n\n{table.END}\nafter\n"
    with pytest.raises(ValueError, match="has no lines"):
        table.put("nothing", "new")


def test_everybody_is_held_to_a_level_before_the_cpu_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in held.LEVELS["avx2"]:
        monkeypatch.setenv(name, "")
    assert held.hold(["bench", "engine", "--isa", "avx2"]) == "avx2"
    assert os.environ["ZEROPOINT_ISA"] == "avx2"
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert held.hold(["bench", "--isa", "unknown"]) == held.hold(["bench", "--isa"]) == ""


def test_what_threads_bring_is_said_in_rows_and_summaries() -> None:
    case = engine.Case("small", models.mlp, engine.floats(784), (1,))
    how = How(without=("slow", "peers"), seconds=0.0, least_rounds=2, samples=1, scaling=True)
    found = engine.race(engine.task(case, 1, 1), 1.0, Row("small"), how, 2)
    facts = found.facts["contenders"][OURS]
    assert facts["one_thread_ms"] > 0
    assert facts["undivided"] == pytest.approx(2 / facts["of_one_thread"] - 1)
    assert "of whose time is not divided" in report.line(found)
    assert engine.ALONE not in found.peers
    with_peer = Result(found.row, {**found.times, "quick": Times((1.0,))}, facts=found.facts)
    assert "share of the instruction's peak" in report.summary([with_peer])
    assert "over one thread" in table.table(json.loads(report.as_json([found])))


def test_beginnings_time_first_answers_and_quantizing() -> None:
    how = How(without=("peers",), seconds=0.0, least_rounds=1, samples=1)
    first = [row for row in beginnings.rows() if "MLP" in row.name]
    case = engine.Case("MLP", models.mlp, engine.floats(784), (1,), samples=1)
    for row in (*first, Row("quantizing", race=functools.partial(beginnings._quantizing, case))):
        found = row.measure(how)
        assert found.times[OURS].median > 0, row.name
        assert found.peers == ()
