"""sentence-transformers: an encoder with random weights, quantized as the project's examples do."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from sentence_transformers.models import Dense, Pooling

PACKAGES = ("sentence-transformers", "transformers", "huggingface-hub", "tokenizers", "regex", "tqdm", "httpx2",
            "httpcore2", "anyio", "idna", "truststore", "certifi")  # fmt: skip


class _Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
        self.model = hf.BertModel(hf.BertConfig(vocab_size=500, **sizes))
        self.pooling, self.dense = Pooling(64), Dense(64, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        words = {"token_embeddings": self.model(tokens).last_hidden_state, "attention_mask": torch.ones_like(tokens)}
        return self.dense(self.pooling(words))["sentence_embedding"]


def _encoder() -> Any:
    quantized = torch.quantization.quantize_dynamic(_Encoder().eval(), {torch.nn.Linear}, dtype=torch.qint8)
    tokens = torch.randint(0, 500, (2, 16))
    return quantized, lambda: quantized(tokens)


CASES = {"encoder": _encoder}
