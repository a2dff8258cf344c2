"""What zeropoint says about the machine, and the environment variables that change it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import zeropoint
from zeropoint import _native

# Prints what a fresh process uses, without torch.
SHOW = "import zeropoint; info = zeropoint.cpu_info(); print(info.isa, info.threads, sep='|'); print(info)"
LEVELS = ("portable", "avx2", "avx_vnni", "avx512", "vnni", "amx")
VARIABLES = ("ZEROPOINT_ISA", "ZEROPOINT_NUM_THREADS", "OMP_NUM_THREADS")


def fresh(code: str = SHOW, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter that has only these of our variables."""
    environment = {k: v for k, v in os.environ.items() if k not in VARIABLES} | variables
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)


def used(**variables: str) -> tuple[str, int, str]:
    """(isa, threads, text) of a new interpreter."""
    result = fresh(**variables)
    assert result.returncode == 0, result.stderr
    first, text = result.stdout.split("\n", 1)
    isa, threads = first.split("|")
    return isa, int(threads), text


def test_says_what_is_used() -> None:
    info = zeropoint.cpu_info()
    text = str(info)
    assert info.brand in text
    assert f"{info.isa}" in next(line for line in text.splitlines() if line.startswith("kernels"))
    assert str(info.threads) in next(line for line in text.splitlines() if line.startswith("threads"))
    assert next(line for line in text.splitlines() if line.startswith("usable")).endswith(", ".join(info.available))


def test_says_why_not_more() -> None:
    info = zeropoint.cpu_info()
    missing = [name for name, _ in info.missing]
    assert [*info.available] == [name for name in LEVELS if name not in missing]
    assert missing == [name for name in LEVELS if name not in info.available]
    for name, reason in info.missing:
        assert len(reason) > 10
        assert any(line.startswith(f"not {name}") and reason in line for line in str(info).splitlines())


def test_features_explain_themselves() -> None:
    found = _native.cpu_features()
    offered, notes = found["features"], found["notes"]
    assert set(offered) <= set(notes)
    for feature, note in notes.items():
        assert bool(note) != (feature in offered) or feature == "amx_int8"
    for higher, lower in (
        ("amx_int8", "avx512_vnni"),
        ("avx512_vnni", "avx512"),
        ("avx512", "avx2"),
        ("avx_vnni", "avx2"),
    ):
        assert higher not in offered or lower in offered


def test_best_is_the_default() -> None:
    isa, _, text = used()
    assert isa == zeropoint.cpu_info().best_isa
    assert "forced" not in text


@pytest.mark.parametrize("isa", LEVELS)
def test_environment_forces_an_isa(isa: str) -> None:
    info = zeropoint.cpu_info()
    if isa not in info.available:
        result = fresh(ZEROPOINT_ISA=isa)
        assert result.returncode != 0
        expected = f"ValueError: ZEROPOINT_ISA asks for '{isa}', but this CPU's best is '{info.best_isa}'"
        assert expected in result.stderr
        assert "cpu_info" in result.stderr
        return
    got, _, text = used(ZEROPOINT_ISA=isa)
    assert got == isa
    assert (f"forced by ZEROPOINT_ISA={isa}" in text) == (isa != info.best_isa)
    assert info.best_isa in text


def test_environment_with_an_unknown_isa() -> None:
    result = fresh(ZEROPOINT_ISA="nonsense")
    assert result.returncode != 0
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("ValueError: ZEROPOINT_ISA: unknown instruction set 'nonsense'")
    assert all(name in message for name in LEVELS)


def test_empty_environment_variable_is_no_choice() -> None:
    assert used(ZEROPOINT_ISA="")[0] == zeropoint.cpu_info().best_isa


def test_use_isa_is_said() -> None:
    with zeropoint.use_isa("reference"):
        info = zeropoint.cpu_info()
    assert info.isa == "reference"
    assert f"forced by use_isa; the best here is {info.best_isa}" in str(info)


def test_threads_from_the_environment() -> None:
    assert used(ZEROPOINT_NUM_THREADS="3")[1] == 3
    assert used(OMP_NUM_THREADS="5")[1] == 5
    assert used(ZEROPOINT_NUM_THREADS="3", OMP_NUM_THREADS="5")[1] == 3


@pytest.mark.parametrize("bad", ["0", "-2", "many", "", "99999"])
def test_threads_from_a_bad_environment_variable_are_the_default(bad: str) -> None:
    assert used(ZEROPOINT_NUM_THREADS=bad)[1] == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("bad", [0, -1, 1025])
def test_set_num_threads_refuses(bad: int) -> None:
    before = zeropoint.get_num_threads()
    with pytest.raises(ValueError, match=f"set_num_threads: n must be between 1 and 1024, got {bad}"):
        zeropoint.set_num_threads(bad)
    assert zeropoint.get_num_threads() == before


def test_set_num_threads_is_seen() -> None:
    before = zeropoint.get_num_threads()
    try:
        zeropoint.set_num_threads(7)
        assert zeropoint.get_num_threads() == zeropoint.cpu_info().threads == 7
    finally:
        zeropoint.set_num_threads(before)


def test_needs_no_torch() -> None:
    result = fresh("import sys, zeropoint; zeropoint.cpu_info(); print('torch' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr
