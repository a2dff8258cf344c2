"""torch.compile with ``backend="zeropoint"``, beside inductor in float32 and bfloat16, eager, and a program.

``python -m bench torch_compile --seconds 5``; calls take turns in one process, after PyTorch has compiled all of them.
Needs torchvision and transformers (`make bench-architectures` installs them) and a C++ compiler for inductor.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
from bench.graph import without_gradients
from bench.timing import Row, made_late
from tests.zoo.packages import hugging, torchvision_model

ASKED = 1.5  # of inductor in float32


def rows() -> Iterator[Row]:
    for name, make, shape in (
        ("ResNet-50 224x224", torchvision_model("resnet50"), (1, 3, 224, 224)),
        ("BERT base, 128 tokens", _bert, (1, 128)),
        ("LSTM 256, 2 layers, 100 steps", _Reader, (1, 100, 80)),
    ):
        for mode in ("static", "dynamic"):
            yield made_late(f"{name}, {mode}", _row, make, shape, mode, alike="torch.compile")


class _Reader(nn.Module):
    """A recurrent network and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.linear = nn.LSTM(80, 256, 2, batch_first=True), nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.lstm(x)[0])


def _bert() -> nn.Module:
    sizes = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    return hugging("BertModel", "BertConfig", **sizes, vocab_size=30522, max_position_embeddings=512)()


def _row(make: Callable[[], nn.Module], shape: tuple[int, ...], mode: str) -> Row:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = make().eval()
    x: Any = torch.randint(0, 30522, shape) if len(shape) == 2 else torch.randn(shape)
    ours = torch.compile(copy.deepcopy(model), backend="zeropoint", options={"mode": mode, "calibration": 1})
    call = without_gradients(ours, x)
    call()  # calibration
    halves = torch.compile(copy.deepcopy(model))
    program = zeropoint.to_int8(model, (x,), [x] if mode == "static" else None, mode=mode, progress=False)
    peers = {
        "inductor": without_gradients(torch.compile(copy.deepcopy(model)), x),
        "inductor, bfloat16 autocast": _in_halves(halves, x),
        "float32": without_gradients(model, x),
        "a program": without_gradients(zeropoint.compile(program, (x,)), x),
    }
    return Row("", call, peers, {**dict.fromkeys(peers, 0.0), "inductor": ASKED})


def _in_halves(model: Any, x: Tensor) -> Callable[[], object]:
    def call() -> object:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return model(x)

    return call
