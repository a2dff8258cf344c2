"""openai-whisper: a small Whisper with random weights.

Its linear layers are of a class of its own, which torch.ao leaves alone; as its users do, they become torch's first.
"""

from __future__ import annotations

from typing import Any

import torch
from whisper.model import Linear, ModelDimensions, Whisper

PACKAGES = ("openai-whisper", "tqdm", "more-itertools", "tiktoken", "regex", "requests", "numba", "llvmlite")


def _dynamic() -> Any:
    model = Whisper(ModelDimensions(80, 1500, 128, 2, 2, 1000, 64, 128, 2, 2)).eval()
    with torch.no_grad():
        model.decoder.positional_embedding.normal_(std=0.02)
    for module in model.modules():
        if type(module) is Linear:
            module.__class__ = torch.nn.Linear
    quantized = torch.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    mel, text = torch.randn(1, 80, 3000), torch.randint(0, 1000, (1, 12))
    return quantized, lambda: quantized(mel, text)


CASES = {"dynamic": _dynamic}
