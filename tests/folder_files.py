"""Folders with config.json and safetensors, from the tensors of a GGUF file; also with packed integers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

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
    "head_dim": 16,
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


def words(values: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of `bits` bits of the last axis in int32, the first in the lowest bits."""
    parts = values.reshape(*values.shape[:-1], -1, 32 // bits).astype(np.uint32)
    return (parts << np.arange(0, 32, bits, dtype=np.uint32)).sum(-1, dtype=np.uint32).view(np.int32)


def compressed_tensors(
    bits: int, group: int, form: str = "pack-quantized", symmetric: bool = True, **changes: Any
) -> dict[str, Any]:
    """A quantization_config; `changes` are of its weights."""
    strategy = {"strategy": "channel"} if group == -1 else {"strategy": "group", "group_size": group}
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "dynamic": False, **strategy}
    activations = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
    layers = {"targets": ["Linear"], "weights": weights | changes}
    layers["input_activations"] = activations if form == "int-quantized" else None
    config = {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"], "transform_config": {}}
    return config | {"config_groups": {"group_0": layers}}


def integer_folder(
    path: Path, source: Path, config: dict[str, Any], bits: int, group: int, zeros_too: bool, scale_dtype: str
) -> tuple[Path, dict[str, np.ndarray]]:
    """A checkpoint of compressed-tensors or torchao, as those packages write it, and the floats that it stands for."""
    random = np.random.default_rng(4)
    tensors, floats, said = tensors_of(source), {}, {}
    middle = 1 << (bits - 1)
    for name, weight in list(tensors.items()):
        floats[name] = weight
        if weight.ndim != 2 or "layers" not in name:
            continue
        (outputs, inputs), layer = weight.shape, name.removesuffix(".weight")
        size = inputs if group == -1 else group
        q = random.integers(-middle, middle, (outputs, inputs))
        scale = (random.uniform(0.1, 0.3, (outputs, inputs // size)) / middle).astype(scale_dtype)
        zeros = random.integers(-middle, middle, scale.shape) if zeros_too else np.zeros(scale.shape, np.int64)
        floats[name] = ((q - zeros.repeat(size, 1)) * scale.astype(np.float32).repeat(size, 1)).astype(np.float32)
        del tensors[name]
        if config["quant_method"] == "torchao":
            tensors |= {f"{layer}._weight_qdata": q.astype(np.int8), f"{layer}._weight_scale": scale}
            tensors[f"{layer}._weight_zero_point"] = zeros.astype(np.int8)
            kind = "Int8Tensor" if group == -1 else "IntxUnpackedToInt8Tensor"
            facts = {"block_size": [1, size], "target_dtype": {"_type": "torch.dtype", "_data": f"int{bits}"}}
            said[name] = json.dumps({"_type": kind, "_data": facts})
            continue
        tensors[f"{layer}.weight_scale"] = scale
        if config["format"] == "int-quantized":
            tensors[name] = q.astype(np.int8)
        else:
            tensors[f"{layer}.weight_packed"] = words(q + middle, bits)
            tensors[f"{layer}.weight_shape"] = np.array([outputs, inputs])
        if zeros_too:
            is_packed = config["format"] == "pack-quantized"
            stored = np.ascontiguousarray(words((zeros + middle).T, bits).T) if is_packed else zeros.astype(np.int8)
            tensors[f"{layer}.weight_zero_point"] = stored
    folder = folder_of(path, tensors, {"model_type": "qwen3", "quantization_config": config})
    for file in folder.glob("*.safetensors"):
        save_file(load_file(file), file, said)
    return folder, floats
