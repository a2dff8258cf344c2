"""Folders with config.json, safetensors and tokenizer.json give the bytes of a GGUF file with the same numbers."""

from __future__ import annotations

import contextlib
import itertools
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


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3_CONFIG = {
    "hidden_act": "silu",
    "rope_scaling": LLAMA3,
    "rope_theta": 1e4,
    "sliding_window": 8,
    "use_sliding_window": True,
    "max_window_layers": 1,
    "attn_logit_softcapping": 50.0,
    "query_pre_attn_scalar": 16,
    "partial_rotary_factor": 0.5,
    "layer_norm_eps": 1e-5,
}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mamba"}, "family 'mamba' is not supported"),
        ({"model_type": "mixtral", "num_local_experts": 8}, "family 'mixtral' is not supported"),
        ({"model_type": "qwen2_moe"}, "family 'qwen2_moe' is not supported"),
        ({"model_type": "llama", "hidden_act": "relu6"}, "function 'relu6' is not supported"),
        ({"hidden_size": -1}, "hidden_size of config.json must be a whole number"),
        ({"hidden_size": 64.0}, "hidden_size of config.json must be a whole number"),
        ({"num_hidden_layers": None}, "num_hidden_layers of config.json is missing"),
        ({"model_type": ["llama"]}, r"family \['llama'\] is not supported"),
        ({"hidden_act": ["silu"]}, r"function \['silu'\] is not supported"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "scaling of angles 'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": []}}, r"scaling of angles \[\] is not supported"),
        ({"rope_scaling": 2}, "rope_scaling of config.json must be an object, got 2"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor of rope_scaling .* is missing"),
        ({"rope_parameters": {"full_attention": {}}}, "'full_attention' of rope_scaling .* is not supported"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "high_freq_factor .* must be above low_freq_factor"),
        ({"rope_theta": float("nan")}, "rope_theta .* must be a number above 0"),
        ({"partial_rotary_factor": 0.01}, "must leave some of the 16 numbers of a head"),
        (
            {"sliding_window": 8, "layer_types": ["linear"] * 2},
            "layer_types .* must be 2 of sliding_attention and full",
        ),
        ({"sliding_window": 8, "layer_types": 5}, "layer_types .* must be 2 of sliding_attention and full"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx of config.json is True"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention of config.json is True"),
        ({"attn_logit_softcapping": "x"}, "attn_logit_softcapping of config.json must be a number"),
    ],
)
def test_wrong_config_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        folder_decoder(CONFIG | {"model_type": "llama"} | config, None)


WEIRD = (None, True, 0, -1, 4.0, 1e308, float("nan"), 10**30, "", "x", (), [1], {}, {"a": 1}, [[1]])


@pytest.mark.parametrize("key", [*CONFIG, *LLAMA3_CONFIG])
def test_setting_of_any_type_is_read_or_refused_in_words(key: str) -> None:
    for family, value in itertools.product(("llama", "qwen2", "gemma2", "phi", "gpt2"), WEIRD):
        with contextlib.suppress(ValueError):
            made = folder_decoder(CONFIG | LLAMA3_CONFIG | {"model_type": family, key: value}, None)
            assert np.isfinite(made.frequencies).all()


def test_layers_behind_the_first_ones_have_windows() -> None:
    sliding = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}
    assert folder_decoder(CONFIG | sliding | {"model_type": "qwen2"}, None).windows == (0, 8)
    assert folder_decoder(CONFIG | {"sliding_window": 8, "model_type": "qwen2"}, None).windows == ()
    assert folder_decoder(CONFIG | {"sliding_window": 8, "model_type": "mistral"}, None).windows == (8, 8)


def test_model_without_its_last_layer_is_refused(tmp_path: Path, source: Path) -> None:
    tensors = tensors_of(source)
    del tensors["lm_head.weight"]
    untied = folder_of(tmp_path / "one", tensors, {"model_type": "qwen3", "tie_word_embeddings": False})
    with pytest.raises(
        ValueError, match=r"tie_word_embeddings of config\.json is False, so the model needs an lm_head\.weight"
    ):
        generation.compile_decoder(untied, tmp_path / "a.zpt")
    tied = folder_of(tmp_path / "two", tensors, {"model_type": "qwen3", "tie_word_embeddings": True})
    assert generation.compile_decoder(tied, tmp_path / "a.zpt")["family"] == "qwen3"


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
