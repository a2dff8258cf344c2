"""Language models of transformers with random weights: their programs are near to them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zeropoint import generation

from . import packages

COMMON = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}
ROPE3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}),
    "llama3": ("LlamaForCausalLM", "LlamaConfig", {"rope_parameters": ROPE3}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": 8}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 32}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {"head_dim": 16}),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
    ),
    "phi": ("PhiForCausalLM", "PhiConfig", {"num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {"pad_token_id": 0}),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 64},
    ),
}
LEAST_DB = 25  # see tests/generation/test_decoder_program.py


@pytest.mark.slow
@pytest.mark.skipif(packages.absent("transformers") is not None, reason="transformers is not installed: make test-zoo")
@pytest.mark.parametrize("name", MODELS)
def test_program_is_near_the_model(tmp_path: Path, name: str) -> None:
    transformers = importlib.import_module("transformers")
    model_class, config_class, options = MODELS[name]
    torch.manual_seed(0)
    common = {} if name == "gpt2" else COMMON
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**{**common, **options})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(
                torch.randn_like(weight) * 0.15 if weight.ndim > 1 else weight + torch.randn_like(weight) * 0.1
            )
        ids = torch.randint(0, 100, (1, 24))
        want = model(ids).logits[0].numpy()
    generation.compile_decoder(model, tmp_path / "a.zpt", bits=8, cache="float16")
    model.save_pretrained(tmp_path / "folder")
    generation.compile_decoder(tmp_path / "folder", tmp_path / "b.zpt", bits=8, cache="float16")
    assert (tmp_path / "a.zpt").read_bytes() == (tmp_path / "b.zpt").read_bytes()
    every = np.arange(24)
    got = generation.load(tmp_path / "a.zpt").logits(ids[0].numpy(), every, np.zeros(24, np.int64), every)
    assert 10 * np.log10(np.square(want).sum() / np.square(want - got).sum()) > LEAST_DB
