"""Folders with config.json, safetensors and tokenizer.json give the bytes of a GGUF file with the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoder_oracle import logits_of_file
from folder_files import CONFIG, folder_of, tensors_of
from gguf_files import decoder_file

from zeropoint import generation
from zeropoint.generation.folder_decoder import folder_decoder
from zeropoint.generation.gguf import Gguf
from zeropoint.generation.gguf_tokenizer import gguf_tokenizer


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_folder_gives_the_bytes_of_the_gguf_file(tmp_path: Path, family: str) -> None:
    source = decoder_file(tmp_path / "a.gguf", family, "F32")
    generation.compile_decoder(source, tmp_path / "a.zpt", bits=8)
    folder = folder_of(tmp_path / "folder", tensors_of(source), {"model_type": family})
    facts = generation.compile_decoder(folder, tmp_path / "b.zpt", bits=8)
    assert facts["family"] == family
    assert np.array_equal(logits_of_file(tmp_path / "a.zpt"), logits_of_file(tmp_path / "b.zpt"))


def test_four_bits_are_smaller_and_near(tmp_path: Path, source: Path) -> None:
    folder = folder_of(tmp_path / "folder", tensors_of(source), {"model_type": "qwen3"})
    eight = generation.compile_decoder(folder, tmp_path / "8.zpt", bits=8)
    four = generation.compile_decoder(folder, tmp_path / "4.zpt", bits=4)
    assert four["bytes"] < eight["bytes"]
    want, got = logits_of_file(tmp_path / "8.zpt"), logits_of_file(tmp_path / "4.zpt")
    assert 10 * np.log10(np.square(want).sum() / np.square(want - got).sum()) > 8


def test_text_and_ends_come_from_the_tokenizer(tmp_path: Path, source: Path) -> None:
    folder = folder_of(tmp_path / "folder", tensors_of(source), {"model_type": "qwen3"})
    (folder / "tokenizer.json").write_text(gguf_tokenizer(Gguf(source)))
    settings = {"eos_token": {"content": "<|im_end|>"}, "chat_template": "<|im_start|>", "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"add_bos_token": True}))
    generation.compile_decoder(folder, tmp_path / "a.zpt")
    model = generation.load(tmp_path / "a.zpt")
    assert model.about.ends == (2, 4)
    assert model.about.begin == 1
    assert model.about.chat is not None
    assert isinstance(model.generate("abc", 4), str)


def test_tensor_that_nothing_reads_is_refused(tmp_path: Path, source: Path) -> None:
    tensors = tensors_of(source) | {"model.layers.0.mlp.experts.up": np.zeros((2, 64), np.float32)}
    folder = folder_of(tmp_path / "folder", tensors, {"model_type": "qwen3"})
    with pytest.raises(ValueError, match=r"1 tensors that .* does not: model\.layers\.0\.mlp\.experts\.up"):
        generation.compile_decoder(folder, tmp_path / "a.zpt")
    assert not (tmp_path / "a.zpt").exists()


def test_missing_or_misshapen_tensor_is_refused(tmp_path: Path, source: Path) -> None:
    tensors = tensors_of(source)
    name = "model.layers.1.self_attn.k_proj.weight"
    folder = folder_of(tmp_path / "one", tensors | {name: tensors[name][:16]}, {"model_type": "qwen3"})
    with pytest.raises(ValueError, match=r"'1\.k' has shape \(16, 64\), not \(32, 64\)"):
        generation.compile_decoder(folder, tmp_path / "a.zpt")
    del tensors[name]
    with pytest.raises(ValueError, match=r"no tensor for '1\.k'"):
        generation.compile_decoder(folder_of(tmp_path / "two", tensors, {"model_type": "qwen3"}), tmp_path / "a.zpt")


def test_weight_that_is_not_finite_is_refused(tmp_path: Path, source: Path) -> None:
    tensors = tensors_of(source)
    tensors["lm_head.weight"][3, 5] = np.nan
    folder = folder_of(tmp_path / "folder", tensors, {"model_type": "qwen3"})
    with pytest.raises(ValueError, match=r"lm_head\.weight: a weight is NaN or infinite"):
        generation.compile_decoder(folder, tmp_path / "a.zpt")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mamba"}, "family 'mamba' is not supported"),
        ({"model_type": "mixtral", "num_local_experts": 8}, "family 'mixtral' is not supported"),
        ({"model_type": "qwen2_moe"}, "family 'qwen2_moe' is not supported"),
        ({"model_type": "llama", "hidden_act": "relu6"}, "function 'relu6' is not supported"),
        ({"model_type": "llama", "hidden_size": -1}, "hidden_size of config.json must be a number"),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "yarn"}}, "scaling 'yarn' of angles is not supported"),
        ({"model_type": "llama", "sliding_window": 8, "layer_types": ["linear"] * 2}, "kinds that are not supported"),
    ],
)
def test_wrong_config_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        folder_decoder(CONFIG | config, None)


def test_quantized_folder_and_wrong_source_are_refused(tmp_path: Path, source: Path) -> None:
    quantized = {"model_type": "qwen3", "quantization_config": {"quant_method": "bitsandbytes"}}
    with pytest.raises(ValueError, match="quantized in a way that is not supported"):
        generation.compile_decoder(folder_of(tmp_path / "q", tensors_of(source), quantized), tmp_path / "a.zpt")
    with pytest.raises(TypeError, match="pass a GGUF file, a folder, or a model of transformers, got 5"):
        generation.compile_decoder(5, tmp_path / "a.zpt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no \.safetensors files"):
        generation.compile_decoder(tmp_path / "empty", tmp_path / "a.zpt")
