"""One old program, unchanged: on PyTorch's own stack, and on zeropoint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "user_program.py"


@pytest.mark.oracle
def test_an_old_program_prints_the_same() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", *how, str(PROGRAM)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for how in ([], ["-m", "zeropoint.compat"])
    ]
    printed = []
    for run in runs:
        out, errors = run.communicate(timeout=280)
        assert run.returncode == 0, errors
        printed.append(out.splitlines())
    theirs, ours = printed
    assert ours == theirs
    assert [line.split()[0] for line in ours if line.endswith("24")] == [
        "float", "static", "trained", "dynamic", "script", "graph",
    ]  # fmt: skip
