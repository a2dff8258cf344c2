"""The models of the matrix in docs/interchange.md, with data for them, and how results are compared."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from graph_models import Bert, MobileNet, Recurrent, ResNet, UNet, with_statistics
from torch import Tensor, nn

import zeropoint


class Bags(nn.Module):
    """A bag of words and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.last = nn.EmbeddingBag(99, 16, mode="mean"), nn.Linear(16, 4)

    def forward(self, words: Tensor, offsets: Tensor) -> Tensor:
        return self.last(self.bag(words, offsets))


@dataclass(frozen=True)
class Case:
    """A float model, an example, and what it is calibrated with."""

    model: nn.Module
    example: tuple[Tensor, ...]
    calibration: list[tuple[Tensor, ...]]
    mode: str

    def quantized(self) -> Any:
        return self._quantized

    @functools.cached_property
    def _quantized(self) -> Any:
        batches = self.calibration if self.mode == "static" else None
        return zeropoint.to_int8(self.model, self.example, batches, mode=self.mode, progress=False)


def _images(count: int) -> tuple[Tensor, ...]:
    return (torch.randn(count, 3, 32, 32),)


def _words(count: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, 100, (count, 16)),)


def _frames(count: int) -> tuple[Tensor, ...]:
    return (torch.randn(count, 12, 20),)


def _bags(count: int) -> tuple[Tensor, ...]:
    return torch.randint(0, 99, (5 * count,)), torch.tensor([0, 3, 3, 7])  # one of them is empty


MODELS: dict[str, tuple[Any, Any, str]] = {
    "ResNet": (lambda: with_statistics(ResNet((16, 32, 64), 2, 10), *_images(8)), _images, "static"),
    "MobileNetV2": (lambda: with_statistics(MobileNet(), *_images(8)), _images, "static"),
    "U-Net": (lambda: with_statistics(UNet(), *_images(8)), _images, "static"),
    "MiniLM, static": (Bert, _words, "static"),
    "MiniLM, dynamic": (Bert, _words, "dynamic"),
    "LSTM": (lambda: Recurrent(nn.LSTM), _frames, "dynamic"),
    "EmbeddingBag": (Bags, _bags, "static"),
}


@functools.cache
def case(name: str) -> Case:
    """A model of the matrix, the same each time: tests read it and what is made of it, and change nothing."""
    torch.manual_seed(0)
    build, inputs, mode = MODELS[name]
    model = build().eval()
    return Case(model, inputs(2), [inputs(4) for _ in range(3)], mode)


def step_of(values: Any) -> float:
    """One step of 8 bits over these values and 0."""
    array = np.asarray(values)
    return max((max(float(array.max()), 0.0) - min(float(array.min()), 0.0)) / 255, 1e-30)
