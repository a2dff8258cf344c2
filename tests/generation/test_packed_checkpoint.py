"""Checkpoints of GPTQ, AWQ, compressed-tensors and torchao keep their integers, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoder_oracle import IDS, logits_of, logits_of_file
from folder_files import compressed_tensors, folder_of, integer_folder, tensors_of
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from zeropoint import generation
from zeropoint.generation.folder_decoder import FolderWeights, folder_decoder
from zeropoint.generation.packed_checkpoint import packed_checkpoint
from zeropoint.generation.tensor_files import FolderTensors, read_json

LAYER = "model.layers.0.mlp.up_proj"


def packed(values: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """Eight numbers of the last axis in an int32."""
    parts = values.reshape(*values.shape[:-1], -1, 8)[..., list(order)].astype(np.uint32)
    return (parts << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32).view(np.int32)


def packed_folder(path: Path, source: Path, method: str, zero: int | None) -> tuple[Path, dict[str, np.ndarray]]:
    """A checkpoint of GPTQ or AWQ with groups of 32, and the floats that it stands for."""
    random = np.random.default_rng(4)
    tensors, floats = tensors_of(source), {}
    order = tuple(range(8)) if method == "gptq" else (0, 2, 4, 6, 1, 3, 5, 7)
    for name, weight in list(tensors.items()):
        floats[name] = weight
        if weight.ndim != 2 or "layers" not in name:
            continue
        outputs, inputs = weight.shape
        q = random.integers(0, 16, (inputs, outputs))
        scale = random.uniform(0.01, 0.03, (inputs // 32, outputs)).astype(np.float16)
        zeros = random.integers(1, 16, scale.shape) if zero is None else np.full(scale.shape, zero)
        layer = name.removesuffix(".weight")
        del tensors[name]
        rows = packed(q.T, order).T if method == "gptq" else packed(q, order)
        tensors[f"{layer}.qweight"] = np.ascontiguousarray(rows)
        tensors[f"{layer}.qzeros"] = packed(zeros - (1 if method == "gptq" else 0), order)
        tensors[f"{layer}.scales"] = scale
        if method == "gptq":
            tensors[f"{layer}.g_idx"] = (np.arange(inputs) // 32).astype(np.int32)
        values = (q - zeros.repeat(32, 0)) * scale.astype(np.float32).repeat(32, 0)
        floats[name] = np.ascontiguousarray(values.T, np.float32)
    config = {"model_type": "qwen3", "quantization_config": {"quant_method": method, "bits": 4, "group_size": 32}}
    return folder_of(path, tensors, config), floats


@pytest.mark.parametrize("zero", [8, None])
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_packed_checkpoints_keep_their_integers(tmp_path: Path, source: Path, method: str, zero: int | None) -> None:
    folder, floats = packed_folder(tmp_path / "folder", source, method, zero)
    facts = generation.compile_decoder(folder, tmp_path / "a.zpt", cache="float32")
    assert ("model.layers.0.mlp.up_proj" in facts["rounded"]) == (zero is None)
    plain = folder_of(tmp_path / "plain", floats, {"model_type": "qwen3"})
    config = json.loads((plain / "config.json").read_text())
    decoder = folder_decoder(config, None)
    want = logits_of(decoder, FolderWeights(FolderTensors(plain), decoder, 8, 32), IDS.tolist())
    got = logits_of_file(tmp_path / "a.zpt")
    assert 10 * np.log10(np.square(want).sum() / np.square(want - got).sum()) > 25


def test_packed_checkpoint_in_another_order_is_refused(tmp_path: Path, source: Path) -> None:
    folder, _ = packed_folder(tmp_path / "folder", source, "gptq", 8)
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        for name in tensors:
            if name.endswith("g_idx"):
                tensors[name] = tensors[name][::-1].copy()
        save_file(tensors, path)
    with pytest.raises(ValueError, match=r"desc_act"):
        generation.compile_decoder(folder, tmp_path / "a.zpt")


TORCHAO = {"quant_method": "torchao"}


@pytest.mark.parametrize("scale_dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("config", "bits", "group", "zeros_too"),
    [
        (compressed_tensors(4, 32), 4, 32, False),
        (compressed_tensors(4, 32, symmetric=False), 4, 32, True),
        (compressed_tensors(4, -1), 4, -1, False),
        (compressed_tensors(8, 32), 8, 32, False),
        (compressed_tensors(8, -1, "int-quantized"), 8, -1, False),
        (compressed_tensors(8, -1, "int-quantized", symmetric=False), 8, -1, True),
        (TORCHAO, 4, 32, False),
        (TORCHAO, 8, 32, True),
        (TORCHAO, 8, -1, False),
    ],
)
def test_integers_of_other_packages_are_kept(
    tmp_path: Path, source: Path, config: dict[str, Any], bits: int, group: int, zeros_too: bool, scale_dtype: str
) -> None:
    folder, floats = integer_folder(tmp_path / "folder", source, config, bits, group, zeros_too, scale_dtype)
    facts = generation.compile_decoder(folder, tmp_path / "a.zpt", cache="float32")
    assert (LAYER in facts["rounded"]) == (zeros_too or scale_dtype == "float32")
    found = read_json(folder / "config.json")
    decoder = folder_decoder(found, None)
    packing = packed_checkpoint(found["quantization_config"])
    kept = FolderWeights(FolderTensors(folder), decoder, 4, 32, packing)
    for ours, theirs in (("0.up", LAYER), ("1.k", "model.layers.1.self_attn.k_proj")):
        matrix, want = kept.matrix(ours), floats[f"{theirs}.weight"]
        assert matrix is not None
        made = matrix.make()
        assert made.bits == bits
        exact = not zeros_too and scale_dtype == "float16"
        assert np.abs(made.floats() - want).max() <= (0 if exact else 2.0**-10) * np.abs(want).max()
    plain = folder_of(tmp_path / "plain", floats, {"model_type": "qwen3"})
    want = logits_of(decoder, FolderWeights(FolderTensors(plain), decoder, 8, 32), IDS.tolist())
    got = logits_of_file(tmp_path / "a.zpt")
    assert 10 * np.log10(np.square(want).sum() / np.square(want - got).sum()) > 25


def without(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A config whose only group of layers is changed."""
    return config | {"config_groups": {"group_0": config["config_groups"]["group_0"] | changes}}


W4, W8 = compressed_tensors(4, 32), compressed_tensors(8, 32, "int-quantized")
STATIC = {"num_bits": 8, "type": "int", "dynamic": False}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (compressed_tensors(3, 32), "num_bits 3 is not supported"),
        (compressed_tensors(4, 32, "int-quantized"), "num_bits 4 is not supported"),
        (compressed_tensors(4, 32, type="float"), "type 'float' is not supported"),
        (compressed_tensors(8, -1, "naive-quantized"), "format 'naive-quantized' is not supported"),
        (compressed_tensors(8, -1, strategy="block"), "strategy 'block' is not supported"),
        (without(W4, input_activations=STATIC), "activations are not dynamic with 8 bits"),
        (without(W4, output_activations=STATIC), "with output_activations is not supported"),
        (without(W4, weights=5), "is damaged: it has no weights"),
        (compressed_tensors(4, 32, num_bits=4.0), "num_bits 4.0 is not supported"),
        (W4 | {"transform_config": {"R1": {}}}, "with transform_config is not supported"),
        (W4 | {"config_groups": W4["config_groups"] | {"group_1": {}}}, "other than one group of layers"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 32}, "'gptq' with 3 bits"),
        ({"quant_method": "gptq", "bits": 4.0, "group_size": 32}, "'gptq' with 4.0 bits"),
        ({"quant_method": "fp8"}, "'fp8' with None bits"),
        ([], "None with None bits"),
    ],
)
def test_other_quantization_is_refused(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        packed_checkpoint(config)


def test_config_without_activations_rounds_none() -> None:
    (layers,) = W4["config_groups"].values()
    some = {name: value for name, value in layers.items() if name != "input_activations"}
    assert packed_checkpoint(W4 | {"config_groups": {"group_0": some}}) == packed_checkpoint(W4)


def test_zero_points_that_the_config_promises_are_needed(tmp_path: Path, source: Path) -> None:
    asymmetric = compressed_tensors(4, 32, symmetric=False)
    folder, _ = integer_folder(tmp_path / "folder", source, asymmetric, 4, 32, False, "float16")
    with pytest.raises(ValueError, match=r"symmetric is false, so it needs the tensor '.*\.weight_zero_point'"):
        generation.compile_decoder(folder, tmp_path / "a.zpt")


def changed_folder(path: Path, source: Path, config: dict[str, Any], part: str, value: np.ndarray) -> Path:
    """A checkpoint with another tensor in one layer."""
    bits = 8 if config == TORCHAO else 4
    folder, _ = integer_folder(path, source, config, bits, 32, False, "float16")
    name = f"{LAYER}.{part}"
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        if name in tensors or (part.endswith("g_idx") and f"{LAYER}.weight_scale" in tensors):
            said = {f"{LAYER}.weight": json.dumps({"_type": "Int8Tensor", "_data": {}})}
            save_file(tensors | {name: value}, file, said)
    return folder


@pytest.mark.parametrize(
    ("config", "part", "value", "message"),
    [
        (W4, "weight_scale", np.full((96, 2), np.inf, np.float32), "a scale is not finite, or too large for float16"),
        (W4, "weight_scale", np.ones((96, 5), np.float32), r"scales of shape \(96, 5\) do not fit 64 inputs"),
        (W4, "weight_scale", np.ones((95, 2), np.float32), "integers of shape .* do not fit 95 outputs|has shape"),
        (W4, "weight_packed", np.zeros((96, 8), np.float32), "packed integers must be a matrix of int32, got float32"),
        (W4, "weight_g_idx", np.arange(64, dtype=np.int32) % 2, "inputs in another order .desc_act, actorder."),
        (TORCHAO, "_weight_qdata", np.zeros((96, 64), np.int32), "integers must be int8 from -128 to 127"),
        (TORCHAO, "_weight_scale", np.ones(96, np.float32), r"scales of shape \(96,\)"),
    ],
)
def test_damaged_layer_is_refused(
    tmp_path: Path, source: Path, config: dict[str, Any], part: str, value: np.ndarray, message: str
) -> None:
    folder = changed_folder(tmp_path / "folder", source, config, part, value)
    with pytest.raises(ValueError, match=message):
        generation.compile_decoder(folder, tmp_path / "a.zpt")
    assert not (tmp_path / "a.zpt").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"_type": "Int4Tensor", "_data": {"target_dtype": {"_data": "int4"}}}'])
def test_torchao_tensor_of_another_kind_is_refused(tmp_path: Path, source: Path, text: str) -> None:
    folder, _ = integer_folder(tmp_path / "folder", source, TORCHAO, 4, 32, False, "float16")
    for file in folder.glob("*.safetensors"):
        save_file(load_file(file), file, {f"{LAYER}.weight": text})
    with pytest.raises(ValueError, match=r"does not say how torchao packed it|is a Int4Tensor of torchao"):
        generation.compile_decoder(folder, tmp_path / "a.zpt")


def test_packed_layer_without_a_config_is_refused(tmp_path: Path, source: Path) -> None:
    folder, _ = integer_folder(tmp_path / "folder", source, W4, 4, 32, False, "float16")
    (folder / "config.json").write_text(json.dumps(read_json(folder / "config.json") | {"quantization_config": None}))
    with pytest.raises(ValueError, match=r"has packed weights, and config\.json has no quantization_config"):
        generation.compile_decoder(folder, tmp_path / "a.zpt")


@pytest.mark.parametrize(
    ("config", "part"),
    [(W4, "weight_scale"), (compressed_tensors(8, 32, "int-quantized"), "weight"), (TORCHAO, "_weight_scale")],
)
def test_missing_part_of_a_packed_layer_is_refused(
    tmp_path: Path, source: Path, config: dict[str, Any], part: str
) -> None:
    bits = 4 if config is W4 else 8
    folder, _ = integer_folder(tmp_path / "folder", source, config, bits, 32, False, "float16")
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        tensors.pop(f"{LAYER}.{part}", None)
        with safe_open(file, "numpy") as opened:
            said = opened.metadata()
        save_file(tensors, file, said)
    with pytest.raises(ValueError, match=f"the model has no tensor '{LAYER}.{part}'"):
        generation.compile_decoder(folder, tmp_path / "a.zpt")


def test_matrix_with_another_number_of_axes_is_refused(tmp_path: Path, source: Path) -> None:
    folder = changed_folder(tmp_path / "folder", source, W4, "weight_packed", np.zeros(96, np.int32))
    with pytest.raises(ValueError, match="weight_packed must have two axes"):
        generation.compile_decoder(folder, tmp_path / "a.zpt")
