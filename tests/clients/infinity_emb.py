"""infinity-emb: `quant_interface`, what the server calls for int8 on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from infinity_emb.primitives import Device, Dtype
from infinity_emb.transformer.quantization.interface import quant_interface

PACKAGES = ("infinity-emb", "opentelemetry-api", "importlib-metadata", "zipp",
            "asgiref", "transformers", "huggingface-hub", "tokenizers", "regex", "requests", "httpx2", "httpcore2",
            "anyio", "idna", "truststore", "certifi", "urllib3", "charset-normalizer")  # fmt: skip


def _encoder() -> Any:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    model = hf.BertModel(hf.BertConfig(vocab_size=500, **sizes)).eval()
    quantized = quant_interface(model, Dtype.int8, Device.cpu)
    tokens = torch.randint(0, 500, (2, 16))
    return quantized, lambda: quantized(tokens).last_hidden_state


CASES = {"encoder": _encoder}
