"""The programs of docs/guides/engines.md, as a reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "engines.md"
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n.*?```py\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
BEFORE = {"Ray": "", "Spark": "", "MLflow": SECTIONS["Ray"]}


@pytest.mark.parametrize("engine", ["Ray", "Spark", "MLflow"])
def test_the_program_of_an_engine_runs(engine: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SECTIONS["A model and its data"] + BEFORE[engine] + SECTIONS[engine] + "print('done')\n")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert ran.stdout.splitlines()[-1:] == ["done"], ran.stderr[-2000:]
