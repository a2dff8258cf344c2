"""Attention as people write it, and what is built around it, small."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class EinsumAttention(nn.Module):
    """Heads as an axis of the weights, all products by einsum."""

    def __init__(self, dim: int = 32, heads: int = 4) -> None:
        super().__init__()
        size = dim // heads
        self.q, self.k, self.v = (nn.Parameter(torch.randn(dim, heads, size) * dim**-0.5) for _ in range(3))
        self.o = nn.Parameter(torch.randn(heads, size, dim) * dim**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.einsum("btd,dhk->bhtk", x, w) for w in (self.q, self.k, self.v))
        scores = torch.einsum("bhqk,bhtk->bhqt", q, k) / q.shape[-1] ** 0.5
        return torch.einsum("bhtk,hkd->btd", torch.einsum("bhqt,bhtk->bhqk", scores.softmax(-1), v), self.o)


class BmmAttention(nn.Module):
    """Heads folded into the batch, torch.baddbmm for scores and bias, torch.bmm for values."""

    def __init__(self, dim: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.slopes: Tensor
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, heads + 1))

    def forward(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        q, k, v = self.qkv(x).split(d, dim=2)
        q, k, v = (
            part.contiguous().view(n, t, self.heads, -1).permute(0, 2, 1, 3).reshape(n * self.heads, t, -1)
            for part in (q, k, v)
        )
        far = torch.arange(t)[None, :] - torch.arange(t)[:, None]
        bias = (self.slopes[:, None, None] * far[None].float()).repeat(n, 1, 1)
        scores = torch.baddbmm(bias, q, k.transpose(1, 2), beta=1.0, alpha=1 / math.sqrt(q.size(-1)))
        scores = scores + torch.full((t, t), float("-inf")).triu(1)
        y = torch.bmm(F.softmax(scores, dim=-1), v).view(n, self.heads, t, -1)
        return self.out(y.permute(0, 2, 1, 3).flatten(2))


class LinearAttention(nn.Module):
    """Features elu + 1 instead of a softmax."""

    def __init__(self, dim: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.q, self.k, self.v = heads, *(nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = k.transpose(-2, -1) @ v
        norm = 1 / (q * k.sum(dim=-2, keepdim=True)).sum(-1, keepdim=True).clamp_min(1e-6)
        return self.out(((q @ state) * norm).transpose(1, 2).flatten(-2))


class CosineAttention(nn.Module):
    """Normalized queries and keys with a learned temperature, and dropout that evaluation leaves out."""

    def __init__(self, dim: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        self.temperature, self.drop = nn.Parameter(torch.full((heads, 1, 1), math.log(10.0))), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        n, t, d = x.size()
        qkv = self.qkv(x).reshape(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
        weights = self.drop((scores * self.temperature.clamp(max=math.log(100.0)).exp()).softmax(dim=-1))
        return self.drop(self.out((weights @ v).transpose(1, 2).reshape(n, t, d)))


class RelativeAttention(nn.Module):
    """Transformer-XL's: two biases, and positions shifted by a pad and a view."""

    def __init__(self, dim: int = 32, heads: int = 4, length: int = 12) -> None:
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.q, self.k, self.v, self.r = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.content, self.place = (nn.Parameter(torch.randn(heads, self.size) * 0.1) for _ in range(2))
        self.positions: Tensor
        self.register_buffer("positions", torch.randn(length, dim))

    @staticmethod
    def _shift(x: Tensor) -> Tensor:
        n, h, t, s = x.shape
        return F.pad(x, (1, 0)).view(n, h, s + 1, t)[:, :, 1:].view(n, h, t, s)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q, k, v = (layer(x).view(n, t, self.heads, self.size) for layer in (self.q, self.k, self.v))
        r = self.r(self.positions[:t]).view(t, self.heads, self.size)
        content = torch.einsum("bihd,bjhd->bhij", q + self.content, k)
        place = self._shift(torch.einsum("bihd,jhd->bhij", q + self.place, r))
        weights = ((content + place) * self.size**-0.5).softmax(-1)
        return torch.einsum("bhij,bjhd->bihd", weights, v).reshape(n, t, -1)


class WindowAttention(nn.Module):
    """Local windows by unfold, with a table of relative biases that is looked up."""

    def __init__(self, dim: int = 16, window: int = 4, heads: int = 2) -> None:
        super().__init__()
        self.window, self.heads, self.qkv, self.out = window, heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.1)
        grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        near = (grid[:, :, None] - grid[:, None]).permute(1, 2, 0) + window - 1
        self.index: Tensor
        self.register_buffer("index", near[..., 0] * (2 * window - 1) + near[..., 1])

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        s = self.window
        x = x.view(n, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, s * s, c)
        q, k, v = self.qkv(x).view(-1, s * s, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index.view(-1)].view(s * s, s * s, -1).permute(2, 0, 1).contiguous()
        scores = q * (c // self.heads) ** -0.5 @ k.transpose(-2, -1) + bias.unsqueeze(0)
        x = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, s * s, c))
        return x.view(n, h // s, w // s, s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)


class MultiQuery(nn.Module):
    """One key and value for all heads, broadcast; additive mask from a padding mask."""

    def __init__(self, dim: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.q, self.kv = heads, nn.Linear(dim, dim), nn.Linear(dim, 2 * dim // heads)
        self.out, self.embed = nn.Linear(dim, dim), nn.Embedding(99, dim)

    def forward(self, words: Tensor, kept: Tensor) -> Tensor:
        x = self.embed(words)
        n, t, d = x.shape
        q = self.q(x).view(n, t, self.heads, -1).transpose(1, 2)
        k, v = self.kv(x).chunk(2, dim=-1)
        mask = (1.0 - kept[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        y = F.scaled_dot_product_attention(q, k.unsqueeze(1), v.unsqueeze(1), attn_mask=mask)
        return self.out(y.transpose(1, 2).contiguous().view(n, t, d))


class CrossAttention(nn.Module):
    """Perceiver: learned queries read the input, nn.MultiheadAttention with a padding mask and weights given back."""

    def __init__(self, dim: int = 32, queries: int = 4) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(1, queries, dim))
        self.read, self.norm = nn.MultiheadAttention(dim, 4, batch_first=True), nn.LayerNorm(dim)
        self.mix = nn.MultiheadAttention(dim, 4, kdim=dim, vdim=dim)
        self.last = nn.Linear(dim, 5)

    def forward(self, x: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        q = self.queries.expand(x.size(0), -1, -1)
        found, weights = self.read(q, x, x, key_padding_mask=kept == 0)
        y = self.norm(found).transpose(0, 1)
        y = y + self.mix(y, y, y, need_weights=False)[0]
        return self.last(y.mean(0)), weights


class ViT(nn.Module):
    """From scratch: patches by reshapes, a class token, pre-norm blocks, learned positions."""

    def __init__(self, size: int = 32, patch: int = 8, dim: int = 32, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.patch, self.heads, count = patch, heads, (size // patch) ** 2
        self.embed = nn.Sequential(nn.LayerNorm(3 * patch**2), nn.Linear(3 * patch**2, dim), nn.LayerNorm(dim))
        self.token, self.places = nn.Parameter(torch.randn(1, 1, dim)), nn.Parameter(torch.randn(1, count + 1, dim))
        self.norms1, self.norms2 = (nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth)) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(dim, 3 * dim, bias=False) for _ in range(depth))
        self.out = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim))
            for _ in range(depth)
        )
        self.head = nn.Linear(dim, 10)

    def forward(self, image: Tensor) -> Tensor:
        n, c, h, w = image.shape
        p = self.patch
        x = image.reshape(n, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1).reshape(n, -1, p * p * c)
        x = torch.cat((self.token.repeat(n, 1, 1), self.embed(x)), dim=1) + self.places
        for norm1, qkv, out, norm2, mlp in zip(self.norms1, self.qkv, self.out, self.norms2, self.mlp):
            q, k, v = (
                part.view(n, x.shape[1], self.heads, -1).transpose(1, 2) for part in qkv(norm1(x)).chunk(3, dim=-1)
            )
            y = torch.matmul(torch.matmul(q, k.transpose(-1, -2)).mul(q.shape[-1] ** -0.5).softmax(dim=-1), v)
            x = out(y.transpose(1, 2).flatten(2)) + x
            x = mlp(norm2(x)) + x
        return self.head(x[:, 0])


class GatedMLP(nn.Module):
    """gMLP: a gate across tokens whose weight is a parameter of the sequence's length."""

    def __init__(self, dim: int = 16, length: int = 12) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(dim, 4 * dim), nn.Linear(2 * dim, dim), nn.LayerNorm(2 * dim)
        self.weight, self.bias = nn.Parameter(torch.randn(length, length) * 0.1), nn.Parameter(torch.ones(length))

    def forward(self, x: Tensor) -> Tensor:
        u, v = F.gelu(self.up(x)).chunk(2, -1)
        v = torch.matmul(self.weight, self.norm(v)) + self.bias[:, None]
        return x + self.down(u * v)


class TopKExperts(nn.Module):
    """The best experts' weights gathered for every token, applied with einsum."""

    def __init__(self, dim: int = 16, hidden: int = 24, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, dim, hidden) * dim**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, dim) * hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        weights, which = torch.topk(F.softmax(self.router(x), dim=-1), k=2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        h = F.silu(torch.einsum("nd,nkdh->nkh", x, self.up[which]))
        return torch.einsum("nkh,nkhd,nk->nd", h, self.down[which], weights)


class MaskedExperts(nn.Module):
    """A loop over experts, each added where the one-hot mask of the router has it."""

    def __init__(self, dim: int = 16, experts: int = 3) -> None:
        super().__init__()
        self.router = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, dim)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x)
        mask = F.one_hot(scores.argmax(-1), num_classes=len(self.experts)).to(x.dtype)
        result = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            result += expert(x) * mask[..., i].unsqueeze(-1)
        return result * scores.softmax(-1).max(-1, keepdim=True).values


class Decoder(nn.Module):
    """nn.TransformerDecoder, with a causal mask from torch's helper and memory that is padded."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(60, dim), nn.Linear(dim, 60)
        layer = nn.TransformerDecoderLayer(dim, 4, 64, activation="gelu", batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(dim))

    def forward(self, words: Tensor, memory: Tensor, kept: Tensor) -> Tensor:
        mask = torch.triu(torch.ones(words.size(1), words.size(1), dtype=torch.bool), diagonal=1)
        x = self.decoder(self.embed(words), memory, tgt_mask=mask, memory_key_padding_mask=kept == 0)
        return self.last(x)


class Retention(nn.Module):
    """RetNet's parallel form: powers of a decay by distance instead of a softmax, a group norm over heads."""

    def __init__(self, dim: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.g, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(5))
        self.norm = nn.GroupNorm(heads, dim)
        self.decay: Tensor
        self.register_buffer("decay", torch.log(1 - 2.0 ** (-5 - torch.arange(heads).float())))

    def forward(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        q, k, v = (layer(x).view(n, t, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        place = torch.arange(t).float()
        far = (place[:, None] - place[None, :]).clamp(min=0)
        mask = torch.exp(far * self.decay[:, None, None]) * torch.ones(t, t).tril()
        y = ((q @ k.transpose(-1, -2)) * (d // self.heads) ** -0.5 * mask) @ v
        y = self.norm(y.transpose(1, 2).reshape(n * t, d)).view(n, t, d)
        return self.o(F.silu(self.g(x)) * y)


class StateSpace(nn.Module):
    """S4D as a convolution with a kernel that parameters make, causal."""

    def __init__(self, channels: int = 8, state: int = 4, length: int = 16) -> None:
        super().__init__()
        self.decay = nn.Parameter(-torch.rand(channels, state) - 0.5)
        self.out = nn.Parameter(torch.randn(channels, state))
        self.skip, self.mix, self.length = (
            nn.Parameter(torch.ones(channels)),
            nn.Conv1d(channels, 2 * channels, 1),
            length,
        )

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(self.length)
        kernel = (self.out.unsqueeze(-1) * torch.exp(self.decay.unsqueeze(-1) * steps)).sum(1)
        y = F.conv1d(F.pad(x, (self.length - 1, 0)), kernel.flip(-1).unsqueeze(1), groups=x.size(1))
        return F.glu(self.mix(F.gelu(y + x * self.skip[:, None])), dim=1)
