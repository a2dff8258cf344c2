"""Files that were written once give the same bytes for ever."""

from __future__ import annotations

from pathlib import Path

import golden_programs
import numpy as np
import pytest

from zeropoint import _native

PATHS = golden_programs.paths()


def test_there_are_files() -> None:
    assert len(PATHS) >= 7
    assert sum(path.stat().st_size for path in golden_programs.FOLDER.iterdir()) < 200_000


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_kept_program_gives_the_kept_bytes(path: Path, isa: str) -> None:
    inputs, expected = golden_programs.arrays_of(path)
    found = _native.Program.read(str(path)).run(tuple(inputs))
    assert [y.dtype for y in found] == [y.dtype for y in expected]
    for y, wanted in zip(found, expected, strict=True):
        assert y.shape == wanted.shape
        assert np.ascontiguousarray(y).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_kept_program_is_of_version_1_unless_it_has_state(path: Path) -> None:
    assert golden_programs.text_of(path.read_bytes())["version"] == (
        2 if path.stem in ("decoder", "remembering") else 1
    )
