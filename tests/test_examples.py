"""The scripts in examples/ run by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", str(script)]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_is_made_of_cells_and_says_what_it_is(script: Path) -> None:
    text = script.read_text()
    assert text.startswith('"""')
    assert "\n# %%" in text
