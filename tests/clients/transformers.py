"""transformers: BERT and DistilBERT with random weights, quantized as the tutorials of both projects do."""

from __future__ import annotations

import functools
from typing import Any

import torch
import transformers as hf

PACKAGES = ("transformers", "huggingface-hub", "tokenizers", "regex", "httpx2", "httpcore2", "anyio", "idna",
            "truststore", "certifi")  # fmt: skip


def _made(name: str) -> Any:
    sizes = {"bert": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128},
             "distilbert": {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}}[name]  # fmt: skip
    kind = {"bert": hf.BertForSequenceClassification, "distilbert": hf.DistilBertForSequenceClassification}[name]
    model = kind(hf.AutoConfig.for_model(name, vocab_size=500, **sizes)).eval()
    quantized = torch.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    tokens = torch.randint(0, 500, (2, 16))
    return quantized, lambda: quantized(tokens).logits


CASES = {name: functools.partial(_made, name) for name in ("bert", "distilbert")}
