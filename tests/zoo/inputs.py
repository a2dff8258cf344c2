"""Small random inputs: each function gives one that makes them from a generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

Inputs = Callable[[Generator], Any]


def floats(*shape: int) -> Inputs:
    return lambda g: (torch.randn(shape, generator=g),)


def image(size: int, channels: int = 3, batch: int = 2) -> Inputs:
    return floats(batch, channels, size, size)


def video(frames: int, size: int) -> Inputs:
    return floats(1, 3, frames, size, size)


def tokens(length: int = 12, vocabulary: int = 99, batch: int = 2) -> Inputs:
    return lambda g: (torch.randint(3, vocabulary, (batch, length), generator=g),)


def tokens_below(vocabulary: int, *shape: int) -> Inputs:
    """Tokens of any shape, all that are below a number."""
    return lambda g: (torch.randint(0, vocabulary, shape, generator=g),)


def image_bytes(g: Generator) -> tuple[Tensor, ...]:
    """Pictures as they come from files: bytes, channels last."""
    return (torch.randint(0, 256, (2, 12, 12, 3), generator=g, dtype=torch.uint8),)


def flags_and_counts(g: Generator) -> tuple[Tensor, ...]:
    """Booleans and integers of 32 bits."""
    flags = torch.randint(0, 2, (5,), generator=g).bool()
    return flags, torch.randint(0, 256, (5,), generator=g, dtype=torch.int32)


def nothing(g: Generator) -> tuple[None, ...]:
    """An argument that is None."""
    return (None,)


def nested(g: Generator) -> tuple[Any, ...]:
    """A dictionary with a list and a tuple of tensors."""

    def some(size: int) -> Tensor:
        return torch.randn(3, size, generator=g)

    return ({"left": [some(6), some(6)], "right": (some(4), some(4))},)


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
