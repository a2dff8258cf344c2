"""What the commands do, print and write, and how they fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Ran, run, run_process
from forked import run_forked

import zeropoint
from zeropoint import _native
from zeropoint.cli import diagnosis
from zeropoint.runtime.advice import _WORDS

FIXED = 4  # samples that fixed.pt2 takes, and example inputs of model.pt2

# ------------------------------------------------------------------------------------------------------------ export


def test_export_writes_onnx_files_of_quantized_models_and_of_programs() -> None:
    import onnx

    import zeropoint

    for name in ("out.pt2", "out.zpt"):
        assert run("quantize", "model.pt2", "-d", "images.npy", "-o", name).code == 0
    ran = run("export", "out.pt2", "-d", "images.npy", "-o", "out.onnx")
    assert ran.code == 0
    written = onnx.load("out.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert {"QuantizeLinear", "Conv", "Gemm"} <= {node.op_type for node in written.graph.node}
    ran = run("export", "out.zpt", "-o", "program.onnx")
    assert ran.code == 0
    onnx.checker.check_model("program.onnx", full_check=True)
    images = torch.from_numpy(np.load("images.npy")).float()[:8]
    again = zeropoint.from_onnx("program.onnx", (images,))
    assert np.array_equal(again(images).detach().numpy(), zeropoint.runtime.load("out.zpt")(images.numpy()))
    ran = run("quantize", "program.onnx", "-d", "images.npy", "-o", "again.zpt")  # it is quantized already
    assert ran.code == 0, ran.err
    assert np.array_equal(
        zeropoint.runtime.load("again.zpt")(images.numpy()), zeropoint.runtime.load("out.zpt")(images.numpy())
    )
    assert "quantized already" in run("quantize", "program.onnx", "-d", "images.npy", "-o", "a.zpt", "--float", "0").err
    assert "omit --data" in run("export", "out.zpt", "-d", "images.npy", "-o", "out.onnx").err
    assert "out.pt2 is not a .zpt program" in run("export", "out.pt2", "-o", "out.onnx").err
    for data in ((), ("-d", "images.npy")):
        ran = run("export", "program.onnx", *data, "-o", "divided.onnx", "--runtime", "zeropoint", "--json")
        assert ran.code == 0, ran.err
        assert (ran.json()["programs"], ran.json()["others"]) == (1, {})


def test_inputs_are_not_overwritten() -> None:
    before = Path("model.pt2").read_bytes()
    for arguments in (
        ("quantize", "model.pt2", "-d", "images.npy", "-o", "./model.pt2"),
        ("run", "model.pt2", "-d", "images.npy", "-o", "images.npy"),
    ):
        ran = run(*arguments)
        assert ran.code == 2
        assert "is an input: write to another file" in " ".join((ran.out + ran.err).replace("\u2502", " ").split())
    assert Path("model.pt2").read_bytes() == before


def test_options_of_language_models_are_refused_for_others() -> None:
    ran = run("quantize", "model.pt2", "-d", "images.npy", "-o", "bits.zpt", "--bits", "8")
    assert ran.code == 2
    assert "are for language models" in " ".join((ran.out + ran.err).replace("\u2502", " ").split())


# -------------------------------------------------------------------------------------------------------------- show


@pytest.fixture(scope="module")
def program(folder: Path) -> str:
    shutil.copy(Path(__file__).parents[1] / "golden" / "programs" / "image.zpt", folder / "shown.zpt")
    return "shown.zpt"


def test_show_writes_a_page_beside_the_program(program: str) -> None:
    ran = run("show", program, "--json")
    assert ran.code == 0
    facts = ran.json()
    assert facts["output"] == "shown.html"
    assert run("show", "model.pt2", "--json").json()["output"] == "model.plan.html"  # beside that of model.zpt
    assert run("show", program, program, "--json").json()["output"] == "shown-shown.html"
    assert facts["steps"] > 0
    assert facts["microseconds"] > 0
    assert "<h1>shown.zpt</h1>" in Path("shown.html").read_text()


def test_show_takes_data_and_runs_nothing_if_asked(program: str) -> None:
    loaded = zeropoint.runtime.load(program)
    np.savez("inputs.npz", **{n: np.zeros(s, d) for (n, d, _), s in zip(loaded.inputs, loaded.example_shapes)})
    ran = run("show", program, "--data", "inputs.npz", "--no-time", "-o", "own.html", "--json")
    assert ran.code == 0
    assert "microseconds" not in ran.json()
    assert "made-up" not in Path("own.html").read_text()


def test_show_needs_no_torch_and_refuses_what_is_no_program(folder: Path, program: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['zeropoint', 'show', 'shown.zpt']\n"
        "from zeropoint.cli import main; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert run("show", "script.pt").code == 2
    (folder / "broken.zpt").write_bytes(b"nothing of the kind")
    refused = run("show", "broken.zpt")
    assert refused.code == 1
    assert "broken.zpt" in refused.err


def test_show_draws_a_model_before_it_is_quantized() -> None:
    facts = run("show", "model.pt2", "-o", "plan.html", "--json").json()
    assert [(row["path"], row["precision"]) for row in facts["operators"]] == [("0", "int8"), ("3", "int8")]
    page = Path("plan.html").read_text()
    assert page.count('<g class="box int8"') == 2
    assert "Operators quantized" in page
    assert "--data needs a .zpt program" in " ".join(run("show", "model.pt2", "-d", "images.npy").err.split())


def test_show_compares_two_programs_and_writes_a_trace(folder: Path) -> None:
    run("quantize", "my_code:make", "-d", "images.npy", "-o", "whole.zpt")
    run("quantize", "my_code:make", "-d", "images.npy", "-o", "partly.zpt", "--float", "0")
    facts = run("show", "whole.zpt", "partly.zpt", "-o", "both.html", "--json").json()
    modules = {row["path"]: row for row in facts["modules"]}
    assert modules["0"]["precisions"] == ["int8", "float"]
    assert modules["3"]["precisions"] == ["int8", "int8"]
    changes = [abs((row["seconds"][1] or 0) - (row["seconds"][0] or 0)) for row in facts["modules"]]
    assert changes == sorted(changes, reverse=True)
    told = run("show", "whole.zpt", "--trace", "whole.json", "-o", "whole.html", "--json").json()
    events = json.loads(Path(told["trace"]).read_text())["traceEvents"]
    assert len(events) >= told["steps"]
    assert '<a href="whole.json">Trace for Perfetto</a>' in Path("whole.html").read_text()
    assert run("show", "whole.zpt", "model.pt2").code == 2
    assert run("show", "whole.zpt", "--trace", "x.json", "--no-time").code == 2


def test_show_compares_two_reports(folder: Path) -> None:
    run("report", "my_code:make", "-d", "images.npy", "-o", "int8.html")
    run("report", "my_code:make", "-d", "images.npy", "-o", "partly.html", "--float", "0")
    facts = run("show", "int8.html", "partly.html", "--json").json()
    assert facts["output"] == "int8-partly.html"
    layers = {(pair[1] or pair[0])["path"]: pair for pair in facts["layers"]}
    assert layers["0"][1] is None or layers["0"][1]["computed"] == "float32"
    assert layers["3"][0]["nbytes"] == layers["3"][1]["nbytes"] > 0
    page = Path("int8-partly.html").read_text()
    assert "Output SQNR" in page
    assert run("show", "int8.html").code == run("show", "int8.html", "script.pt").code == 2
    for text, why in (
        (b"<html>", "is no page of zeropoint report"),
        (b'<script type="application/json" id="zeropoint-report">[1]</script>', "is damaged"),
        (Path("int8.html").read_bytes().replace(b'"batch": "', b'"batch": 7, "x": "'), "is damaged"),
    ):
        (folder / "wrong.html").write_bytes(text)
        refused = run("show", "int8.html", "wrong.html", "-o", "never.html")
        assert refused.code == 1
        assert why in refused.err
    assert not Path("never.html").exists()


# ---------------------------------------------------------------------------------------------------------- quantize


@pytest.mark.parametrize("model", ["model.pt2", "my_code:make"])
@pytest.mark.parametrize("data", ["images.npy", "images.npz", "my_code:batches"])
def test_quantize_writes_a_file_that_runs(model: str, data: str) -> None:
    ran = run("quantize", model, "--data", data, "-o", "out.pt2", "--json")
    assert ran.code == 0
    facts = ran.json()
    assert facts["operators"] == {"int8": 2}
    assert facts["sqnr"] > 25
    assert facts["cosine"] > 0.99
    read = torch.export.load("out.pt2").module()
    assert read(torch.randn(3, 1, 8, 8)).shape == (3, 4)


def test_a_dry_run_shows_what_would_be_done_and_writes_nothing(folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    facts = run("quantize", "my_code:make", "-d", "images.npy", "--dry-run", "--float", "0", "--json").json()
    assert [(row["path"], row["precision"]) for row in facts["operators"]] == [("0", "float32"), ("3", "int8")]
    assert facts["operators"][0]["reason"]
    assert facts["float_bytes"] - facts["estimated_bytes"] == 288 * 4 * 3  # the linear layer's, a byte for each float
    assert facts["gain"] > 0
    shown = run("quantize", "model.pt2", "-d", "images.npy", "-o", "dry.zpt", "--dry-run")
    assert "2 of 2 will be quantized" in shown.out
    assert {path.name for path in folder.iterdir()} == before
    refused = run("quantize", "model.pt2", "-d", "images.npy")
    assert refused.code == 2
    assert "--dry-run" in refused.err
    assert "TorchScript" in run("quantize", "script.pt", "-d", "images.npy", "--dry-run").err


def test_quantize_ends_with_accuracy_size_speed_and_the_next_command() -> None:
    *_, accuracy, size, speed, following = run(
        "quantize", "model.pt2", "-d", "images.npy", "-o", "x.zpt"
    ).out.splitlines()
    assert accuracy.startswith("accuracy   SQNR")
    assert "smaller than float" in size
    assert "for one sample:" in speed  # as `bench` measures it, whatever the batch of the calibration was
    assert following == "next       zeropoint show x.zpt"


def test_quantize_writes_a_report() -> None:
    ran = run("quantize", "model.pt2", "-d", "images.npy", "-o", "out.pt2", "--report", "report.html")
    assert ran.code == 0
    assert "report     report.html" in ran.out
    assert "Layers with the largest error" in Path("report.html").read_text()


def test_a_hundred_images_make_a_program_and_a_page(folder: Path) -> None:
    np.save(folder / "hundred.npy", np.random.RandomState(1).randn(100, 1, 8, 8).astype(np.float32))
    ran = run("quantize", "model.pt2", "-d", "hundred.npy", "-o", "out.zpt", "-r", "report.html")
    assert ran.code == 0
    assert "on 16 of 100 samples" in ran.out
    assert "2 batches" in Path("report.html").read_text()
    assert zeropoint.runtime.load("out.zpt")(np.load("hundred.npy")).shape == (100, 4)


def test_a_model_with_a_fixed_batch_gets_batches_of_that_size() -> None:
    ran = run("quantize", "fixed.pt2", "-d", "images.npy", "-o", "out.pt2")
    assert ran.code == 0
    assert "2 of 10 samples are skipped" in ran.err
    few = run("quantize", "fixed.pt2", "-d", "images.npy", "-n", "3", "-o", "out.pt2")
    assert few.code == 1
    assert f"fixed batch size of {FIXED}, got 3 samples" in few.err


@pytest.mark.parametrize("model", ["fixed.pt2", "fixed.zpt"])
def test_run_takes_every_sample_although_the_batch_is_fixed(model: str) -> None:
    assert run("quantize", "fixed.pt2", "-d", "images.npy", "-o", "fixed.zpt").code == 0
    ran = run("run", model, "-d", "images.npy", "-o", "every.npy", "--batch", "3")
    assert ran.code == 0
    assert "the last 2 samples ran with copies of the last one" in ran.err
    backwards = np.load("images.npy")[::-1]
    np.save("backwards.npy", backwards)
    assert run("run", model, "-d", "backwards.npy", "-o", "again.npy").code == 0
    assert np.allclose(np.load("every.npy"), np.load("again.npy")[::-1], atol=1e-6)


def test_run_refuses_a_rest_whose_results_it_could_not_tell_apart(folder: Path) -> None:
    mean = torch.nn.Sequential(torch.nn.Flatten(0))
    torch.export.save(torch.export.export(mean, (torch.zeros(4, 1, 8, 8),)), folder / "flat.pt2")
    ran = run("run", "flat.pt2", "-d", "images.npy")
    assert ran.code == 1
    assert "pass a multiple of 4 samples" in ran.err


@pytest.mark.parametrize("mode", ["dynamic", "weight_only"])
def test_modes_without_calibration_need_no_data(mode: str) -> None:
    ran = run("quantize", "model.pt2", "-o", "out.zpt", "--mode", mode, "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["samples"] == FIXED
    refused = run("quantize", "model.pt2", "-o", "out.zpt")
    assert refused.code == 2
    assert "needs none with --mode dynamic" in " ".join((refused.out + refused.err).replace("\u2502", " ").split())
    assert run("quantize", "script.pt", "-o", "out.zpt", "--mode", "dynamic").code == 2


@pytest.mark.parametrize("mode", ["dynamic", "weight_only"])
def test_other_modes(mode: str) -> None:
    ran = run("quantize", "model.pt2", "-d", "images.npy", "-o", "out.pt2", "--mode", mode, "--json")
    assert ran.code == 0
    assert set(ran.json()["operators"]) - {"float32"}


def test_modules_are_left_in_float() -> None:
    ran = run("quantize", "my_code:make", "-d", "images.npy", "-o", "out.pt2", "--float", "0", "--json")
    assert ran.json()["operators"] == {"float32": 1, "int8": 1}


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_torchscript_stays_torchscript(mode: str) -> None:
    ran = run("quantize", "script.pt", "-d", "images.npy", "-o", "out.pt", "--mode", mode, "--json")
    assert ran.code == 0
    assert ran.json()["cosine"] > 0.99
    assert torch.jit.load("out.pt")(torch.zeros(1, 1, 8, 8)).shape == (1, 4)


def test_torchscript_becomes_a_program() -> None:
    ran = run("quantize", "script.pt", "-d", "images.npy", "-o", "out.zpt", "--json")
    assert ran.code == 0
    assert ran.json()["operators"] == {"int8": 2}
    assert zeropoint.runtime.load("out.zpt")(np.zeros((3, 1, 8, 8), np.float32)).shape == (3, 4)


def test_layers_of_torchscript_are_compared() -> None:
    ran = run("quantize", "script.pt", "-d", "images.npy", "-o", "out.pt", "--report", "report.html")
    assert ran.code == 0
    assert "conv2d" in Path("report.html").read_text()
    for given in (("out.pt",), ()):
        found = run("compare", "script.pt", *given, "-d", "images.npy", "--json").json()
        assert {row["path"] for row in found["rows"]} >= {"0", "3"}
    found = run("sensitivity", "script.pt", "-d", "images.npy", "--no-cumulative", "--json").json()
    assert {row["path"] for row in found["rows"]} == {"0", "3"}


# ------------------------------------------------------------------------------------------------- the other commands


@pytest.mark.parametrize(
    ("file", "kind"), [("model.pt2", "torch.export"), ("script.pt", "TorchScript"), ("checkpoint.pth", "checkpoint")]
)
def test_inspect_lists_what_a_file_holds(file: str, kind: str) -> None:
    facts = run("inspect", file, "--json").json()
    assert facts["kind"] == kind
    assert sorted(t["bytes"] for t in facts["tensors"]) == [16, 32, 288, 4608]
    assert {t["dtype"] for t in facts["tensors"]} == {"float32"}
    shown = run("inspect", file)
    assert shown.code == 0
    assert "8x1x3x3" in shown.out


def test_inspect_reads_safetensors() -> None:
    q = zeropoint.quantize_per_tensor(torch.randn(4, 3), 0.1, 0, zeropoint.qint8)
    zeropoint.save_qtensors({"weight": q}, "q.safetensors")
    facts = run("inspect", "q.safetensors", "--json").json()
    assert facts["kind"] == "safetensors"
    assert 12 in [t["bytes"] for t in facts["tensors"]]


def test_inspect_runs_no_code_of_a_pickle() -> None:
    ran = run("inspect", "pickled.pth")
    assert ran.code == 1
    assert "contains more than tensors" in ran.err


def test_run_writes_what_the_model_gives() -> None:
    ran = run("run", "my_code:make", "-d", "images.npy", "-o", "results.npy", "--json")
    assert ran.json()["results"][0]["shape"] == [10, 4]
    wanted = torch.export.load("model.pt2").module()(torch.from_numpy(np.load("images.npy")).float())
    assert np.allclose(np.load("results.npy"), wanted.detach(), atol=1e-5)


def test_inputs_are_taken_by_name() -> None:
    first, second = np.ones((3, 4), np.float32), np.full((3, 4), 5, np.float32)
    np.savez("pair.npz", second=second, first=first)
    np.savez("other.npz", a=first, b=second)
    assert run("run", "my_code:Pair", "-d", "pair.npz", "-o", "by_name.npy").code == 0
    in_order = run("run", "my_code:Pair", "-d", "other.npz", "-o", "in_order.npy")
    assert "not those of the inputs (first, second)" in in_order.err.replace("\n", " ")
    assert np.load("by_name.npy").max() < 0


def test_compare_ranks_layers() -> None:
    found = run("compare", "model.pt2", "-d", "images.npy", "--json").json()
    assert {row["path"] for row in found["rows"]} == {"0", "3"}
    shown = run("compare", "my_code:make", "-d", "images.npy")
    assert shown.code == 0
    assert "output: SQNR" in shown.out


def test_compare_of_a_file_compares_outputs() -> None:
    run("quantize", "model.pt2", "-d", "images.npy", "-o", "q.pt2")
    found = run("compare", "model.pt2", "q.pt2", "-d", "images.npy", "--json").json()
    assert found["sqnr"] > 25
    assert "rows" not in found


def test_sensitivity_ranks_layers() -> None:
    found = run(
        "sensitivity", "model.pt2", "-d", "images.npy", "--metric", "cosine", "--no-cumulative", "--json"
    ).json()
    assert found["metric"] == "cosine"
    assert [row["cumulative"] for row in found["rows"]] == [None, None]


def test_tune_stops_at_the_target_and_writes_a_program() -> None:
    ran = run("tune", "model.pt2", "-d", "images.npy", "-o", "tuned.zpt", "--target", "5", "--json")
    found = ran.json()
    assert found["met"] is True
    assert [trial["verdict"] for trial in found["trials"]] == ["plain int8"]
    assert run("run", "tuned.zpt", "-d", "images.npy", "-o", "y.npy").code == 0


def test_tune_says_that_a_target_was_not_met() -> None:
    given = ("-o", "tuned.pt2", "--target", "1000", "--budget", "0", "--checkpoint", "tune.json")
    ran = run("tune", "model.pt2", "-d", "images.npy", *given)
    assert ran.code == 0
    assert "the target was not met" in ran.err
    assert "not met" in ran.out
    assert Path("tune.json").exists()


def test_tune_leaves_the_margin_of_the_target_unused() -> None:
    given = ("tune", "model.pt2", "-d", "images.npy", "-o", "tuned.pt2", "--metric", "cosine", "--budget", "0.2")
    plain = run(*given, "--target", "0", "--json").json()
    target = str(1 - 1.1 * (1 - plain["metric"]))  # plain int8 loses ten elevenths of what this allows
    tried = {margin: run(*given, "--target", target, "--margin", margin, "--json").json() for margin in ("0", "0.5")}
    assert [trial["verdict"] for trial in tried["0"]["trials"]] == ["plain int8"]
    assert len(tried["0.5"]["trials"]) > 1
    assert tried["0.5"]["met"] is True


def test_report_writes_a_page() -> None:
    ran = run("report", "model.pt2", "-d", "images.npy", "-o", "page.html", "--sensitivity", "--title", "Mine")
    assert ran.code == 0
    assert "<title>Mine" in Path("page.html").read_text()
    assert "<h2>Sensitivity" in Path("page.html").read_text()


def test_bench_times_float_and_integers_in_one_run() -> None:
    left_out = "--without", "OpenVINO", "--without", "ONNX Runtime"
    ran = run("bench", "my_code:make", "-d", "images.npy", "--seconds", "0", "--threads", "1", "--json", *left_out)
    found = ran.json()
    names = [row["runs_as"] for row in found["results"]]
    assert names[:3] == ["torch float32", "zeropoint graph", "zeropoint program"]
    for row in found["results"]:
        low, high = row["quartiles"]
        assert 0 < low <= row["milliseconds"] <= high
        assert row["setting"]
    assert found["threads"] == 1
    assert any("of the time" in words for words in found["advice"])


def test_doctor_describes_the_machine() -> None:
    facts = run("doctor", "--json").json()
    assert facts["works"] is True
    assert facts["cpu"]["isa"] == zeropoint.cpu_info().isa
    assert torch.__version__.startswith(facts["versions"]["torch"])  # which may name a build
    assert "core       gives correct results" in run("doctor").out


def test_doctor_names_what_holds_the_kernels_back() -> None:
    with zeropoint.use_isa("portable"):
        problems = run("doctor", "--json").json()["problems"]
    if zeropoint.cpu_info().best_isa != "portable":
        assert any("limits the kernels to portable" in p["problem"] for p in problems)


def test_doctor_knows_a_virtual_machine_that_masks_the_palette(monkeypatch: pytest.MonkeyPatch) -> None:
    note = "CPUID leaf 0x1D is masked by this virtual machine"
    assert note in (Path(__file__).parents[2] / "native" / "cpu" / "features.cpp").read_text()
    features = {"avx2": "", "avx512": "", "avx512_vnni": "", "amx_int8": note}
    found = {**_native.cpu_features(), "features": [*features], "notes": features}
    monkeypatch.setattr(_native, "cpu_features", lambda: found)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    info = zeropoint.cpu_info()
    assert (info.best_isa, info.notes) == ("amx", (note,))
    assert any("masks the AMX palette" in what and "ONEDNN" in way_out for what, way_out in diagnosis._problems(info))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    assert not any("palette" in what for what, _ in diagnosis._problems(info))


def test_doctor_names_the_instruction_set_that_gives_wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(_native.Program):
        def run(self, inputs: Any, **options: Any) -> list[Any]:
            return [y + (zeropoint.cpu_info().isa == "portable") for y in super().run(inputs, **options)]

    monkeypatch.setattr(_native, "Program", Broken)
    ran = run("doctor", "--json")
    assert ran.code == 1
    assert ran.json()["wrong"] == ["portable"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_doctor_needs_no_more_than_the_runtime_has(folder: Path, options: tuple[str, ...]) -> None:
    (folder / "runtime_only").mkdir(exist_ok=True)
    absent = "import sys\nfor name in ('torch', 'typer', 'rich'): sys.modules[name] = None\n"
    (folder / "runtime_only" / "sitecustomize.py").write_text(absent)
    there = {"PYTHONPATH": str(folder / "runtime_only")}
    ran = run_process(folder, "doctor", *options, **there)
    assert ran.code == 0, ran.err
    assert "'typer>=0.15' 'rich>=13'" in ran.out
    assert "correct results" in ran.out or json.loads(ran.out)["works"] is True
    refused = run_process(folder, "run", "program.zpt", **there)
    assert refused.code == 1
    assert "needs typer and rich: pip install 'typer>=0.15' 'rich>=13'" in refused.err


# ------------------------------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("quantize", "model.pt2", "-o", "x.pt2"), "Missing option '--data'"),
        (("quantize", "nothing.pt2", "-d", "images.npy", "-o", "x.pt2"), "no such file: nothing.pt2"),
        (("quantize", "model.pt2", "-d", "images.csv", "-o", "x.pt2"), "no such file: images.csv"),
        (("quantize", "model.pt2", "-d", "my_code.py", "-o", "x.pt2"), "pass a .npy"),
        (("quantize", "model.pt2", "-d", "images.npy", "-o", "x.onnx"), "output must end in"),
        (("quantize", "nowhere.at:all", "-d", "images.npy", "-o", "x.pt2"), "cannot find the module 'nowhere'"),
        (("quantize", "my_code:missing", "-d", "images.npy", "-o", "x.pt2"), "has no 'missing'"),
        (("sensitivity", "model.pt2", "-d", "images.npy", "--metric", "luck"), "'luck' is not one of"),
        (("bench", "model.pt2", "-d", "images.npy", "--without", "TVM"), "OpenVINO, CTranslate2, got TVM"),
        (("tune", "model.pt2", "-d", "images.npy", "-o", "x.pt"), "output must end in .zpt or .pt2"),
        (("tune", "model.pt2", "-d", "images.npy", "-o", "x.zpt", "--margin", "1"), "margin must be at least 0"),
        (("fly",), "No such command 'fly'"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert words in " ".join(ran.err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("quantize", "checkpoint.pth", "-d", "images.npy", "-o", "x.pt2"), "package.module:function"),
        (("quantize", "my_code:not_a_model", "-d", "images.npy", "-o", "x.pt2"), "'int' object is not callable"),
        (("quantize", "script.pt", "-d", "images.npy", "-o", "x.pt2"), "must end in .pt"),
        (("quantize", "my_code:make", "-d", "images.npy", "-o", "x.pt2", "--float", "9"), "no module '9'"),
        (("run", "model.pt2", "-d", "wrong.npy"), "single number"),
    ],
)
def test_a_failure_of_the_work_is_exit_code_1(arguments: tuple[str, ...], words: str) -> None:
    np.save("wrong.npy", np.float32(1))
    ran = run(*arguments)
    assert ran.code == 1
    assert words in " ".join(ran.err.split())


def test_a_failure_is_json_if_json_was_asked_for() -> None:
    ran = run("quantize", "checkpoint.pth", "-d", "images.npy", "-o", "x.pt2", "--json")
    assert ran.code == 1
    assert "--pickle" in json.loads(ran.out)["error"]


def test_pickles_are_read_when_trusted() -> None:
    assert run("quantize", "pickled.pth", "-d", "images.npy", "-o", "x.pt2", "--pickle").code == 0


# ------------------------------------------------------------------------------------------------------------ programs


def test_a_program_gives_the_bytes_of_the_graph() -> None:
    for suffix in ("zpt", "pt2"):
        assert run("quantize", "model.pt2", "-d", "images.npy", "-o", f"same.{suffix}").code == 0
        assert run("run", f"same.{suffix}", "-d", "images.npy", "-o", f"{suffix}.npy").code == 0
    assert np.array_equal(np.load("zpt.npy"), np.load("pt2.npy"))


def test_a_profile_says_what_limits_each_step() -> None:
    run("quantize", "model.pt2", "-d", "images.npy", "-o", "profiled.zpt")
    found = run("run", "profiled.zpt", "-d", "images.npy", "--profile", "--json").json()["profile"]
    kinds = {"compute", "L2", "L3", "memory", "threads", "overhead"}
    assert {step["limit"] for step in found["steps"]} <= kinds
    assert any("of the time" in words for words in found["advice"])
    shown = run("run", "profiled.zpt", "-d", "images.npy", "--profile")
    printed = " ".join(shown.out.split())
    assert "of the time" in printed
    assert any(
        words.partition("{")[0].strip() in printed for words in _WORDS.values()
    )  # another run, with advice of its own
    refused = run("run", "model.pt2", "-d", "images.npy", "--profile")
    assert refused.code == 2
    assert "--profile needs a .zpt program" in " ".join(refused.err.replace("│", " ").split())


def test_a_program_is_inspected_and_compared() -> None:
    run("quantize", "model.pt2", "-d", "images.npy", "-o", "program.zpt")
    facts = run("inspect", "program.zpt", "--json").json()
    assert facts["kind"] == "zeropoint program"
    assert facts["operators"]["linear"] == 1
    assert run("compare", "model.pt2", "program.zpt", "-d", "images.npy", "--json").json()["sqnr"] > 25


def test_a_program_runs_where_there_is_no_torch(folder: Path) -> None:
    run("quantize", "model.pt2", "-d", "images.npy", "-o", "program.zpt")
    (folder / "without").mkdir(exist_ok=True)
    (folder / "without" / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    options = {"PYTHONPATH": str(folder / "without")}
    ran = run_process(folder, "run", "program.zpt", "-d", "images.npy", "-o", "bare.npy", **options)
    assert ran.code == 0, ran.err
    assert np.load("bare.npy").shape == (10, 4)
    assert run_process(folder, "inspect", "program.zpt", **options).code == 0
    refused = run_process(folder, "quantize", "model.pt2", "-d", "images.npy", "-o", "x.zpt", **options)
    assert refused.code == 1
    assert "torch" in refused.err


def test_a_broken_program_is_refused(folder: Path) -> None:
    (folder / "broken.zpt").write_bytes(b"12345678 not a program")
    ran = run("run", "broken.zpt", "-d", "images.npy")
    assert ran.code == 1
    assert "broken.zpt" in ran.err or "header" in ran.err or "file" in ran.err


# ----------------------------------------------------------------------------------------------------------- processes


def test_a_process_prints_results_on_standard_output_and_nothing_else_there(folder: Path) -> None:
    arguments = "compare", "model.pt2", "--data", "images.npy", "--json"
    done = run_forked("from zeropoint.cli import main\nmain()", *arguments, cwd=folder)
    ran = Ran(done.returncode, done.stdout, done.stderr)
    assert ran.code == 0, ran.err
    assert set(ran.json()) >= {"rows", "sqnr"}


def test_the_version_and_the_help_come_without_torch(folder: Path) -> None:
    (folder / "no_torch").mkdir(exist_ok=True)
    (folder / "no_torch" / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    ran = run_process(folder, "--version", PYTHONPATH=str(folder / "no_torch"))
    assert (ran.code, ran.out.strip()) == (0, "0.1.0"), ran.err
    helped = run_process(folder, "quantize", "--help", PYTHONPATH=str(folder / "no_torch"))
    assert helped.code == 0, helped.err
    assert "--data" in helped.out


def test_completion_is_offered() -> None:
    command = Path(sys.executable).with_name("zeropoint")
    environment = {**os.environ, "_ZEROPOINT_COMPLETE": "source_bash"}  # whatever shell runs the tests
    ran = subprocess.run([command], capture_output=True, text=True, timeout=120, check=True, env=environment)
    assert "_zeropoint_completion" in ran.stdout


def damaged_program(program: str, path: Path, name: str = "weight") -> Path:
    """A .zpt file with this text as its program, and one tensor of this name."""
    header: dict[str, Any] = {"__metadata__": {"zeropoint.program": program}}
    header[name] = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"x")
    return path


@pytest.mark.parametrize("program", ["[]", "1", "{}", '{"steps": 3}', '{"steps": [[]]}', "{", "[" * 100_000])
def test_inspect_refuses_a_program_that_is_none(program: str, tmp_path: Path) -> None:
    ran = run("inspect", str(damaged_program(program, tmp_path / "damaged.zpt")))
    assert ran.code == 1
    assert "damaged.zptisdamaged:itsstepscannotberead" in "".join(ran.err.split())  # wherever lines break


def test_names_of_a_file_do_not_reach_the_terminal_as_commands(tmp_path: Path) -> None:
    steps = json.dumps({"steps": [{"op": "\x1b[2Jop"}]})
    path = damaged_program(steps, tmp_path / "escape.zpt", name="\x1b]0;title\x07")
    ran = run("inspect", str(path))
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert r"\x1b]0;title\x07" in ran.out
    assert r"\x1b[2Jop" in ran.out
    failed = run("show", str(path))
    assert failed.code == 1
    assert "\x1b" not in failed.err


def test_inspect_lists_parts_that_are_shared_once(tmp_path: Path) -> None:
    shared: Any = [torch.ones(1)]
    for _ in range(60):  # 2**60 places
        shared = [shared, shared]
    torch.save({"a": shared}, tmp_path / "shared.pt")
    assert len(run("inspect", str(tmp_path / "shared.pt"), "--json").json()["tensors"]) == 1
