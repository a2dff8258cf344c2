"""Where programs of the native core are built, after make and after pip."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone in which pip built, with a cmake that writes down how it is called."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "build_checks.sh", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("python", "cmake", "ninja"):
        (tools / name).write_text('#!/bin/sh\necho "$@" >>"$(dirname "$0")/calls"\n')
        (tools / name).chmod(0o755)
    (tmp_path / "build" / "cp312-abi3-linux" / "native").mkdir(parents=True)
    return tmp_path


def calls(clone: Path, cmake: Path) -> list[str]:
    folder = clone / "build" / "cp312-abi3-linux"
    cache = (
        f"CMAKE_COMMAND:INTERNAL={cmake}\n"
        f"CMAKE_MAKE_PROGRAM:FILEPATH={clone / 'tools' / 'ninja'}\n"
        f"CMAKE_CXX_COMPILER:STRING=/usr/bin/g++\nnanobind_DIR:PATH={clone}\n"
    )
    (folder / "CMakeCache.txt").write_text(cache)
    environment = {**os.environ, "PYTHON": str(clone / "tools" / "python")}
    ran = subprocess.run([clone / "scripts" / "build_checks.sh", "zeropoint"], env=environment, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.decode().strip() == "build/cp312-abi3-linux"
    return (clone / "tools" / "calls").read_text().splitlines()


def test_a_folder_whose_tools_are_there_is_built_in_as_it_is(clone: Path) -> None:
    assert [call.split()[0] for call in calls(clone, clone / "tools" / "cmake")] == ["--build"]


def test_a_folder_that_pip_left_is_configured_again_and_keeps_what_was_compiled(clone: Path) -> None:
    configured, built = calls(clone, clone / "removed" / "cmake")
    assert configured.startswith("-S . -B build/cp312-abi3-linux")
    assert "-DCMAKE_CXX_COMPILER=/usr/bin/g++" in configured
    assert built.startswith("--build")
    assert (clone / "build" / "cp312-abi3-linux" / "native").is_dir()
    assert (clone / "build" / "cp312-abi3-linux" / ".skbuild-info.json").read_bytes() == b""  # pip configures too
