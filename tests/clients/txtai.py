"""txtai: `Pipeline.quantize`, which its pipelines call where `quantize=True`."""

from __future__ import annotations

from typing import Any

import torch
from txtai.pipeline.tensors import Tensors

PACKAGES = ("txtai", "transformers", "huggingface-hub", "tokenizers", "regex", "httpx2", "httpcore2", "anyio", "idna",
            "truststore", "certifi", "msgpack", "torchvision", "pillow")  # fmt: skip


def _pipeline() -> Any:
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(500, 64), torch.nn.TransformerEncoder(layer, 2)).eval()
    quantized = Tensors().quantize(model)
    tokens = torch.randint(0, 500, (2, 16))
    return quantized, lambda: quantized[1].layers[0].linear2(quantized[1].layers[0].linear1(quantized[0](tokens)))


CASES = {"quantize": _pipeline}
