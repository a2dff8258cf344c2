"""stable-ts: `ptdq_linear`, the package's own dynamic quantization of Whisper."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

sys.modules.setdefault("torchaudio", types.ModuleType("torchaudio"))  # for reading sound, which is not done here

from stable_whisper.quantization import ptdq_linear
from whisper.model import ModelDimensions, Whisper

PACKAGES = ("stable-ts", "openai-whisper", "tqdm", "more-itertools", "tiktoken", "regex", "requests", "numba",
            "llvmlite")  # fmt: skip


def _dynamic() -> Any:
    model = Whisper(ModelDimensions(80, 1500, 128, 2, 2, 1000, 64, 128, 2, 2)).eval()
    with torch.no_grad():
        model.decoder.positional_embedding.normal_(std=0.02)
    ptdq_linear(model)
    mel, text = torch.randn(1, 80, 3000), torch.randint(0, 1000, (1, 12))
    return model, lambda: model(mel, text)


CASES = {"ptdq_linear": _dynamic}
