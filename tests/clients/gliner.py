"""gliner: `quantize("int8")`'s own step for CPUs, on an encoder with random weights."""

from __future__ import annotations

import types
from typing import Any

import torch
from gliner.model import BaseGLiNER
from torch import nn

PACKAGES = ("gliner", "transformers", "huggingface-hub", "tokenizers", "regex", "tqdm", "httpx2", "httpcore2", "anyio",
            "idna", "truststore", "certifi")  # fmt: skip


def _int8() -> Any:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).eval()
    holder = types.SimpleNamespace(model=model, device=torch.device("cpu"))
    BaseGLiNER._apply_int8_quantization(holder)
    x = torch.randn(2, 16, 64)
    return holder.model, lambda: holder.model(x)


CASES = {"int8": _int8}
