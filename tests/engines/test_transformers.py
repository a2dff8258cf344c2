"""Models of transformers, as it is on PyPI: loaded quantized, saved, loaded again, in pipelines and generating."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from zeropoint.integrations.transformers import QuantizedLinear, ZeropointConfig

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TOKENS = torch.arange(3, 15).reshape(2, 6)
CONFIGS = {
    "dynamic": {},
    "8 bits": {"mode": "weight_only"},
    "4 bits": {"mode": "weight_only", "bits": 4, "group_size": 16},
}
# Cosine of the scores to those in float, of weights that are random: a step is 1/127 of the largest weight, or 1/7.5.
LEAST = {"dynamic": 0.999, "8 bits": 0.999, "4 bits": 0.95}


def _bert() -> Any:
    return BertForSequenceClassification(BertConfig(**SIZES, intermediate_size=64, num_labels=3))


def _gpt2() -> Any:
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=64))


def _llama() -> Any:
    return LlamaForCausalLM(LlamaConfig(**SIZES, intermediate_size=64, num_key_value_heads=2))


def _t5() -> Any:
    return T5ForConditionalGeneration(T5Config(vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2))


MODELS = {
    "bert": (_bert, AutoModelForSequenceClassification, 13),
    "gpt2": (_gpt2, AutoModelForCausalLM, 8),
    "llama": (_llama, AutoModelForCausalLM, 14),
    "t5": (_t5, AutoModelForSeq2SeqLM, 28),
}


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    torch.manual_seed(0)
    MODELS[request.param][0]().eval().save_pretrained(tmp_path / "float")
    return tmp_path


def _scores(model: Any) -> Tensor:
    more = {"decoder_input_ids": TOKENS} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=TOKENS, **more).logits.float()


def _cosine(one: Tensor, two: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.flatten(), two.flatten(), dim=0))


def _quantized(model: Any) -> int:
    return sum(isinstance(module, QuantizedLinear) for module in model.modules())


@pytest.mark.parametrize("how", CONFIGS)
@pytest.mark.parametrize(("folder", "name"), [(name, name) for name in MODELS], indirect=["folder"])
def test_a_model_is_quantized_saved_and_loaded_with_the_same_results(folder: Path, name: str, how: str) -> None:
    _, auto, layers = MODELS[name]
    wanted = _scores(auto.from_pretrained(folder / "float"))
    model = auto.from_pretrained(folder / "float", quantization_config=ZeropointConfig(**CONFIGS[how]))
    assert _quantized(model) == layers
    found = _scores(model)
    assert _cosine(found, wanted) > LEAST[how]
    model.save_pretrained(folder / "quantized")
    stored = load_file(folder / "quantized" / "model.safetensors")
    assert sum(t.dtype in (torch.int8, torch.uint8) for t in stored.values()) == layers
    again, report = auto.from_pretrained(folder / "quantized", output_loading_info=True)
    assert not any(report.values()), report
    assert _quantized(again) == layers
    assert torch.equal(_scores(again), found)


@pytest.mark.parametrize("folder", ["gpt2", "llama"], indirect=True)
def test_a_quantized_model_generates(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder / "float", quantization_config=ZeropointConfig())
    made = model.generate(TOKENS[:1], max_new_tokens=4, do_sample=False)
    step = TOKENS[:1]
    for _ in range(4):  # without a cache
        with torch.no_grad():
            step = torch.cat([step, model(step).logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(made, step)


@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_a_pipeline_takes_a_quantized_folder(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "good": 5, "bad": 6}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **named).save_pretrained(folder / "quantized")
    model = AutoModelForSequenceClassification.from_pretrained(folder / "float", quantization_config=ZeropointConfig())
    model.save_pretrained(folder / "quantized")
    classify = transformers.pipeline("text-classification", model=str(folder / "quantized"), device="cpu")
    assert _quantized(classify.model) == 13
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([[5, 0, 6]])).logits.softmax(-1).max()
    assert classify("good or bad")[0]["score"] == pytest.approx(float(wanted), abs=1e-6)


@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_another_class_of_model_loads_the_part_that_it_has(folder: Path) -> None:
    whole = AutoModelForSequenceClassification.from_pretrained(folder / "float", quantization_config=ZeropointConfig())
    whole.save_pretrained(folder / "quantized")
    part, report = AutoModel.from_pretrained(folder / "quantized", output_loading_info=True)
    assert not report["missing_keys"]
    assert _quantized(part) == 13
    with torch.no_grad():
        assert torch.equal(part(TOKENS).pooler_output, whole.bert(TOKENS).pooler_output)


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_modules_can_stay_in_float(folder: Path) -> None:
    config = ZeropointConfig(modules_to_not_convert=["lm_head", "down_proj"])
    model = AutoModelForCausalLM.from_pretrained(folder / "float", quantization_config=config)
    assert _quantized(model) == 12
    assert type(model.model.layers[1].mlp.down_proj) is torch.nn.Linear
    config = ZeropointConfig(modules_to_not_convert=["model", "lm_head"])
    with pytest.raises(ValueError, match="no linear layer to quantize"):
        AutoModelForCausalLM.from_pretrained(folder / "float", quantization_config=config)


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_a_config_can_be_used_for_several_models(folder: Path) -> None:
    config = ZeropointConfig()
    before = config.to_dict()
    model = LlamaForCausalLM.from_pretrained(folder / "float", quantization_config=config)
    assert config.to_dict() == before
    assert model.config.quantization_config.modules_to_not_convert == ["lm_head"]


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_half_precision_keeps_the_scales(folder: Path) -> None:
    config = ZeropointConfig("weight_only", bits=4, group_size=16)
    wanted = AutoModelForCausalLM.from_pretrained(folder / "float", quantization_config=config)
    model = AutoModelForCausalLM.from_pretrained(folder / "float", quantization_config=config, dtype=torch.bfloat16)
    model.save_pretrained(folder / "quantized")
    again = AutoModelForCausalLM.from_pretrained(folder / "quantized", dtype=torch.bfloat16)
    assert torch.equal(_scores(model), _scores(again))
    assert _cosine(_scores(model), _scores(wanted)) > 0.999
    layer = wanted.model.layers[0].mlp.down_proj
    scale = layer.scale.clone()
    assert torch.equal(wanted.to(torch.bfloat16).model.layers[0].mlp.down_proj.scale, scale)
    assert layer(torch.ones(1, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_a_quantized_model_is_captured_by_torch_export(folder: Path) -> None:
    model = AutoModel.from_pretrained(folder / "float", quantization_config=ZeropointConfig())
    with torch.no_grad():
        exported = torch.export.export(model, (TOKENS,), strict=False)
        assert torch.equal(exported.module()(TOKENS).pooler_output, model(TOKENS).pooler_output)


def test_the_weight_in_float_is_what_the_layer_computes_with() -> None:
    torch.manual_seed(0)
    for options in CONFIGS.values():
        layer = QuantizedLinear.from_float(torch.nn.Linear(24, 5), ZeropointConfig(**options))
        x = torch.eye(24)
        wanted = torch.nn.functional.linear(x, layer.weight, layer.bias)
        assert torch.allclose(layer(x), wanted, atol=1e-5), options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "static"}, "mode must be one of dynamic, weight_only, got 'static'"),
        ({"bits": 4}, 'with mode="weight_only", 4; got 4'),
        ({"mode": "weight_only", "bits": 3}, "got 3"),
        ({"mode": "weight_only", "group_size": 12}, "multiple of 8, or 0, got 12"),
        ({"group_size": 32}, "omit group_size"),
        ({"quant_method": "other"}, "got 'other'"),
    ],
)
def test_a_wrong_config_is_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ZeropointConfig(**options)


@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_other_devices_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="run on CPUs"):
        AutoModel.from_pretrained(folder / "float", quantization_config=ZeropointConfig(), device_map="cuda")
