"""Models of a few layers and one way to call them, or of a layer to quantize and a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# What kernels compute behind a layer, as the rest of a model is left in float32.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


class Layers(nn.Module):
    """Holds the layers that it is given by name; `forward` of the subclass calls them."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)


class Beside(nn.Module):
    """A layer to quantize, and a function of other inputs."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, side: Tensor, *others: Tensor) -> list[Tensor]:
        return [self.layer(side), self.function(*others)]


class Behind(nn.Module):
    """A function behind a layer to quantize."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.layer(x))
