"""pocket-tts: the package's own dynamic quantization of the layers of its transformer."""

from __future__ import annotations

from typing import Any

import torch
from pocket_tts import quantization
from pocket_tts.modules.rope import RotaryEmbedding
from pocket_tts.modules.transformer import StreamingTransformerLayer

PACKAGES = ("pocket-tts", "requests", "beartype", "huggingface-hub", "sentencepiece", "einops", "scipy", "pyyaml",
            "charset-normalizer", "urllib3", "certifi", "idna")  # fmt: skip


def _language_model() -> Any:
    quantization._get_backend = lambda: "torch.ao"  # else it takes torchao where that is installed
    layers = torch.nn.ModuleList(
        StreamingTransformerLayer(64, 4, 128, None, RotaryEmbedding()) for _ in range(2)
    ).eval()
    model = torch.nn.Module()
    model.transformer = torch.nn.Module()
    model.transformer.layers = layers
    quantization.apply_dynamic_int8(model, quantization.RECOMMENDED_CONFIG)
    x = torch.randn(1, 12, 64)
    return model, lambda: [layer._ff_block(x) for layer in layers]


CASES = {"apply_dynamic_int8": _language_model}
