"""Mutated GGUF files and programs are refused in words, or run; `python tests/fuzz/gguf_fuzz.py` tries more."""

from __future__ import annotations

import gguf_fuzz
import pytest


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_files_are_taken_or_refused(seed: int) -> None:
    made, refused = gguf_fuzz.run(200, seed)
    assert made > 5
    assert refused > 100
