"""What a decoder is: the sizes and choices that families of language models differ in, and its tensors by our names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zeropoint.generation.group_weights import GroupMatrix


@dataclass(frozen=True)
class Decoder:
    """A decoder of the transformer family: norm, attention, norm, feed-forward in each layer.

    Args:
        family: what the file calls it, for people.
        dim: numbers of a head, `rotated` of which are rotated by the position.
        shared_heads: heads of keys and values.
        context: the most tokens of a sequence.
        norm: "rms" or "layer".
        frequencies: angles for each position, one for each rotated pair.
        interleaved: a rotated pair is two neighbours, else one of each half.
        rotation_factor: what cosines and sines are multiplied with.
        function: of the feed-forward layers; `gated` by a second layer of the same inputs.
        parallel: attention and feed-forward have the same input, and one norm.
        windows: for each layer, how many positions a token sees; 0 is all.
        attention_cap, logit_cap: bounds of scores and logits by tanh; 0 is none.
    """

    family: str
    layers: int
    width: int
    heads: int
    shared_heads: int
    dim: int
    vocabulary: int
    context: int
    frequencies: np.ndarray
    norm: str = "rms"
    eps: float = 1e-5
    interleaved: bool = False
    rotation_factor: float = 1.0
    function: str = "silu"
    gated: bool = True
    parallel: bool = False
    embedding_factor: float = 1.0
    scale: float | None = None
    windows: tuple[int, ...] = ()
    attention_cap: float = 0.0
    logit_cap: float = 0.0

    @property
    def rotated(self) -> int:
        """Numbers of a head that are rotated."""
        return 2 * len(self.frequencies)

    def window(self, layer: int) -> int:
        """How many positions a token of a layer sees; 0 is all."""
        return self.windows[layer] if self.windows else 0


@dataclass(frozen=True)
class Matrix:
    """A matrix of groups that is made when it is needed.

    Args:
        minima: whether its groups have minima.
        make: gives the matrix.
    """

    outputs: int
    inputs: int
    bits: int
    group: int
    minima: bool
    make: Callable[[], GroupMatrix]


class Weights(Protocol):
    """The tensors of a decoder.

    Matrices: ``embedding``, ``positions``, ``head``, and of layer i ``i.q``, ``i.k``, ``i.v``, ``i.o``, ``i.gate``,
    ``i.up``, ``i.down``. Vectors: ``norm``, ``i.attention_norm``, ``i.mlp_norm``, ``i.attention_end_norm``,
    ``i.mlp_end_norm``, ``i.q_norm``, ``i.k_norm``, and biases with ``.bias`` behind the name of their layer or norm.
    """

    def vector(self, name: str) -> np.ndarray | None:
        """A float32 vector, or None if the model has none."""

    def matrix(self, name: str) -> Matrix | None:
        """A matrix, or None if the model has none."""
