"""GPTQ for decoders, without PyTorch: texts run through the layers as floats, and each matrix is rounded so that its
results on them change least.

The squared error of a matrix on its inputs X is ``tr(D' H D)`` with ``D = rounded - weight`` and ``H = X' X``. With
``H = R R'`` and R upper triangular, the best number for input i, when those before it are integers and those behind it
are still free, is ``weight[i] - sum(R[j, i] D[j] for j < i) / R[i, i]``. Inputs go by falling ``H[i, i]``; scales are
those with the least error before, weighted with ``H[i, i]``. Each layer sees what the rounded layers before it give.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zeropoint.generation.decoder import Decoder
from zeropoint.generation.float_weights import FloatWeights
from zeropoint.generation.group_weights import GroupMatrix, quantized

_WINDOW, _MOST_TOKENS = 512, 1 << 13
_DAMPING = 0.01  # of the mean diagonal
_BLOCK = 64  # inputs that the others learn of together
_TANH_FACTOR = np.float32((2 / np.pi) ** 0.5)


def calibrate(decoder: Decoder, weights: FloatWeights, ids: Sequence[int]) -> np.ndarray:
    """Choose the integers of all layers on these tokens.

    Returns:
        The residual stream behind the last layer, a row for each token that was used.

    Raises:
        ValueError: if there are too few tokens, or one is outside the vocabulary.
    """
    window = min(_WINDOW, decoder.context)
    tokens = np.asarray(ids[:_MOST_TOKENS], np.int64)
    if len(tokens) < window:
        raise ValueError(f"calibration has {len(tokens)} tokens, and needs {window} at least: pass more text")
    if tokens.min() < 0 or tokens.max() >= decoder.vocabulary:
        raise ValueError(f"calibration has a token outside the vocabulary of {decoder.vocabulary}: pass others")
    return _Pass(decoder, weights, tokens[: len(tokens) // window * window], window).run()


def rounded_for(w: np.ndarray, h: np.ndarray, bits: int, group: int) -> GroupMatrix:
    """A matrix (outputs, inputs) rounded for inputs with ``X' X`` of `h`."""
    mean = float(h.diagonal().mean())
    nearest = quantized(w, bits, group, h.diagonal() if mean > 0 else None)
    order = np.argsort(-h.diagonal(), kind="stable")
    damped = h[np.ix_(order, order)].astype(np.float64) + np.eye(len(h)) * (_DAMPING * mean if mean > 0 else 1.0)
    factor = np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1]  # upper, and factor @ factor.T is damped
    shares = (factor / factor.diagonal()).astype(np.float32)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    weights = np.ascontiguousarray(w.T[order], np.float32)  # a row for each input
    scale = nearest.scale.astype(np.float32).T[order // group]
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    q, lost = np.empty_like(weights), np.empty_like(weights)
    for start in range(0, len(q), _BLOCK):
        end = min(start + _BLOCK, len(q))
        wanted = weights[start:end] - shares[:start, start:end].T @ lost[:start]
        for i in range(start, end):
            target = wanted[i - start] - shares[start:i, i] @ lost[start:i]
            q[i] = np.clip(np.rint(target * inverse[i]), low, high)
            lost[i] = q[i] * scale[i] - weights[i]
    back = np.empty_like(q)
    back[order] = q
    return GroupMatrix(bits, np.ascontiguousarray((back.T - low).astype(np.uint8)), nearest.scale)


class _Pass:
    """One pass of all windows through the layers."""

    def __init__(self, decoder: Decoder, weights: FloatWeights, tokens: np.ndarray, window: int) -> None:
        self.decoder, self.weights, self.tokens, self.window = decoder, weights, tokens, window

    def run(self) -> np.ndarray:
        """Choose the integers of all layers, the first ones first."""
        d = self.decoder
        table, positions = self.weights.matrix("embedding"), self.weights.matrix("positions")
        if table is None:
            raise ValueError("the model has no tensor for 'embedding'")
        x = table.make().floats()[self.tokens] * np.float32(d.embedding_factor)
        if positions is not None:
            x += positions.make().floats()[np.arange(len(x)) % self.window]
        for i in range(d.layers):
            normed = self._norm(f"{i}.attention_norm", x)
            q, k, v = self._layers([f"{i}.q", f"{i}.k", f"{i}.v"], normed)
            (out,) = self._layers([f"{i}.o"], self._attention(i, q, k, v))
            x = x + self._end(f"{i}.attention_end_norm", out)
            if not d.parallel:
                normed = self._norm(f"{i}.mlp_norm", x)
            inside = self._layers([f"{i}.gate", f"{i}.up"] if d.gated else [f"{i}.up"], normed)
            hidden = self._function(inside[0]) * (inside[1] if d.gated else np.float32(1))
            (out,) = self._layers([f"{i}.down"], hidden)
            x = x + self._end(f"{i}.mlp_end_norm", out)
        return x

    def _matrix(self, name: str) -> np.ndarray:
        found = self.weights.floats(name)
        if found is None:
            raise ValueError(f"the model has no tensor for {name!r}")
        return found

    def _layers(self, names: list[str], x: np.ndarray) -> list[np.ndarray]:
        """Round layers of one input, and what they give of it."""
        h, found = x.T @ x, []
        if not np.isfinite(h).all():
            raise ValueError(f"the inputs of {names[0]!r} are not finite: check the weights")
        for name in names:
            w = self._matrix(name)
            if w.shape[1] != x.shape[1]:
                raise ValueError(f"the tensor for {name!r} has shape {w.shape}, and its input {x.shape[1]} numbers")
            made = rounded_for(w, h, *self.weights.form(name, w.shape[1]))
            self.weights.choose(name, made)
            bias = self.weights.vector(f"{name}.bias")
            found.append(x @ made.floats().T + (np.float32(0) if bias is None else bias))
        return found

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        weight, bias = self.weights.vector(name), self.weights.vector(f"{name}.bias")
        if weight is None or weight.shape != x.shape[1:]:
            raise ValueError(f"the model has no tensor for {name!r} that fits")
        centered = x - x.mean(-1, keepdims=True) if self.decoder.norm == "layer" else x
        size = np.sqrt(np.square(centered).mean(-1, keepdims=True) + np.float32(self.decoder.eps))
        return centered / size * weight + (np.float32(0) if bias is None else bias)

    def _end(self, name: str, x: np.ndarray) -> np.ndarray:
        return x if self.weights.vector(name) is None else self._norm(name, x)

    def _function(self, x: np.ndarray) -> np.ndarray:
        if self.decoder.function == "silu":
            return x / (1 + np.exp(-np.maximum(x, -80)))
        # tanh's form of gelu is near enough to the exact one for what inputs weigh.
        return 0.5 * x * (1 + np.tanh(_TANH_FACTOR * (x + np.float32(0.044715) * x**3)))

    def _attention(self, i: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        d, n = self.decoder, self.window
        apart = np.arange(n)[:, None] - np.arange(n)
        hidden = (apart < 0) | (apart >= (d.window(i) or n))
        found = []
        for begin in range(0, len(q), n):
            rows = slice(begin, begin + n)
            queries = self._turned(f"{i}.q_norm", q[rows].reshape(n, d.heads, d.dim))
            keys = self._turned(f"{i}.k_norm", k[rows].reshape(n, d.shared_heads, d.dim))
            values = v[rows].reshape(n, d.shared_heads, d.dim).transpose(1, 0, 2)
            groups = queries.reshape(n, d.shared_heads, -1, d.dim).transpose(1, 2, 0, 3)
            scores = groups @ keys.transpose(1, 2, 0)[:, None] * np.float32(d.scale or d.dim**-0.5)
            if d.attention_cap:
                scores = np.tanh(scores / d.attention_cap) * np.float32(d.attention_cap)
            scores[..., hidden] = -np.inf
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            found.append((shares @ values[:, None]).transpose(2, 0, 1, 3).reshape(n, -1))
        return np.concatenate(found)

    def _turned(self, norm: str, x: np.ndarray) -> np.ndarray:
        d, weight = self.decoder, self.weights.vector(norm)
        if weight is not None:
            x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + np.float32(d.eps)) * weight
        if not d.rotated:
            return x
        angles = np.arange(len(x))[:, None, None] * np.asarray(d.frequencies, np.float64)
        cosine = (np.cos(angles) * d.rotation_factor).astype(np.float32)
        sine = (np.sin(angles) * d.rotation_factor).astype(np.float32)
        first = np.arange(0, d.rotated, 2) if d.interleaved else np.arange(d.rotated // 2)
        second = first + (1 if d.interleaved else d.rotated // 2)
        y = x.copy()
        y[..., first] = x[..., first] * cosine - x[..., second] * sine
        y[..., second] = x[..., first] * sine + x[..., second] * cosine
        return y
