"""Small random inputs: each function gives one that makes them from a generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

__all__ = ["Inputs", "both", "floats", "graph", "image", "named", "tokens", "video"]

Inputs = Callable[[Generator], Any]


def floats(*shape: int) -> Inputs:
    return lambda g: (torch.randn(shape, generator=g),)


def image(size: int, channels: int = 3, batch: int = 2) -> Inputs:
    return floats(batch, channels, size, size)


def video(frames: int, size: int) -> Inputs:
    return floats(1, 3, frames, size, size)


def tokens(length: int = 12, vocabulary: int = 99, batch: int = 2) -> Inputs:
    return lambda g: (torch.randint(3, vocabulary, (batch, length), generator=g),)


def both(*parts: Inputs) -> Inputs:
    """The inputs of several, one behind the other."""
    return lambda g: tuple(value for part in parts for value in part(g))


def named(**parts: Inputs) -> Inputs:
    """Keywords."""
    return lambda g: {name: part(g)[0] for name, part in parts.items()}


def mask(length: int = 12, batch: int = 2) -> Inputs:
    """Ones, and zeros at the end of the last row."""

    def make(g: Generator) -> tuple[Tensor, ...]:
        made = torch.ones(batch, length, dtype=torch.int64)
        made[-1, -length // 4 :] = 0
        return (made,)

    return make


def lengths(length: int, batch: int = 2) -> Inputs:
    """Lengths of sequences, the longest first."""
    return lambda g: (torch.arange(length, length - batch, -1),)


def graph(nodes: int, features: int, edges: int) -> Inputs:
    """Features of nodes, and edges as pairs of nodes."""
    return lambda g: (torch.randn(nodes, features, generator=g), torch.randint(0, nodes, (2, edges), generator=g))
