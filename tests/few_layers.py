"""A base of models that are a few layers and one way to call them."""

from __future__ import annotations

from torch import nn


class Layers(nn.Module):
    """Holds the layers that it is given by name; `forward` of the subclass calls them."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
