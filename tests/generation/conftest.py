"""What tests of language models share."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_files import decoder_file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A GGUF file of a small Qwen 3 in float32."""
    return decoder_file(tmp_path / "a.gguf", "qwen3", "F32")
