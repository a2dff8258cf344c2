"""Builds and runs kernel_check, the C++ comparison of every kernel with its reference (native/check)."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from zeropoint import _native

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "check"  # kept: the second run compiles only what changed
OPTIONS = (
    "-DZEROPOINT_CHECK=ON",
    "-DZEROPOINT_PYTHON=OFF",
    "-DSKBUILD_PROJECT_VERSION=0",
    "-DCMAKE_BUILD_TYPE=Release",
)


def tool(name: str) -> str:
    """cmake and ninja of this environment, else of the machine."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} not found: run 'make setup'")
    return found


def run(*command: str | Path, timeout: float) -> str:
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=ROOT, timeout=timeout)
    assert result.returncode == 0, (result.stdout + result.stderr)[-5000:]
    return result.stdout


@pytest.fixture(scope="module")
def kernel_check() -> Path:
    cmake, ninja = tool("cmake"), tool("ninja")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test run may be building, too
        run(cmake, "-S", ROOT, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *OPTIONS, timeout=120)
        run(cmake, "--build", BUILD, timeout=900)
    return BUILD / "kernel_check"


@pytest.mark.slow
@pytest.mark.timeout(1200)  # the first build takes a minute or two on a small machine
def test_every_kernel_equals_its_reference(kernel_check: Path) -> None:
    output = run(kernel_check, timeout=300)
    closing = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", output.strip().splitlines()[-1])
    assert closing is not None, output[-2000:]
    assert int(closing[1]) > 0
    assert int(closing[2]) == 0

    # Each listed kernel was compared or is said to be missing here.
    lines = [line.split() for line in output.splitlines() if line.startswith(("ok ", "skip "))]
    verdicts = {(subject, aspect): verdict for verdict, subject, aspect, *_ in lines}
    best = _native.best_isa(*(bool(_native.cpu_features()[f]) for f in ("avx2", "avx512", "avx512_vnni", "amx_int8")))
    ladder = ("reference", "portable", "avx2", "avx512", "vnni", "amx")
    for operation, isa in _native.kernel_list():
        expected = "ok" if ladder.index(isa) <= ladder.index(best) else "skip"
        assert verdicts.get((operation, isa)) == expected, f"{operation} {isa}"
    assert sum(v == "skip" for v in verdicts.values()) == int(closing[3])
