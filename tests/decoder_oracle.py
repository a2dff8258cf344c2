"""Decoders in float64, from the same matrices of groups: what a program of one must be near to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zeropoint import generation
from zeropoint.generation.decoder import Decoder, Weights

IDS = np.array([7, 12, 5, 30, 9, 9, 14, 22, 31, 6])

_TANH_FACTOR = np.sqrt(2 / np.pi)


def logits_of(decoder: Decoder, weights: Weights, ids: Sequence[int]) -> np.ndarray:
    """The logits behind each token of one sequence."""
    return _Oracle(decoder, weights).run(list(ids))


def logits_of_file(path: Path) -> np.ndarray:
    """The same for `IDS`, by the program of a file."""
    every = np.arange(len(IDS))
    return generation.load(path).logits(IDS, every, np.zeros(len(IDS), np.int64), every)


class _Oracle:
    def __init__(self, decoder: Decoder, weights: Weights) -> None:
        self.decoder, self.weights = decoder, weights

    def matrix(self, name: str) -> np.ndarray | None:
        found = self.weights.matrix(name)
        return None if found is None else found.make().floats().astype(np.float64)

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        w = self.matrix(name)
        assert w is not None
        bias = self.weights.vector(f"{name}.bias")
        return x @ w.T + (0 if bias is None else bias.astype(np.float64))

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        weight, bias = self.weights.vector(name), self.weights.vector(f"{name}.bias")
        assert weight is not None
        centered = x - x.mean(-1, keepdims=True) if self.decoder.norm == "layer" else x
        scale = np.sqrt(np.square(centered).mean(-1, keepdims=True) + self.decoder.eps)
        return centered / scale * weight + (0 if bias is None else bias)

    def run(self, ids: list[int]) -> np.ndarray:
        d = self.decoder
        table = self.matrix("embedding")
        assert table is not None
        x = table[ids] * d.embedding_factor
        positions = self.matrix("positions")
        if positions is not None:
            x = x + positions[: len(ids)]
        for i in range(d.layers):
            normed = self.norm(f"{i}.attention_norm", x)
            attended = self.linear(f"{i}.o", self.attention(i, normed))
            if self.weights.vector(f"{i}.attention_end_norm") is not None:
                attended = self.norm(f"{i}.attention_end_norm", attended)
            x = x + attended
            if not d.parallel:
                normed = self.norm(f"{i}.mlp_norm", x)
            inside = self.function(self.linear(f"{i}.gate" if d.gated else f"{i}.up", normed))
            if d.gated:
                inside = inside * self.linear(f"{i}.up", normed)
            out = self.linear(f"{i}.down", inside)
            if self.weights.vector(f"{i}.mlp_end_norm") is not None:
                out = self.norm(f"{i}.mlp_end_norm", out)
            x = x + out
        x = self.norm("norm", x)
        logits = x @ table.T if self.weights.matrix("head") is None else self.linear("head", x)
        return logits if not d.logit_cap else np.tanh(logits / d.logit_cap) * d.logit_cap

    def function(self, x: np.ndarray) -> np.ndarray:
        if self.decoder.function == "silu":
            return x / (1 + np.exp(-x))
        assert self.decoder.function == "gelu_tanh"
        return 0.5 * x * (1 + np.tanh(_TANH_FACTOR * (x + 0.044715 * x**3)))

    def attention(self, i: int, x: np.ndarray) -> np.ndarray:
        d, count = self.decoder, len(x)
        q = self.turned(f"{i}.q", self.linear(f"{i}.q", x).reshape(count, d.heads, d.dim))
        k = self.turned(f"{i}.k", self.linear(f"{i}.k", x).reshape(count, d.shared_heads, d.dim))
        v = self.linear(f"{i}.v", x).reshape(count, d.shared_heads, d.dim)
        sharing = d.heads // d.shared_heads
        scores = np.einsum("qhd,khd->hqk", q, k.repeat(sharing, 1)) * (d.scale or d.dim**-0.5)
        if d.attention_cap:
            scores = np.tanh(scores / d.attention_cap) * d.attention_cap
        apart = np.arange(count)[:, None] - np.arange(count)
        scores = np.where((apart < 0) | (apart >= (d.window(i) or count)), -np.inf, scores)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", shares, v.repeat(sharing, 1)).reshape(count, -1)

    def turned(self, name: str, x: np.ndarray) -> np.ndarray:
        d = self.decoder
        weight = self.weights.vector(f"{name}_norm")
        if weight is not None:
            x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + d.eps) * weight
        angles = np.arange(len(x))[:, None, None] * np.asarray(d.frequencies, np.float64)
        cosine, sine = np.cos(angles) * d.rotation_factor, np.sin(angles) * d.rotation_factor
        half = d.rotated // 2
        first = np.arange(0, d.rotated, 2) if d.interleaved else np.arange(half)
        second = first + (1 if d.interleaved else half)
        y = x.copy()
        y[..., first] = x[..., first] * cosine - x[..., second] * sine
        y[..., second] = x[..., first] * sine + x[..., second] * cosine
        return y
