"""The weights of a decoder from floats: maybe rotated before they are rounded, maybe with integers of calibration.

A rotation Q of the residual stream changes nothing in floats: rows of numbers ``x`` become ``x Q``, RMS norms have the
same size of them, their weights are folded into the layers behind, and so is Q. Values of heads are rotated in the same
way between the layers v and o. Large numbers of few inputs become numbers of all inputs, which groups round better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zeropoint.generation.decoder import Decoder, Matrix
from zeropoint.generation.group_weights import UNIT, GroupMatrix, quantized

_LARGEST_FACTOR = 64
_SEED = 42
WIDE = ("embedding", "positions", "head")  # matrices that have 8 bits


class FloatSource(Protocol):
    """The tensors of a decoder as floats."""

    rounded: dict[str, str]

    def vector(self, name: str) -> np.ndarray | None:
        """A float32 vector, or None if the model has none."""

    def floats(self, name: str) -> np.ndarray | None:
        """A matrix in float32, or None if the model has none."""

    def unused(self) -> list[str]:
        """Tensors that nothing has read."""


class FloatWeights:
    """The tensors of a decoder from floats.

    Args:
        rotation: what the residual stream and the heads are multiplied with, or None.
    """

    def __init__(self, source: FloatSource, bits: int, group: int, rotation: Rotation | None = None) -> None:
        self.source, self.bits, self.group, self.rotation = source, bits, group, rotation
        self._chosen: dict[str, GroupMatrix] = {}

    @property
    def rounded(self) -> dict[str, str]:
        """Tensors that have not exactly the numbers of the model, and their format."""
        return self.source.rounded

    def unused(self) -> list[str]:
        """Tensors that nothing has read."""
        return self.source.unused()

    def choose(self, name: str, matrix: GroupMatrix) -> None:
        """Take this matrix."""
        self._chosen[name] = matrix

    def vector(self, name: str) -> np.ndarray | None:
        """A float32 vector, or None if the model has none."""
        found = self.source.vector(name)
        return found if found is None or self.rotation is None else self.rotation.vector(name, found)

    def floats(self, name: str) -> np.ndarray | None:
        """A matrix in float32, or None if the model has none."""
        found = self.source.floats(name)
        if self.rotation is None:
            return found
        if found is None and name == "head":  # the embedding again, with the weights of the last norm
            found = self.source.floats("embedding")
        return None if found is None else self.rotation.matrix(name, found, self.source)

    def form(self, name: str, inputs: int) -> tuple[int, int]:
        """Bits and inputs of a group of a matrix."""
        group = self.group if inputs % self.group == 0 else UNIT
        if inputs % group:
            raise ValueError(f"the tensor for {name!r} has {inputs} inputs, which are no groups of {UNIT}")
        return (8 if name in WIDE else self.bits), group

    def matrix(self, name: str) -> Matrix | None:
        """A matrix, or None if the model has none."""
        if name in self._chosen:
            kept = self._chosen[name]
            return Matrix(kept.outputs, kept.inputs, kept.bits, kept.group, False, lambda: kept)
        found = self.source.floats(name)
        if found is None and not (name == "head" and self.rotation is not None):
            return None
        outputs, inputs = (found if found is not None else self._needed("embedding")).shape
        bits, group = self.form(name, inputs)
        return Matrix(outputs, inputs, bits, group, False, lambda: quantized(self._needed(name), bits, group))

    def _needed(self, name: str) -> np.ndarray:
        found = self.floats(name)
        assert found is not None
        return found


@dataclass(frozen=True)
class Rotation:
    """Orthogonal matrices of the residual stream and of each head, as products over factors of their sizes."""

    decoder: Decoder
    stream: tuple[np.ndarray, ...]
    signs: np.ndarray
    head: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, decoder: Decoder, source: FloatSource) -> Rotation:
        """The rotation of a decoder.

        Raises:
            ValueError: if its norms do not allow one.
        """
        if decoder.norm != "rms" or source.vector("0.attention_end_norm") is not None:
            raise ValueError(
                f"rotate needs a decoder whose norms are RMS norms in front of layers, and the family"
                f" {decoder.family!r} has others: omit it"
            )
        random = np.random.default_rng(_SEED)
        signs = random.choice(np.array([-1, 1], np.float32), decoder.width)
        return cls(decoder, _factors(decoder.width, random), signs, _factors(decoder.dim, random))

    def vector(self, name: str, values: np.ndarray) -> np.ndarray:
        """A vector of the rotated decoder."""
        short = name.removesuffix(".bias").rpartition(".")[2]
        if name.endswith(".bias"):
            return self._outputs(short, values[:, None])[:, 0] if short in ("o", "down", "v") else values
        return np.ones_like(values) if short in ("norm", "attention_norm", "mlp_norm") else values

    def matrix(self, name: str, values: np.ndarray, source: FloatSource) -> np.ndarray:
        """A matrix of the rotated decoder."""
        layer, _, short = name.rpartition(".")
        if short in ("embedding", "positions"):
            return self._stream(values)
        if short in ("o", "down"):
            turned = _along(values, self.head) if short == "o" else values
            return self._outputs(short, turned)
        norm = "norm" if short == "head" else f"{layer}.attention_norm"
        if short in ("gate", "up") and not self.decoder.parallel:
            norm = f"{layer}.mlp_norm"
        weight = source.vector(norm)
        if weight is None or weight.shape != values.shape[1:]:
            raise ValueError(f"the model has no tensor for {norm!r} that fits")
        return self._outputs(short, self._stream(values * weight))

    def _stream(self, values: np.ndarray) -> np.ndarray:
        return _along(values * self.signs, self.stream)

    def _outputs(self, short: str, values: np.ndarray) -> np.ndarray:
        if short in ("o", "down"):
            return np.ascontiguousarray(self._stream(values.T).T)
        return np.ascontiguousarray(_along(values.T, self.head).T) if short == "v" else values


def _factors(size: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Orthogonal matrices whose sizes have the product `size`: Hadamard's of powers of two, and one of what is left."""
    found = []
    while size % 2 == 0:
        part = min(size & -size, _LARGEST_FACTOR)
        found.append(_hadamard(part))
        size //= part
    if size > 1:
        found.append(np.linalg.qr(random.standard_normal((size, size)))[0].astype(np.float32))
    return tuple(found)


def _hadamard(size: int) -> np.ndarray:
    made: np.ndarray = np.ones((1, 1), np.float32)
    while len(made) < size:
        made = np.block([[made, made], [made, -made]])
    return (made / np.float32(size) ** 0.5).astype(np.float32)


def _along(values: np.ndarray, factors: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of numbers, each run of as many as the factors have together multiplied with their product."""
    sizes = [len(factor) for factor in factors]
    turned = values.reshape(-1, *sizes)
    for axis, factor in enumerate(factors):
        turned = np.moveaxis(np.tensordot(turned, factor, (axis + 1, 0)), -1, axis + 1)
    return np.ascontiguousarray(turned.reshape(values.shape), np.float32)
