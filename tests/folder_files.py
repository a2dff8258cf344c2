"""Folders with config.json and safetensors, from the tensors of a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from zeropoint.generation.gguf import Gguf
from zeropoint.generation.gguf_weights import floats_of

LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONFIG = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
}


def tensors_of(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a GGUF file under the names of transformers."""
    file, found = Gguf(path), {}
    for name in file.names():
        parts = name.split(".")
        if parts[0] == "blk":
            new = f"model.layers.{parts[1]}.{LAYER[parts[2]]}.{parts[3]}"
        else:
            new = f"{WHOLE[parts[0]]}.{parts[1]}"
        found[new] = floats_of(file.tensor(name)).copy()
    return found


def folder_of(path: Path, tensors: dict[str, np.ndarray], config: dict[str, Any]) -> Path:
    path.mkdir()
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, path / f"model-{number}.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG | config))
    return path
