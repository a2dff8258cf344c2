"""Public architectures with random weights, from torchvision, timm and transformers, against the peers.

``make bench-architectures`` installs the packages and puts the table into docs/benchmarks.md. The last lines are the
worst, the quartiles and the geometric mean of the best peer's time divided by ours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bench import engine, models, vision
from bench.engine import Case, floats
from bench.timing import How, Result, Row
from tests.zoo.packages import hugging, timm_model, torchvision_model


class _Tensor(nn.Module):
    """A model of transformers, from a tensor to a tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        return self.model(x)[0]


class _Whisper(_Tensor):
    def forward(self, x: Tensor) -> Any:
        return self.model.encoder(x)[0]


class _BothWays(nn.Module):
    """Two GRU layers, both ways, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(80, 256, 2, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(512, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.gru(x)[0])


def _hugging(model: str, config: str, wrapper: type[_Tensor] = _Tensor, **options: Any) -> Callable[[], nn.Module]:
    make = hugging(model, config, **options)
    return lambda: wrapper(make().eval())


def _words(count: int, known: int) -> engine.Inputs:
    return lambda batch: (torch.randint(5, known, (batch, count)),)


IMAGE = floats(3, 224, 224)
_BERT = {"vocab_size": 30522, "max_position_embeddings": 512, "pad_token_id": 0}
CASES = (
    Case("ResNet-18", torchvision_model("resnet18"), IMAGE),
    Case("ResNet-50", torchvision_model("resnet50"), IMAGE, (1,)),
    Case("DenseNet-121", torchvision_model("densenet121"), IMAGE, (1,)),
    Case("ShuffleNetV2 1.0", torchvision_model("shufflenet_v2_x1_0"), IMAGE, (1,)),
    Case("MobileNetV2", torchvision_model("mobilenet_v2"), IMAGE),
    Case("MobileNetV3 large", torchvision_model("mobilenet_v3_large"), IMAGE, (1,)),
    Case("RegNetY-400MF", torchvision_model("regnet_y_400mf"), IMAGE, (1,)),
    Case("EfficientNet-B0", torchvision_model("efficientnet_b0"), IMAGE, (1,)),
    Case("GhostNet", timm_model("ghostnet_100"), IMAGE, (1,)),
    Case("ConvNeXt-T", torchvision_model("convnext_tiny"), IMAGE, (1,), samples=8),
    Case("SqueezeNet 1.1", torchvision_model("squeezenet1_1"), IMAGE, (1,)),
    Case("U-Net 256x256", vision.UNet, floats(3, 256, 256), (1,), samples=8),
    Case(
        "MiniLM-L6, 128 tokens",
        _hugging(
            "BertModel", "BertConfig", hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
            intermediate_size=1536, **_BERT,
        ),
        _words(128, 30522),
    ),
    Case(
        "DistilBERT, 128 tokens",
        _hugging(
            "DistilBertModel", "DistilBertConfig", dim=768, n_layers=6, n_heads=12, hidden_dim=3072, hidden_size=None,
            num_hidden_layers=None, num_attention_heads=None, intermediate_size=None, **_BERT,
        ),
        _words(128, 30522), (1, 16), samples=32,
    ),
    Case(
        "BERT-base, 128 tokens",
        _hugging(
            "BertModel", "BertConfig", hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
            intermediate_size=3072, **_BERT,
        ),
        _words(128, 30522), (1, 16), samples=32,
    ),
    Case(
        "GPT-2 small, prompt of 128",
        _hugging(
            "GPT2LMHeadModel", "GPT2Config", hidden_size=None, num_hidden_layers=None, num_attention_heads=None,
            intermediate_size=None, max_position_embeddings=None, vocab_size=50257, n_embd=768, n_layer=12, n_head=12,
        ),
        _words(128, 50257), (1, 16), samples=32,
    ),
    Case(
        "Whisper-tiny encoder",
        _hugging(
            "WhisperModel", "WhisperConfig", _Whisper, d_model=384, encoder_layers=4, encoder_attention_heads=6,
            encoder_ffn_dim=1536, decoder_layers=1, decoder_attention_heads=6, vocab_size=51865, hidden_size=None,
            num_hidden_layers=None, num_attention_heads=None, intermediate_size=None, max_position_embeddings=None,
        ),
        floats(80, 3000), (1,), samples=4,
    ),
    Case(
        "wav2vec2-base, 1 s",
        _hugging(
            "Wav2Vec2Model", "Wav2Vec2Config", hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
            intermediate_size=3072, vocab_size=32, max_position_embeddings=None, use_cache=None,
        ),
        floats(16000), (1,), samples=4,
    ),
    Case("ViT-B/16", torchvision_model("vit_b_16"), IMAGE, (1, 16), samples=16),
    Case("Swin-T", torchvision_model("swin_t"), IMAGE, (1, 16), samples=16),
    Case("voice encoder LSTM, 160 frames", models.VoiceEncoder, floats(160, 40), dynamic=True),
    Case("bidirectional GRU, 160 frames", _BothWays, floats(160, 80), (1,), dynamic=True),
    Case("MLP 784-512-512-10", models.mlp, floats(784)),
    Case("CREPE full", models.Crepe, floats(1024)),
)  # fmt: skip


def rows() -> Iterator[Row]:
    threads = torch.get_num_threads()
    for case in CASES:
        for batch in case.batches:
            name = f"{case.name}, batch {batch}, {threads} thread{'s' * (threads > 1)}"
            yield Row(name, least_rounds=10, race=functools.partial(_race, case, batch), alike="architecture")


def _race(case: Case, batch: int, row: Row, how: How, least: int) -> Result:
    return engine.race(engine.task(case, batch, how.samples), 1.2, row, how, least, engine.with_float_graph)
