"""Builds the programs of native/check, which test the native core without Python."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

__all__ = ["built", "run"]

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "check"  # kept: the second run compiles only what changed
OPTIONS = (
    "-DZEROPOINT_CHECK=ON",
    "-DZEROPOINT_PYTHON=OFF",
    "-DSKBUILD_PROJECT_VERSION=0",
    "-DCMAKE_BUILD_TYPE=Release",
)


def _tool(name: str) -> str:
    """cmake and ninja of this environment, else of the machine."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} not found: run 'make setup'")
    return found


def run(*command: str | Path, timeout: float) -> str:
    """What a command that succeeds prints."""
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=ROOT, timeout=timeout)
    assert result.returncode == 0, (result.stdout + result.stderr)[-5000:]
    return result.stdout


def built(name: str) -> Path:
    """The path of a check, which is compiled if it has to be."""
    cmake, ninja = _tool("cmake"), _tool("ninja")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test run may be building, too
        run(cmake, "-S", ROOT, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *OPTIONS, timeout=120)
        run(cmake, "--build", BUILD, "--target", name, timeout=1500)
    return BUILD / name
