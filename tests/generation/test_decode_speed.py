"""The speed of decoding counts what a token reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_files import decoder_file

from zeropoint import generation


def test_bytes_are_those_of_weights_and_cache(tmp_path: Path) -> None:
    generation.compile_decoder(decoder_file(tmp_path / "a.gguf"), tmp_path / "a.zpt")
    found = generation.decode_speed(generation.load(tmp_path / "a.zpt"), before=32, tokens=4)
    layer = (128 * 64 + 64 * 64 + 192 * 64 + 64 * 96) * 18 // 32  # q, k, v; o; gate, up; down
    norms_and_head = 48 * 64 * 18 // 32  # 40 outputs are padded to 48
    assert found.weight_bytes == 2 * layer + norms_and_head
    assert found.cache_bytes == 34 * 2 * 2 * 2 * (16 + 4)  # positions, layers, keys and values, heads
    assert found.share == pytest.approx(found.bytes_per_second / found.bandwidth)
    assert "tokens/s" in str(found)
    with pytest.raises(ValueError, match="must fit in the context of the model, 64"):
        generation.decode_speed(generation.load(tmp_path / "a.zpt"), before=64)
