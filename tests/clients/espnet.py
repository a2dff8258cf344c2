"""espnet: language models of its inference script, quantized with the arguments that the script has."""

from __future__ import annotations

import functools
from typing import Any

import torch
from espnet2.lm.seq_rnn_lm import SequentialRNNLM
from espnet2.lm.transformer_lm import TransformerLM

PACKAGES = ("espnet", "typeguard", "humanfriendly", "torch-complex", "packaging", "configargparse", "editdistance")


def _model(name: str) -> Any:
    tokens = torch.randint(1, 50, (2, 9))  # before layers draw random numbers
    lm = SequentialRNNLM(50, unit=32, nlayers=2) if name == "LSTM" else TransformerLM(50, None, 32, 32, 2, 64, 2)
    kinds = {getattr(torch.nn, kind) for kind in ("Linear", "LSTM")}
    quantized = torch.quantization.quantize_dynamic(lm.eval(), qconfig_spec=kinds, dtype=torch.qint8)
    return quantized, lambda: quantized(tokens, None)[0]


CASES = {name: functools.partial(_model, name) for name in ("LSTM", "transformer")}
