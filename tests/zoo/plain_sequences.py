"""Architectures for sound, text, tables and graphs as people write them, small."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, weight_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class CRNN(nn.Module):
    """Text in images: convolutions down to a height of one, then an LSTM over the width."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((4, 1)), nn.Conv2d(16, 16, (2, 1)), nn.ReLU(),
            nn.MaxPool2d((3, 1)),
        )  # fmt: skip
        self.rnn, self.last = nn.LSTM(16, 16, bidirectional=True), nn.Linear(32, 20)

    def forward(self, x: Tensor) -> Tensor:
        x = self.cnn(x).squeeze(2).permute(2, 0, 1)
        return F.log_softmax(self.last(self.rnn(x)[0]), dim=2)


class TCN(nn.Module):
    """Causal convolutions with weight norm, whose end is cut off."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv1d(4 if i == 0 else dim, dim, 3, padding=2 * 2**i, dilation=2**i)) for i in range(3)
        )
        self.skip, self.last = nn.Conv1d(4, dim, 1), nn.Linear(dim, 5)

    def forward(self, x: Tensor) -> Tensor:
        residual = self.skip(x)
        for i, layer in enumerate(self.layers):
            x = F.relu(layer(x)[:, :, : -2 * 2**i].contiguous())
        return self.last((x + residual)[:, :, -1])


class ConvTasNet(nn.Module):
    """Separation of sources by masks in a learned space."""

    def __init__(self, sources: int = 2, dim: int = 16) -> None:
        super().__init__()
        self.sources, self.dim = sources, dim
        self.encode, self.decode = nn.Conv1d(1, dim, 8, 4, bias=False), nn.ConvTranspose1d(dim, 1, 8, 4, bias=False)
        self.norm, self.bottle = nn.GroupNorm(1, dim, eps=1e-8), nn.Conv1d(dim, dim, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(dim, 32, 1), nn.PReLU(), nn.GroupNorm(1, 32),
                nn.Conv1d(32, 32, 3, padding=2**i, dilation=2**i, groups=32), nn.PReLU(), nn.Conv1d(32, dim, 1),
            )
            for i in range(2)
        )  # fmt: skip
        self.masks = nn.Conv1d(dim, sources * dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        w = F.relu(self.encode(x))
        y = self.bottle(self.norm(w))
        for block in self.blocks:
            y = y + block(y)
        masks = torch.sigmoid(self.masks(y)).view(x.size(0), self.sources, self.dim, -1)
        parts = (w.unsqueeze(1) * masks).view(x.size(0) * self.sources, self.dim, -1)
        return self.decode(parts).view(x.size(0), self.sources, -1)


class WaveNet(nn.Module):
    """Gated convolutions with skips."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, dim, 1)
        self.gates = nn.ModuleList(
            parametrizations.weight_norm(nn.Conv1d(dim, 2 * dim, 2, dilation=2**i)) for i in range(3)
        )
        self.out, self.last = nn.ModuleList(nn.Conv1d(dim, 2 * dim, 1) for _ in range(3)), nn.Conv1d(dim, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.first(x), None
        for i, (gate, out) in enumerate(zip(self.gates, self.out)):
            a, b = gate(F.pad(x, (2**i, 0))).chunk(2, 1)
            kept, skip = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x = x + kept
            total = skip if total is None else total + skip
        return self.last(F.relu(total))


class KeywordSpotter(nn.Module):
    """DS-CNN on a log-mel spectrogram, which is computed inside."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, (10, 4), 2), nn.BatchNorm2d(16), nn.ReLU6(), nn.Conv2d(16, 16, 3, padding=1, groups=16),
            nn.BatchNorm2d(16), nn.ReLU6(), nn.Conv2d(16, 16, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Dropout(0.2), nn.Linear(16, 12),
        )  # fmt: skip

    def forward(self, power: Tensor) -> Tensor:
        return self.layers(torch.log(power.abs().clamp(min=1e-6)).unsqueeze(1))


class Tagger(nn.Module):
    """A bidirectional LSTM over embedded words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(99, 16, padding_idx=0), nn.Linear(32, 7)
        self.rnn = nn.LSTM(16, 16, 2, batch_first=True, bidirectional=True, dropout=0.1)

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.rnn(self.embed(words))[0])


class PackedTagger(Tagger):
    """The same with packed sequences."""

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)
        return self.last(pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0])


class Recurrent(nn.Module):
    """nn.RNN with tanh or relu, nn.GRU or nn.LSTM, and a head on the last state."""

    def __init__(self, kind: str, **options: object) -> None:
        super().__init__()
        self.rnn, self.last = getattr(nn, kind)(8, 16, batch_first=True, **options), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.rnn(x)[0][:, -1])


class Seq2Seq(nn.Module):
    """GRU encoder and decoder with Bahdanau attention, a fixed number of steps by GRUCell."""

    def __init__(self, steps: int = 3) -> None:
        super().__init__()
        self.steps, self.embed, self.encoder = steps, nn.Embedding(50, 16), nn.GRU(16, 16, batch_first=True)
        self.cell, self.score, self.last = nn.GRUCell(32, 16), nn.Linear(32, 1), nn.Linear(16, 50)

    def forward(self, words: Tensor, given: Tensor) -> Tensor:
        memory, hidden = self.encoder(self.embed(words))
        h, results = hidden[0], []
        for step in range(self.steps):
            repeated = h.unsqueeze(1).expand(-1, memory.size(1), -1)
            weights = self.score(torch.cat([memory, repeated], -1)).softmax(1)
            context = torch.bmm(weights.transpose(1, 2), memory).squeeze(1)
            h = self.cell(torch.cat([self.embed(given[:, step]), context], -1), h)
            results.append(self.last(h))
        return torch.stack(results, 1)


class TextCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(99, 16)
        self.convs = nn.ModuleList(nn.Conv2d(1, 8, (k, 16)) for k in (2, 3, 4))
        self.last = nn.Linear(24, 4)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words).unsqueeze(1)
        parts = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        return self.last(torch.cat([F.max_pool1d(p, p.size(2)).squeeze(2) for p in parts], 1))


class BagOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.last = nn.EmbeddingBag(99, 16, mode="mean"), nn.Linear(16, 4)

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.bag(words))


class TransformerClassifier(nn.Module):
    """nn.TransformerEncoder over words with positions as sines."""

    def __init__(self, norm_first: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(99, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm_first)
        self.encoder, self.last = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 4)
        place, step = torch.arange(64).unsqueeze(1), torch.exp(torch.arange(0, 32, 2) * (-math.log(10000.0) / 32))
        table = torch.zeros(64, 32)
        table[:, 0::2], table[:, 1::2] = torch.sin(place * step), torch.cos(place * step)
        self.register_buffer("positions", table)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words) * math.sqrt(32) + self.positions[: words.size(1)]
        return self.last(self.encoder(x, src_key_padding_mask=words == 0).mean(1))


class Translator(nn.Module):
    """nn.Transformer, encoder and decoder with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(60, 32), nn.Linear(32, 60)
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = torch.triu(torch.full((target.size(1), target.size(1)), float("-inf")), diagonal=1)
        return self.last(self.transformer(self.embed(source), self.embed(target), tgt_mask=mask))


class NanoGPT(nn.Module):
    """A decoder with fused query, key and value, and tied embeddings."""

    def __init__(self, dim: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.words, self.places = heads, nn.Embedding(65, dim), nn.Embedding(32, dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.norms, self.last = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3)), nn.Linear(dim, 65, bias=False)
        self.last.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        n, t = words.shape
        x = self.words(words) + self.places(torch.arange(t))
        q, k, v = (p.view(n, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, -1))
        x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return self.last(self.norms[2](x))


class RMSNorm(nn.Module):
    """As Llama's reference code spells it."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class NanoLlama(nn.Module):
    """A decoder with RMSNorm, rotary positions in complex pairs written out, SwiGLU, grouped queries."""

    def __init__(self, dim: int = 32, heads: int = 4, groups: int = 2, norm: type[nn.Module] = RMSNorm) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, dim // heads
        self.words, self.norms = nn.Embedding(65, dim), nn.ModuleList(norm(dim) for _ in range(3))
        self.q, self.k = nn.Linear(dim, dim, bias=False), nn.Linear(dim, groups * self.size, bias=False)
        self.v, self.o = nn.Linear(dim, groups * self.size, bias=False), nn.Linear(dim, dim, bias=False)
        self.gate, self.up = nn.Linear(dim, 64, bias=False), nn.Linear(dim, 64, bias=False)
        self.down, self.last = nn.Linear(64, dim, bias=False), nn.Linear(dim, 65, bias=False)
        angles = torch.outer(torch.arange(32).float(), 10000.0 ** (-torch.arange(0, self.size, 2).float() / self.size))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def _turn(self, x: Tensor) -> Tensor:
        a, b = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
        cos, sin = (t[: x.shape[1]].view(1, x.shape[1], 1, -1) for t in (self.cos, self.sin))
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(3)

    def forward(self, words: Tensor) -> Tensor:
        n, t = words.shape
        x = self.words(words)
        y = self.norms[0](x)
        q = self._turn(self.q(y).view(n, t, self.heads, self.size)).transpose(1, 2)
        k = self._turn(self.k(y).view(n, t, self.groups, self.size)).transpose(1, 2)
        v = self.v(y).view(n, t, self.groups, self.size).transpose(1, 2)
        k, v = (p.repeat_interleave(self.heads // self.groups, dim=1) for p in (k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, -1))
        y = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.last(self.norms[2](x))


class MixtureOfExperts(nn.Module):
    """Every expert on every row, weighted by the best two."""

    def __init__(self, dim: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.router, self.last = nn.Linear(dim, experts), nn.Linear(dim, 5)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).softmax(-1)
        best, which = scores.topk(2, -1)
        weights = torch.zeros_like(scores).scatter(-1, which, best / best.sum(-1, keepdim=True))
        results = torch.stack([expert(x) for expert in self.experts], -2)
        return self.last((results * weights.unsqueeze(-1)).sum(-2))


class DLRM(nn.Module):
    """Dense and sparse features, and the products of all pairs of them."""

    def __init__(self, tables: int = 3, dim: int = 8) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, dim), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(100, dim, mode="sum") for _ in range(tables))
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(dim + pairs, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
        self.register_buffer("lower", torch.tril_indices(tables + 1, tables + 1, offset=-1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        found = [table(sparse[:, i : i + 1]) for i, table in enumerate(self.tables)]
        every = torch.stack([x, *found], 1)
        products = torch.bmm(every, every.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.lower[0], self.lower[1]]], 1))


class DeepFM(nn.Module):
    def __init__(self, fields: int = 4, dim: int = 8) -> None:
        super().__init__()
        self.first, self.embed = nn.Embedding(200, 1), nn.Embedding(200, dim)
        self.deep = nn.Sequential(nn.Linear(fields * dim, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
        self.register_buffer("starts", torch.arange(fields) * 50)

    def forward(self, fields: Tensor) -> Tensor:
        places = fields + self.starts
        x = self.embed(places)
        pairs = 0.5 * (x.sum(1).pow(2) - x.pow(2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.first(places).sum(1) + pairs + self.deep(x.flatten(1)))


class GCN(nn.Module):
    """Messages along edges, added up at nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    @staticmethod
    def _spread(x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        degree = torch.ones(x.size(0)).index_add(0, target, torch.ones(target.size(0)))
        return torch.zeros_like(x).index_add(0, target, x[source] / degree[source].sqrt().unsqueeze(1))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = F.relu(self._spread(self.first(x), edges))
        return self._spread(self.second(x), edges).log_softmax(-1)


class GAT(nn.Module):
    """Attention between neighbours, with a dense adjacency matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.left, self.right, self.last = (
            nn.Linear(8, 16),
            nn.Linear(16, 1),
            nn.Linear(16, 1),
            nn.Linear(16, 4),
        )

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        h = self.w(x)
        scores = F.leaky_relu(self.left(h) + self.right(h).transpose(-1, -2), 0.2)
        scores = torch.where(near > 0, scores, torch.full_like(scores, -9e15))
        return self.last(F.elu(scores.softmax(-1) @ h))


class NBeats(nn.Module):
    """Backcast and forecast with doubly residual stacks."""

    def __init__(self, length: int = 20, horizon: int = 5) -> None:
        super().__init__()
        self.length = length
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(length, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, length + horizon)
            )
            for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        forecast = 0
        for block in self.blocks:
            found = block(x)
            x, forecast = x - found[:, : self.length], forecast + found[:, self.length :]
        return torch.as_tensor(forecast)


class Conformer(nn.Module):
    """One block: half feed-forward, attention, gated depthwise convolution."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.ff, self.ff2 = (
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 64), nn.SiLU(), nn.Linear(64, dim)) for _ in range(2)
        )
        self.norm, self.attention = nn.LayerNorm(dim), nn.MultiheadAttention(dim, 4, batch_first=True)
        self.conv = nn.Sequential(
            nn.Conv1d(dim, 2 * dim, 1), nn.GLU(dim=1), nn.Conv1d(dim, dim, 7, padding=3, groups=dim),
            nn.BatchNorm1d(dim), nn.SiLU(), nn.Conv1d(dim, dim, 1),
        )  # fmt: skip
        self.last = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.ff(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y)[0]
        x = x + self.conv(x.transpose(1, 2)).transpose(1, 2)
        return self.last(x + 0.5 * self.ff2(x))


class Autocast(nn.Module):
    """A model whose author switches autocast off around what needs full precision."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        with torch.autocast("cpu", enabled=False):
            x = self.second(x.float())
        return x.softmax(-1)
