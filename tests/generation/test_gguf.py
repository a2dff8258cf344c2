"""GGUF files: what is read is what was written, and damaged files are refused in words."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf_files import decoder_file, gguf_bytes, q4_0

from zeropoint.generation import compile_decoder
from zeropoint.generation.gguf import Gguf, GgufError
from zeropoint.generation.gguf_weights import floats_of, matrix_of

ENTRIES = {"general.architecture": "llama", "a.number": 7, "a.list": [1, 2, 3], "words": ["x", "yz"], "yes": True}
W = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
TENSORS = {"w.weight": ("Q4_0", (2, 64), q4_0(W)), "v.weight": ("F32", (3,), np.arange(3, dtype="<f4").tobytes())}


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_entries_and_tensors_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = Gguf(written(tmp_path / "a.gguf", gguf_bytes(ENTRIES, TENSORS)))
    assert file.metadata["a.number"] == 7
    assert file.metadata["words"] == ["x", "yz"]
    assert file.metadata["yes"] is True
    assert file.metadata["a.list"].tolist() == [1, 2, 3]
    assert file.tensor("w.weight").shape == (2, 64)
    assert floats_of(file.tensor("v.weight")).tolist() == [0, 1, 2]
    step = 1 / 7
    assert np.abs(matrix_of(file.tensor("w.weight"), 4, 32).floats() - W).max() <= step * 0.51


@pytest.mark.parametrize("length", range(0, 330, 7))
def test_truncated_file_is_refused(tmp_path: Path, length: int) -> None:
    content = gguf_bytes(ENTRIES, TENSORS)
    assert length < len(content)
    with pytest.raises(GgufError):
        Gguf(written(tmp_path / "a.gguf", content[:length]))


def changed(offset: int, code: str, value: int) -> bytes:
    content = bytearray(gguf_bytes(ENTRIES, TENSORS))
    struct.pack_into(code, content, offset, value)
    return bytes(content)


ROW = gguf_bytes(ENTRIES, TENSORS).index(b"w.weight") + 8  # axes, two sizes, type, offset


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\3\4" + bytes(40), "not a GGUF file"),
        (changed(4, "<I", 9), "version 9"),
        (changed(8, "<Q", 1 << 40), "more than any model has"),
        (changed(16, "<Q", 1 << 60), "more than any model has"),
        (changed(24, "<Q", 1 << 62), "the file ends"),
        (changed(ROW, "<I", 200), "has 200 axes"),
        (changed(ROW + 4, "<Q", 33), "cannot be blocks"),
        (changed(ROW + 4, "<Q", 1 << 38), "lies outside the file"),
        (changed(ROW + 12, "<Q", 1 << 62), "cannot be blocks"),
        (changed(ROW + 20, "<I", 77), "the type 77, which is not supported"),
        (changed(ROW + 24, "<Q", 1 << 50), "lies outside the file"),
        (gguf_bytes({**ENTRIES, "general.alignment": 0}, TENSORS), "an alignment of 0"),
    ],
)
def test_damaged_file_is_refused_in_words(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(GgufError, match=message):
        Gguf(written(tmp_path / "a.gguf", content))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"llama.block_count": 0}, "block_count must be a whole number"),
        ({"llama.block_count": 1 << 30}, "block_count must be a whole number"),
        ({"llama.attention.head_count": 3}, "heads of 21 numbers"),
        ({"llama.embedding_length": "64"}, "embedding_length must be a whole number"),
        ({"general.architecture": "mamba"}, "family 'mamba' is not supported"),
        ({"llama.expert_count": 8}, "a mixture of experts of the family 'llama', which is not supported"),
        ({"llama.expert_count": "8"}, "a mixture of experts"),
        ({"general.architecture": "qwen2moe"}, "family 'qwen2moe' is not supported"),
        ({"llama.rope.scaling.type": "dynamic"}, "scaling of angles 'dynamic' is not supported"),
        ({"tokenizer.ggml.model": "bert"}, "tokenizer 'bert' is not supported"),
        ({"tokenizer.ggml.pre": "own"}, "cut as 'own', which is not supported"),
        ({"tokenizer.ggml.token_type": [1]}, "40 tokens, and types for 1"),
        ({"tokenizer.ggml.merges": ["zzz qqq"]}, "tokenizer of the file is damaged"),
    ],
)
def test_wrong_entry_is_refused_before_a_file_is_written(
    tmp_path: Path, entries: dict[str, object], message: str
) -> None:
    output = tmp_path / "a.zpt"
    with pytest.raises(ValueError, match=message):
        compile_decoder(decoder_file(tmp_path / "a.gguf", entries=entries), output)
    assert not output.exists()


def test_any_damaged_byte_gives_a_file_or_a_refusal(tmp_path: Path) -> None:
    content = decoder_file(tmp_path / "a.gguf", layers=1).read_bytes()
    random = np.random.default_rng(3)
    refused = 0
    for _ in range(60):
        damaged = bytearray(content)
        for place in random.integers(0, 4000, 3):
            damaged[place] = random.integers(256)
        try:
            compile_decoder(written(tmp_path / "b.gguf", bytes(damaged)), tmp_path / "b.zpt")
        except (ValueError, NotImplementedError):
            refused += 1
    assert refused > 5


def test_formats_of_other_writers_are_read_as_they_say(tmp_path: Path) -> None:
    quants = pytest.importorskip("gguf.quants")
    from gguf import GGMLQuantizationType

    from zeropoint.generation.gguf import FORMATS, GgufTensor

    random = np.random.default_rng(1)
    for name, _, size in FORMATS.values():
        blocks = random.integers(0, 256, (6, size), np.uint8)
        # Scales are finite float16 numbers, wherever they stand in a block.
        for at in {"Q6_K": (208,), "Q8_0": (0,), "Q4_0": (0,), "Q5_0": (0,)}.get(name, (0, 2))[: size // 4 or 1]:
            blocks[:, at : at + 2] = random.normal(0, 0.1, (6, 1)).astype(np.float16).view(np.uint8)
        if name in ("F32", "F16", "BF16"):
            blocks = np.ones((6, size), np.uint8)
        want = quants.dequantize(blocks, GGMLQuantizationType[name])
        got = floats_of(GgufTensor(want.shape, name, blocks.reshape(-1)))
        # Scales of K formats are products that float16 rounds.
        bound = np.abs(want).max() * (2.0**-9 if name.endswith("K") else 1e-6)
        assert np.abs(got - want).max() <= bound, name
