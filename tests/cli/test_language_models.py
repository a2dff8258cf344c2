"""`zeropoint quantize model.gguf` and `zeropoint chat`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import run
from gguf_files import decoder_file

pytest.importorskip("tokenizers")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    decoder_file(tmp_path / "model.gguf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_model_is_written_and_answers(folder: Path) -> None:
    facts = run("quantize", "model.gguf", "-o", "model.zpt", "--json").json()
    assert facts["family"] == "llama"
    assert facts["rounded"] == {}
    assert facts["bytes"] == os.path.getsize("model.zpt")
    assert facts["next"] == "zeropoint chat model.zpt"
    first = run("chat", "model.zpt", "-m", "abc", "--max-new", "8", "--temperature", "0")
    assert first.code == 0
    assert first.out == run("chat", "model.zpt", "-m", "abc", "--max-new", "8", "--temperature", "0").out
    assert "tokens/s" in first.err
    assert run("chat", "model.zpt", "-m", "abc", "--complete", "--max-new", "4").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("quantize", "model.gguf"), 2, "pass a file for the result"),
        (("quantize", "model.gguf", "-o", "x.zpt", "--bits", "5"), 1, "bits must be 4 or 8"),
        (("quantize", "cut.gguf", "-o", "x.zpt"), 1, "cut.gguf"),
        (("quantize", "none.gguf", "-o", "x.zpt"), 1, "none.gguf"),
        (("chat", "none.zpt"), 2, "no such file"),
        (("chat", "cut.gguf", "-m", "x"), 1, "not a whole safetensors file"),
    ],
)
def test_wrong_use_is_told(folder: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    (folder / "cut.gguf").write_bytes((folder / "model.gguf").read_bytes()[:500])
    ran = run(*arguments)
    assert ran.code == code
    assert message in " ".join((ran.out + ran.err).split())
    assert not (folder / "x.zpt").exists()
