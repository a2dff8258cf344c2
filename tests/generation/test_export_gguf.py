"""GGUF files of programs have the integers, scales, sizes and tokenizer that the program was made of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from folder_files import folder_of, tensors_of
from gguf_files import decoder_file, piece_entries

from zeropoint import generation
from zeropoint.generation.gguf import Gguf
from zeropoint.generation.gguf_tokenizer import gguf_tokenizer

FAMILIES = ("llama", "qwen2", "qwen3", "gemma", "gemma2", "phi2", "gpt2")
IDS = np.array([7, 12, 5, 30, 9, 9, 14, 22, 31, 6])


def logits(path: Path) -> np.ndarray:
    every = np.arange(len(IDS))
    return generation.load(path).logits(IDS, every, np.zeros(len(IDS), np.int64), every)


def require_equal(source: Path, found: Path) -> None:
    a, b = Gguf(source), Gguf(found)
    assert set(a.names()) == set(b.names())
    for name in a.names():
        x, y = a.tensor(name), b.tensor(name)
        assert (x.format, x.shape) == (y.format, y.shape), name
        assert np.array_equal(x.data, y.data), name


@pytest.mark.parametrize("form", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_file_has_the_bytes_of_the_one_that_it_came_from(tmp_path: Path, family: str, form: str) -> None:
    source = decoder_file(tmp_path / "a.gguf", family, form)
    generation.compile_decoder(source, tmp_path / "a.zpt")
    facts = generation.export_gguf(tmp_path / "a.zpt", tmp_path / "b.gguf")
    assert set(facts["formats"]) == {"F32", form}
    require_equal(source, tmp_path / "b.gguf")
    generation.compile_decoder(tmp_path / "b.gguf", tmp_path / "b.zpt")
    assert (tmp_path / "a.zpt").read_bytes() == (tmp_path / "b.zpt").read_bytes()


def test_other_readers_find_the_same_numbers(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    source = decoder_file(tmp_path / "a.gguf", "llama", "Q4_0")
    generation.compile_decoder(source, tmp_path / "a.zpt")
    generation.export_gguf(tmp_path / "a.zpt", tmp_path / "b.gguf")
    want, got = (gguf.GGUFReader(path) for path in (source, tmp_path / "b.gguf"))
    for a in want.tensors:
        (b,) = (tensor for tensor in got.tensors if tensor.name == a.name)
        assert np.array_equal(
            gguf.quants.dequantize(a.data, a.tensor_type), gguf.quants.dequantize(b.data, b.tensor_type)
        )


def test_outputs_of_llama_models_are_put_in_the_order_of_gguf_files(tmp_path: Path) -> None:
    source = decoder_file(tmp_path / "a.gguf", "qwen2", "F32")
    tensors = {name: x for name, x in tensors_of(source).items() if not name.endswith("proj.bias")}
    folder = folder_of(tmp_path / "folder", tensors, {"model_type": "llama"})
    (folder / "tokenizer.json").write_text(gguf_tokenizer(Gguf(source)))
    generation.compile_decoder(folder, tmp_path / "a.zpt", bits=8, group=64, cache="float32")
    generation.export_gguf(tmp_path / "a.zpt", tmp_path / "b.gguf")
    generation.compile_decoder(tmp_path / "b.gguf", tmp_path / "b.zpt", cache="float32")
    want, got = logits(tmp_path / "a.zpt"), logits(tmp_path / "b.zpt")
    # Groups of 64 became two of 32, whose activations have scales of their own.
    assert 10 * np.log10(np.square(want).sum() / np.square(want - got).sum()) > 25


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_tokenizer_chat_and_ends_are_kept(tmp_path: Path, kind: str) -> None:
    entries = {
        "tokenizer.chat_template": "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}<|im_start|>",
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.bos_token_id": 1,
    }
    source = decoder_file(tmp_path / "a.gguf", entries=entries | (piece_entries(40) if kind == "pieces" else {}))
    generation.compile_decoder(source, tmp_path / "a.zpt")
    generation.export_gguf(tmp_path / "a.zpt", tmp_path / "b.gguf")
    generation.compile_decoder(tmp_path / "b.gguf", tmp_path / "b.zpt")
    want, got = (generation.load(tmp_path / f"{name}.zpt") for name in "ab")
    assert json.loads(want.about.text()) == json.loads(got.about.text())
    assert got.about.chat is not None
    assert got.about.chat.system == "Be kind."
    for text in ("abab cab", "xyz. ab<|im_end|>q"):
        assert want.encode(text) == got.encode(text)


def test_template_is_made_of_known_texts_alone(tmp_path: Path) -> None:
    entries = {"tokenizer.chat_template": '<|im_start|>system\nSay "x" \\<|im_end|>'}
    generation.compile_decoder(decoder_file(tmp_path / "a.gguf", entries=entries), tmp_path / "a.zpt")
    assert generation.load(tmp_path / "a.zpt").about.chat.system.startswith("Say")  # type: ignore[union-attr]
    generation.export_gguf(tmp_path / "a.zpt", tmp_path / "b.gguf")
    template = Gguf(tmp_path / "b.gguf").metadata["tokenizer.chat_template"]
    assert "Say" not in template
    assert template.count("<|im_start|>") == 4


WINDOWS = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}


def test_what_gguf_files_cannot_have_is_refused(tmp_path: Path) -> None:
    source = decoder_file(tmp_path / "a.gguf", "qwen3", "F32")
    folder = folder_of(tmp_path / "folder", tensors_of(source), {"model_type": "qwen3"})
    generation.compile_decoder(folder, tmp_path / "a.zpt")
    with pytest.raises(ValueError, match="has no tokenizer, and a GGUF file must have one"):
        generation.export_gguf(tmp_path / "a.zpt", tmp_path / "b.gguf")
    (folder / "tokenizer.json").write_text(gguf_tokenizer(Gguf(source)))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | WINDOWS))
    generation.compile_decoder(folder, tmp_path / "a.zpt")
    with pytest.raises(ValueError, match="family 'qwen3' cannot have the model's windows"):
        generation.export_gguf(tmp_path / "a.zpt", tmp_path / "b.gguf")
    with pytest.raises(ValueError, match="is no language model"):
        generation.export_gguf(Path(__file__).parents[1] / "golden" / "programs" / "moved.zpt", tmp_path / "b.gguf")
    assert not (tmp_path / "b.gguf").exists()


def test_other_program_of_a_decoder_is_refused(tmp_path: Path) -> None:
    generation.compile_decoder(decoder_file(tmp_path / "a.gguf"), tmp_path / "a.zpt")
    content = (tmp_path / "a.zpt").read_bytes()
    (tmp_path / "b.zpt").write_bytes(content.replace(b'\\"cap\\":0.0', b'\\"cap\\":9.0', 1))
    with pytest.raises(ValueError, match="its steps are not those of its decoder"):
        generation.export_gguf(tmp_path / "b.zpt", tmp_path / "b.gguf")
    (tmp_path / "b.zpt").write_bytes(content.replace(b'\\"shared_heads\\":2', b'\\"shared_heads\\":0'))
    with pytest.raises(ValueError, match="is damaged"):
        generation.export_gguf(tmp_path / "b.zpt", tmp_path / "b.gguf")


def test_any_damaged_byte_of_a_program_gives_a_file_or_a_refusal(tmp_path: Path) -> None:
    generation.compile_decoder(decoder_file(tmp_path / "a.gguf", layers=1), tmp_path / "a.zpt")
    content = (tmp_path / "a.zpt").read_bytes()
    random, refused = np.random.default_rng(5), 0
    for _ in range(150):
        damaged = bytearray(content)
        for place in random.integers(8, 9000, 2):
            damaged[place] = random.choice(list(b'0123456789"[]{},:ax\\'))
        (tmp_path / "b.zpt").write_bytes(bytes(damaged))
        try:
            generation.export_gguf(tmp_path / "b.zpt", tmp_path / "b.gguf")
        except ValueError:
            refused += 1
    assert refused > 100
