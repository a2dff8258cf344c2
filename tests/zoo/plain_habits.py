"""Models with habits of their own, as people write them, small: dtypes, states, conditions, lazy and tied modules."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@dataclasses.dataclass
class Answer:
    """A result with names and places that may be empty."""

    logits: Tensor
    hidden: Tensor | None = None
    loss: Tensor | None = None


torch.export.register_dataclass(Answer)


class DataclassOutput(nn.Module):
    """A dataclass of tensors and None, with inputs that are keywords only."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(10, 16), nn.Linear(16, 3)

    def forward(self, *, features: Tensor, keep: Tensor | None = None, hidden: bool = True) -> Answer:
        h = F.mish(self.body(features))
        if keep is not None:
            h = h * keep[:, None]
        return Answer(self.head(h), h if hidden else None)


class BoolAndInt(nn.Module):
    """Flags, counts and bytes as inputs; bits are taken out by shifts, and one number is given back."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 8), nn.Linear(8 + 8 + 1, 4)

    def forward(self, flags: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        bits = (counts[:, None] >> torch.arange(8)) & 1
        x = torch.cat((self.embed(counts % 16), bits.float(), (flags ^ (counts > 7)).float()[:, None]), -1)
        y = self.head(torch.where(flags[:, None], x, -x))
        return y, y.norm()


class HalfWeights(nn.Module):
    """Weights in bfloat16 or float16, inputs and outputs in float32."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to(dtype)
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.to(self.dtype)).float()


class DoubleInside(nn.Module):
    """A loss of precision that somebody was afraid of: sums and norms in float64 between layers in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 24), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.first(x)).double()
        h = h / h.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-12)
        return self.last(h.float()).softmax(-1, dtype=torch.float64).to(x.dtype)


class InPlace(nn.Module):
    """Everything in place: activations, sums, masks, parts of a tensor that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.act, self.head = nn.Hardtanh(-2, 2, inplace=True), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.a(x)).mul_(0.5)
        y += self.b(y)
        y[:, :2] = y[:, :2].relu_()
        y[:, -1].zero_()
        y = y.mean((2, 3)).clamp_(-1, 1)
        y.masked_fill_(y.abs() < 1e-3, 0.0)
        return self.head(y).add_(1)


class RunningCounts(nn.Module):
    """A buffer that changes at each call, and a moving average that is used in the result."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.head = nn.Linear(6, 8), nn.Linear(8, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        h = F.elu(self.net(x))
        self.calls += 1
        self.mean.mul_(0.9).add_(0.1 * h.mean(0))
        return self.head(h - self.mean)


class Conditions(nn.Module):
    """torch.cond, and both sides of a torch.where."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large, self.head = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cond(x.sum() > 0, lambda x: self.large(x).relu(), lambda x: self.small(x).sigmoid(), (x,))
        h = torch.where(h > 0.5, 0.25 + h / 2, h / (1 + h.abs()))
        return self.head(h)


class Vmapped(nn.Module):
    """torch.vmap over the members of an ensemble, whose weights are one tensor."""

    def __init__(self, members: int = 3) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(members, 8, 4) / 3), nn.Parameter(torch.zeros(members, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.vmap(lambda w, b: torch.tanh(F.linear(x, w, b)))(self.weight, self.bias)
        y = self.head(h)
        return y.mean(0), y.var(0)


class LazyEverything(nn.Module):
    """Lazily initialised modules, which the first call gave their shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(), nn.PReLU(8), nn.Flatten(), nn.LazyLinear(6), nn.Hardsigmoid()
        )
        self.net(torch.zeros(2, 3, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class TiedLanguageModel(nn.Module):
    """The embedding's table is the last layer's weight; positions are learned; logits are capped."""

    def __init__(self, tokens: int = 40, width: int = 16) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(tokens, width), nn.Parameter(torch.randn(1, 20, width) * 0.02)
        self.layer = nn.TransformerDecoderLayer(width, 2, 32, batch_first=True, dropout=0.0)
        self.memory, self.head = nn.Parameter(torch.randn(1, 4, width)), nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, text: Tensor) -> Tensor:
        x = self.embed(text) + self.places[:, : text.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1])
        x = self.layer(x, self.memory.expand(len(text), -1, -1), tgt_mask=mask, tgt_is_causal=True)
        return 30 * torch.tanh(self.head(x) / 30)


class WholeTransformer(nn.Module):
    """nn.Transformer with masks for padding, for a source and a target that are already vectors."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.transformer = nn.Transformer(width, 2, 1, 1, 32, 0.0, batch_first=True)
        self.head = nn.Linear(width, 5)

    def forward(self, source: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        empty = mask == 0
        causal = torch.full((target.shape[1], target.shape[1]), float("-inf")).triu(1)
        y = self.transformer(source, target, tgt_mask=causal, src_key_padding_mask=empty, memory_key_padding_mask=empty)
        return self.head(y)


class AttentionVariants(nn.Module):
    """nn.MultiheadAttention with other widths of keys and values, an added zero, a mask of floats, and its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.cross = nn.MultiheadAttention(16, 2, kdim=12, vdim=10, batch_first=True, add_zero_attn=True)
        self.self_ = nn.MultiheadAttention(16, 4, bias=False, add_bias_kv=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        bias = -(torch.arange(x.shape[1])[:, None] - torch.arange(keys.shape[1])).abs().float()
        y, weights = self.cross(x, keys, values, attn_mask=bias, average_attn_weights=False)
        z, _ = self.self_(y.transpose(0, 1), y.transpose(0, 1), y.transpose(0, 1), need_weights=False)
        return self.head(self.norm(x + z.transpose(0, 1))), weights


class PackedClassifier(nn.Module):
    """A bidirectional GRU of packed sequences in any order, and a mean over what is not padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(30, 8, padding_idx=0), nn.Linear(16, 3)
        self.gru = nn.GRU(8, 8, bidirectional=True, batch_first=True)

    def forward(self, text: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(text), lengths, batch_first=True, enforce_sorted=False)
        seen, last = self.gru(packed)
        padded, _ = pad_packed_sequence(seen, batch_first=True, total_length=text.shape[1])
        mean = padded.sum(1) / lengths[:, None]
        return self.head(mean + last.transpose(0, 1).flatten(1))


class SpectralCritic(nn.Module):
    """Spectral and orthogonal norms of weights, and a minibatch deviation as one more channel."""

    def __init__(self) -> None:
        super().__init__()
        norm = parametrizations.spectral_norm
        self.body = nn.Sequential(norm(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2), norm(nn.Conv2d(8, 8, 4, 2, 1)))
        self.mix, self.head = parametrizations.orthogonal(nn.Linear(9, 9)), norm(nn.Linear(9, 1))

    def forward(self, image: Tensor) -> Tensor:
        x = self.body(image)
        spread = x.std(0, unbiased=False).mean().expand(len(x), 1, *x.shape[2:])
        x = torch.cat((x, spread), 1).amax((2, 3))
        return self.head(F.celu(self.mix(x))).squeeze(-1)


class Rearranged(nn.Module):
    """Patches and heads as einops makes them: unflatten, movedim, tensordot, repeat_interleave, pixel_unshuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.core = nn.Linear(48, 24), nn.Parameter(torch.randn(4, 6, 10) / 5)
        self.head = nn.Linear(10, 3)

    def forward(self, image: Tensor) -> Tensor:
        x = F.pixel_unshuffle(image, 4).movedim(1, -1)
        x = self.mix(x).unflatten(-1, (4, 6)).flatten(1, 2)
        y = torch.tensordot(x, self.core, dims=([2, 3], [0, 1]))
        y = y.repeat_interleave(2, dim=1)[:, ::3].roll(1, 1).flip(-1)
        return self.head(y.squeeze(0) if y.dim() > 3 else y).swapaxes(1, 2)


class ManyHeads(nn.Module):
    """Weights that a loop over a ModuleDict and a plain list picks by name; unused parameters; a scalar as result."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({name: nn.Linear(8, size) for name, size in (("a", 2), ("b", 3), ("unused", 4))})
        self.body, self.names = nn.Linear(6, 8), ["a", "b"]
        self.never = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> dict[str, Any]:
        h = F.softsign(self.body(x))
        made = {name: self.heads[name](h) for name in self.names}
        made["total"] = sum(value.sum() for value in made.values())
        return {**made, "classes": len(self.names), "name": "many", "nothing": None}


class OneImage(nn.Module):
    """Layers that are given one image, without an axis for a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 2, padding="same")
        self.up, self.pool, self.head = nn.ConvTranspose2d(8, 4, 2, 2), nn.AdaptiveAvgPool2d(2), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = F.max_pool2d(F.relu(self.second(F.relu(self.first(x)))), 2)
        return self.head(self.pool(self.up(h)).flatten())


class TwoTowers(nn.Module):
    """A recommender of two towers: bags of rows with padding, and features of users."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.users = nn.ModuleList(nn.Embedding(50, width) for _ in range(3))
        self.items = nn.EmbeddingBag(60, width, mode="mean", padding_idx=0)
        self.tower = nn.Sequential(nn.Linear(3 * width + 5, 16), nn.PReLU(), nn.Linear(16, width))
        self.temperature = nn.Parameter(torch.tensor(0.07))

    def forward(self, users: Tensor, items: Tensor, dense: Tensor) -> tuple[Tensor, Tensor]:
        rows = [table(users[:, place]) for place, table in enumerate(self.users)]
        a = F.normalize(self.tower(torch.cat([*rows, dense], -1)))
        b = F.normalize(self.items(items))
        return a @ b.T / self.temperature, (a * b).sum(-1)


class Coupled(nn.Module):
    """A normalizing flow whose likelihood torch.distributions says."""

    def __init__(self, size: int = 6) -> None:
        super().__init__()
        self.register_buffer("masks", torch.eye(2).repeat(1, size // 2))
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(size, 16), nn.ELU(), nn.Linear(16, 2 * size)) for _ in "ab")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log = x.new_zeros(len(x))
        for mask, net in zip(self.masks, self.nets):
            scale, shift = net(x * mask).chunk(2, -1)
            scale = scale.tanh() * (1 - mask)
            x, log = x * scale.exp() + shift * (1 - mask), log + scale.sum(-1)
        normal = torch.distributions.Normal(torch.zeros_like(x), torch.ones_like(x))
        return torch.distributions.Independent(normal, 1).log_prob(x) + log, x
