"""OpenNMT-py: its encoder and decoder, quantized as `load_test_model` does for `-int8`."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

sys.modules.setdefault("spacy", types.ModuleType("spacy"))  # for transforms of text, which are not used here

from onmt.modules.position_ffn import PositionwiseFeedForward

PACKAGES = (
    "OpenNMT-py",
    "pyonmttok",
    "configargparse",
    "sacrebleu",
    "portalocker",
    "pyahocorasick",
    "waitress",
    "flask",
)


def _feed_forward() -> Any:
    model = torch.nn.Sequential(*(PositionwiseFeedForward(32, 64, 0.0) for _ in range(2))).eval()
    torch.quantization.quantize_dynamic(model, dtype=torch.qint8, inplace=True)
    x = torch.randn(2, 5, 32)
    return model, lambda: model(x)


CASES = {"feed forward": _feed_forward}
