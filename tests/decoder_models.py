"""Decoders with a cache of a fixed size, as people write them: buffers that a call writes to and the next one reads."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, DIM, HEADS = 40, 32, 4


class Attention(nn.Module):
    """Self-attention over all that was seen; `groups` heads of keys and values."""

    keys: Tensor
    values: Tensor

    def __init__(self, length: int, groups: int, rotary: bool, slices: bool) -> None:
        super().__init__()
        self.size, self.groups, self.rotary, self.slices = DIM // HEADS, groups, rotary, slices
        self.q, self.out = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.kv = nn.Linear(DIM, 2 * groups * self.size)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, groups, length, self.size))

    def _turned(self, x: Tensor, at: Tensor) -> Tensor:
        if not self.rotary:
            return x
        angles = at[:, None] * 10000.0 ** (-torch.arange(0, self.size, 2) / self.size)
        a, b = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        n, t, _ = x.shape
        q = self._turned(self.q(x).view(n, t, HEADS, self.size).transpose(1, 2), at)
        k, v = (p.view(n, t, self.groups, self.size).transpose(1, 2) for p in self.kv(x).chunk(2, -1))
        k = self._turned(k, at)
        if self.slices:
            self.keys[:, :, at], self.values[:, :, at] = k, v
        else:
            self.keys.index_copy_(2, at, k)
            self.values.index_copy_(2, at, v)
        shared = HEADS // self.groups
        k, v = (p.repeat_interleave(shared, 1) for p in (self.keys, self.values))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
        seen = torch.arange(self.keys.shape[2]) <= at[:, None]
        y = scores.masked_fill(~seen, -math.inf).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(n, t, DIM))


class Block(nn.Module):
    def __init__(self, length: int, groups: int, rotary: bool, slices: bool) -> None:
        super().__init__()
        norm = nn.RMSNorm if rotary else nn.LayerNorm
        self.first, self.second = norm(DIM), norm(DIM)
        self.attention = Attention(length, groups, rotary, slices)
        self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        x = x + self.attention(self.first(x), at)
        return x + self.down(F.gelu(self.up(self.second(x))))


class Decoder(nn.Module):
    """Words in, scores of the next word out; it counts for itself how many it has seen."""

    seen: Tensor

    def __init__(self, length: int = 24, groups: int = HEADS, rotary: bool = False, slices: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, DIM), nn.Embedding(length, DIM)
        self.blocks = nn.ModuleList(Block(length, groups, rotary, slices) for _ in range(2))
        self.last = nn.Linear(DIM, WORDS, bias=False)
        self.rotary = rotary
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, words: Tensor) -> Tensor:
        at = self.seen + torch.arange(words.shape[1])
        self.seen += words.shape[1]
        x = self.words(words)
        if not self.rotary:
            x = x + self.places(at)
        for block in self.blocks:
            x = block(x, at)
        return self.last(x)


KINDS = {
    "gpt": {},
    "llama": {"rotary": True, "groups": 2},
    "slices": {"slices": True},
}


def decoder(kind: str) -> Decoder:
    """A decoder with fixed weights."""
    torch.manual_seed(5)
    return Decoder(**KINDS[kind]).eval()


def generated(model: Any, prompt: Tensor, new: int) -> tuple[list[int], list[Tensor]]:
    """Tokens, the likeliest each time, and all scores: the prompt at once, then one token after the other."""
    tokens, scores, words = [], [], prompt
    with torch.no_grad():
        for _ in range(new):
            scores.append(model(words))
            words = scores[-1][:, -1:].argmax(-1)
            tokens.append(int(words))
    return tokens, scores
