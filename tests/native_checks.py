"""Builds the programs of native/check, which test the native core without Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, timeout: float) -> str:
    """What a command that succeeds prints."""
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=ROOT, timeout=timeout)
    assert result.returncode == 0, (result.stdout + result.stderr)[-5000:]
    return result.stdout


def built(name: str) -> Path:
    """The path of a check, which is compiled if it has to be."""
    directory = run("env", f"PYTHON={sys.executable}", ROOT / "scripts" / "build_checks.sh", name, timeout=1500)
    return ROOT / directory.strip() / name
