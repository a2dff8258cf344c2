"""`zeropoint quantize model.gguf`, `zeropoint chat`, and `zeropoint export -o model.gguf`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
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


def test_program_is_written_as_gguf(folder: Path) -> None:
    run("quantize", "model.gguf", "-o", "model.zpt")
    facts = run("export", "model.zpt", "-o", "again.gguf", "--json").json()
    assert facts["formats"]["Q4_0"] == 16
    assert facts["bytes"] == os.path.getsize("again.gguf")
    run("quantize", "again.gguf", "-o", "again.zpt")
    assert Path("again.zpt").read_bytes() == Path("model.zpt").read_bytes()


def test_weights_are_rotated_and_calibrated_on_texts(folder: Path) -> None:
    (folder / "text.txt").write_text("abcdefgh xyz. " * 40)
    facts = run("quantize", "model.gguf", "-o", "a.zpt", "--text", "text.txt", "--rotate", "--json").json()
    assert len(facts["rounded"]) == 16
    run("quantize", "model.gguf", "-o", "b.zpt", "--rotate")
    assert Path("a.zpt").read_bytes() != Path("b.zpt").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("quantize", "model.gguf"), 2, "pass a file for the result"),
        (("quantize", "model.gguf", "-o", "x.zpt", "--bits", "5"), 1, "bits must be 4 or 8"),
        (("quantize", "cut.gguf", "-o", "x.zpt"), 1, "cut.gguf"),
        (("quantize", "model.gguf", "-o", "x.zpt", "--text", "none.txt"), 2, "none.txt"),
        (("quantize", "model.gguf", "-o", "x.zpt", "--text", "short.txt"), 1, "calibration has"),
        (("quantize", "none.gguf", "-o", "x.zpt"), 2, "no such file: none.gguf"),
        (("quantize", "model.gguf", "-o", "x.zpt", "--dry-run"), 2, "--dry-run: omit it"),
        (("quantize", "model.gguf", "-o", "x.zpt", "-d", "a.npy", "-m", "dynamic"), 2, "--data, --mode: omit it"),
        (("quantize", "model.gguf", "-o", "x.pt2"), 2, "--output model.zpt"),
        (("quantize", "model.gguf", "-o", "x.zpt", "--context", "100000"), 1, "for which the model was trained"),
        (("run", "model.gguf", "-d", "a.npy"), 1, "is a language model"),
        (("chat", "none.zpt"), 2, "no such file"),
        (("chat", "cut.gguf", "-m", "x"), 1, "is a GGUF file: make a program of it"),
        (("chat", "none.zpt", "--seed", "-1"), 2, "--seed"),
        (("export", "model.gguf", "-o", "x.gguf"), 1, "not a whole safetensors file"),
        (("export", "model.gguf", "-o", "model.gguf"), 2, "would be overwritten"),
        (("export", "a.npy", "-d", "a.npy", "-o", "x.gguf"), 2, "omit --data"),
    ],
)
def test_wrong_use_is_told(folder: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    np.save(folder / "a.npy", np.zeros((1, 4), np.int64))
    (folder / "short.txt").write_text("abc")
    (folder / "cut.gguf").write_bytes((folder / "model.gguf").read_bytes()[:500])
    ran = run(*arguments)
    assert ran.code == code
    assert message in " ".join((ran.out + ran.err).replace("\u2502", " ").split())
    assert not (folder / "x.zpt").exists()
    assert not (folder / "x.gguf").exists()
