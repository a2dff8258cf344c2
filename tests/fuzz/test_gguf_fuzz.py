"""Mutated GGUF files are refused in words, or run; `python tests/fuzz/gguf_fuzz.py` tries more."""

from __future__ import annotations

import gguf_fuzz
import pytest


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_files_become_programs_or_are_refused(seed: int) -> None:
    made, refused = gguf_fuzz.run(200, seed)
    assert made > 5
    assert refused > 100
