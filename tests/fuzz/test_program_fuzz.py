"""Wrong program files: program_fuzz (native/check/fuzz) makes, loads, plans and runs them; many more in `make fuzz`."""

from __future__ import annotations

import re
from pathlib import Path

import golden_programs
import large_files
import pytest
from native_checks import built, run

import zeropoint
from zeropoint import _native

FOUND = sorted((Path(__file__).parent / "found").glob("*.zpt"))
CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.zpt"))  # scripts/cover.sh


def test_files_to_start_from_have_every_kind_of_step() -> None:
    seen = {s["op"] for path in golden_programs.paths() for s in golden_programs.text_of(path.read_bytes())["steps"]}
    missing = set(_native.engine_steps()) - seen - {"foreign"}  # which no file may have
    assert not missing, f"add programs with {sorted(missing)} to tests/golden_programs.py, and run it"


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first build takes minutes on a small machine
def test_wrong_files_are_refused_or_run_within_their_bounds() -> None:
    output = run(built("program_fuzz"), "fuzz", golden_programs.FOLDER, "--count", "20000", timeout=300)
    assert output.splitlines()[-1] == "0 wrong", output
    reached = {name: int(count) for name, count in re.findall(r"^  (\w[\w:, ]+?) +(\d+)$", output, re.MULTILINE)}
    assert sum(reached.values()) == 20000
    # Files that only the first checks see would show nothing about the others.
    assert reached["ran"] > 2000
    assert reached["refused: program"] > 2000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_files_that_once_were_trouble() -> None:
    output = run(built("program_fuzz"), "replay", *golden_programs.paths(), *FOUND, timeout=300)
    assert output.splitlines()[-1] == "0 wrong", output


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_files_that_reach_every_branch_that_fuzzing_reached() -> None:
    assert sum(path.stat().st_size for path in CORPUS) < 2 << 20
    output = run(built("program_fuzz"), "replay", *CORPUS, timeout=300)
    assert output.splitlines()[-1] == "0 wrong", output
    assert int(re.search(r"^  ran +(\d+)$", output, re.MULTILINE)[1]) > len(CORPUS) // 4  # planners and steps, too


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_large_files_take_64_bytes_for_each_of_theirs_at_most(tmp_path: Path) -> None:
    for name, data in large_files.files().items():
        assert len(data) > 1 << 20, name
        (tmp_path / f"{name}.zpt").write_bytes(data)
    output = run(built("program_fuzz"), "replay", *sorted(tmp_path.glob("*.zpt")), timeout=300)
    assert output.splitlines()[-1] == "0 wrong", output
    assert "refused: container" not in output  # the JSON of all was read


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_each_request_for_memory_may_fail() -> None:
    # 400 of each, spread evenly: all of them, and the large programs, take minutes (make sanitize).
    paths = [path for path in golden_programs.paths() if path.stem in ("product", "remembering", "upsampled", "gru")]
    output = run(built("program_fuzz"), "starve", "--most", 400, *paths, timeout=300)
    assert output.splitlines()[-2:] == ["4 programs", "0 wrong"], output
    counts = [(int(a), int(b)) for a, b in re.findall(r" (\d+) of \d+ requests, (\d+) refused", output)]
    assert len(counts) == 4
    assert all(refused > requests * 0.9 for requests, refused in counts), output  # some have another way


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_threads_share_programs() -> None:
    output = run(built("program_fuzz"), "threads", *golden_programs.paths(), timeout=300)
    assert output.splitlines()[-1] == "0 wrong", output


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_instruction_set_gives_the_bytes_that_were_kept() -> None:
    output = run(built("program_levels"), *golden_programs.paths(), timeout=300)
    lines = output.splitlines()
    assert lines[-1] == "0 wrong", output
    levels = ("reference", *zeropoint.cpu_info().available)
    assert lines[-2] == f"{len(golden_programs.paths())} programs at {' '.join(levels)}"
    # Eight choices of inputs and the kept ones, with one thread and with two.
    assert all(line.endswith(f", {9 * 2 * len(levels)} runs") for line in lines[:-2]), output
