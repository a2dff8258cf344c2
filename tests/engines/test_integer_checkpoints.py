"""Checkpoints that compressed-tensors and torchao themselves write keep their integers as language models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, TorchAoConfig

from zeropoint import generation
from zeropoint.generation.folder_decoder import FolderWeights, folder_decoder
from zeropoint.generation.packed_checkpoint import packed_checkpoint
from zeropoint.generation.tensor_files import FolderTensors, read_json

ROUNDING = 2.0**-9  # scales become float16; with zero points two products of up to twice the largest weight
MATRICES = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "gate": "mlp.gate_proj", "down": "mlp.down_proj"}


def tiny() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 40}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=False, initializer_range=0.15)).eval()


def require_kept(folder: Path, floats: dict[str, torch.Tensor], bits: int) -> None:
    config = read_json(folder / "config.json")
    decoder = folder_decoder(config, None)
    packing = packed_checkpoint(config["quantization_config"])
    kept = FolderWeights(FolderTensors(folder), decoder, 4, 32, packing)
    for ours, theirs in MATRICES.items():
        matrix, want = kept.matrix(f"0.{ours}"), floats[f"model.layers.0.{theirs}.weight"].float().numpy()
        assert matrix is not None
        assert matrix.bits == bits
        assert np.abs(matrix.make().floats() - want).max() <= ROUNDING * np.abs(want).max()
    generation.compile_decoder(folder, folder / "model.zpt")
    assert len(generation.load(folder / "model.zpt").generate([7, 12], 4)) == 4


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("bits", "form"), [(4, "pack-quantized"), (8, "pack-quantized"), (8, "int-quantized")])
def test_compressed_tensors(tmp_path: Path, bits: int, form: str, symmetric: bool) -> None:
    from compressed_tensors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams

    model = tiny()
    per_channel = form == "int-quantized"
    strategy = {"strategy": "channel"} if per_channel else {"strategy": "group", "group_size": 32}
    layers: dict[str, Any] = {"targets": ["Linear"]}
    layers["weights"] = {"num_bits": bits, "type": "int", "symmetric": symmetric, **strategy}
    if per_channel:
        layers["input_activations"] = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
    status = {"quant_method": "compressed-tensors", "quantization_status": "initialized", "format": form}
    config = QuantizationConfig(config_groups={"group_0": layers}, ignore=["lm_head"], **status)
    apply_quantization_config(model, config)
    for module in model.modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is not None:
            groups = module.weight.detach().reshape(
                len(module.weight), -1, module.weight.shape[1] if per_channel else 32
            )
            found = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights)
            for name, value in zip(("weight_scale", "weight_zero_point"), found):
                kept = getattr(module, name)
                kept.data = value.reshape(kept.shape).to(kept.dtype)
    compressor = ModelCompressor.from_pretrained_model(model, quantization_format=form)
    compressor.compress_model(model)
    save_file({name: x.contiguous() for name, x in model.state_dict().items()}, tmp_path / "model.safetensors")
    model.config.save_pretrained(tmp_path)
    compressor.update_config(str(tmp_path))
    compressor.decompress_model(model)
    require_kept(tmp_path, model.state_dict(), bits)


@pytest.mark.parametrize("kind", ["int8 for each row", "int8, dynamic", "int8 in groups", "int4 in groups"])
def test_torchao(tmp_path: Path, kind: str) -> None:
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import (
        Int8DynamicActivationInt8WeightConfig,
        Int8WeightOnlyConfig,
        IntxWeightOnlyConfig,
        quantize_,
    )
    from torchao.quantization.granularity import PerGroup

    configs = {
        "int8 for each row": lambda: Int8WeightOnlyConfig(version=2),
        "int8, dynamic": lambda: Int8DynamicActivationInt8WeightConfig(version=2),
        "int8 in groups": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerGroup(32), version=2),
        "int4 in groups": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32), version=2),
    }
    model, config = tiny(), configs[kind]()
    quantize_(model.model, config)
    state = model.state_dict()
    with pytest.raises(TypeError, match="whose integers are not read from memory: save the model to a folder"):
        generation.compile_decoder(model, tmp_path / "model.zpt")
    tensors, said = flatten_tensor_state_dict(state)
    save_file({name: x.contiguous() for name, x in tensors.items()}, tmp_path / "model.safetensors", said)
    model.config.quantization_config = TorchAoConfig(config)
    model.config.save_pretrained(tmp_path)
    floats = {name: x.dequantize() if hasattr(x, "__tensor_flatten__") else x for name, x in state.items()}
    require_kept(tmp_path, floats, 4 if kind.startswith("int4") else 8)
