"""scripts/check_arm.sh says what is missing; `make check-arm` is where it runs, with a cross compiler and qemu."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "dirname")


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ((), "cmake not found; run 'make setup' first"),
        (("cmake", "ninja"), "aarch64-linux-gnu-g++ not found; on Debian: apt-get install"),
        (("cmake", "ninja", "aarch64-linux-gnu-g++"), "qemu-aarch64-static not found; on Debian: apt-get install"),
    ],
    ids=["nothing", "no compiler", "no emulator"],
)
def test_says_what_is_missing(there: tuple[str, ...], missing: str, tmp_path: Path) -> None:
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    for tool in there:
        (tmp_path / tool).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / tool).chmod(0o755)
    result = subprocess.run(
        [str(tmp_path / "bash"), str(ROOT / "scripts" / "check_arm.sh")],
        env={"PATH": str(tmp_path), "PYTHON": str(tmp_path / "python")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    assert f"check-arm: NOT RUN: {missing}" in result.stderr
