"""Models whose inputs, outputs, weights or control flow are unusual, as people write them, small."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize


class DictOutput(nn.Module):
    """A dictionary with nested parts, as detectors and multi-task networks give."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.heads = nn.ModuleDict({"age": nn.Linear(32, 1), "kind": nn.Linear(32, 4)})

    def forward(self, image: Tensor) -> dict[str, Any]:
        x = self.body(image)
        made = {name: head(x) for name, head in self.heads.items()}
        return {"embedding": x, "heads": made, "best": made["kind"].argmax(-1), "extra": [x.mean(1), None]}


class Found(NamedTuple):
    """A result with names."""

    scores: Tensor
    boxes: Tensor


class NamedOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.scores, self.boxes = nn.Linear(12, 16), nn.Linear(16, 3), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Found:
        x = F.hardswish(self.body(x))
        return Found(scores=self.scores(x).softmax(-1), boxes=self.boxes(x).sigmoid())


class OrderedOutput(nn.Module):
    """torchvision's IntermediateLayerGetter by hand: an OrderedDict of features."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, d, 3, 2, 1), nn.ReLU()) for c, d in ((3, 8), (8, 12), (12, 16))
        )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        found: dict[str, Tensor] = collections.OrderedDict()
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i > 0:
                found[str(i)] = x
        return found


class OptionalInput(nn.Module):
    """An input that may be None, one with a default, and a flag."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.extra, self.last = nn.Linear(8, 16), nn.Linear(4, 16), nn.Linear(16, 2)

    def forward(self, x: Tensor, extra: Tensor | None = None, scale: float = 2.0, squash: bool = True) -> Tensor:
        y = self.first(x) * scale
        if extra is not None:
            y = y + self.extra(extra)
        y = self.last(F.relu(y))
        return torch.tanh(y) if squash else y


class NestedInput(nn.Module):
    """A dictionary of a list and a tuple of tensors as the one argument."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(6, 8), nn.Linear(4, 8), nn.Linear(16, 2)

    def forward(self, batch: dict[str, Any]) -> Tensor:
        left = torch.stack([self.left(part) for part in batch["left"]]).sum(0)
        a, b = batch["right"]
        return self.last(torch.cat([left, self.right(a - b)], dim=-1))


class TrainingBranches(nn.Module):
    """Auxiliary heads and noise in training only, and a Python loop over a list of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(10, 10) for _ in range(3)])
        self.auxiliary, self.last = nn.Linear(10, 4), nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Any:
        for i, layer in enumerate(self.layers):
            x = F.dropout(F.relu(layer(x)), 0.3, self.training)
            if self.training:
                x = x + torch.randn_like(x) * 0.1
            if i == 1:
                auxiliary = self.auxiliary(x)
        return (self.last(x), auxiliary) if self.training else self.last(x)


class Normalizer(nn.Module):
    """Buffers of the data's mean and spread, images as bytes, channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1), persistent=False)
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
        )

    def forward(self, image: Tensor) -> Tensor:
        x = (image.permute(0, 3, 1, 2).float() / 255.0).contiguous()
        return self.net((x - self.mean) / self.std)


class Tied(nn.Module):
    """An autoencoder whose decoder has the encoder's weights, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.randn(16, 32) * 0.2), nn.Parameter(torch.randn(8, 16) * 0.2)]
        )
        self.biases = nn.ParameterDict({"up": nn.Parameter(torch.zeros(16)), "out": nn.Parameter(torch.zeros(32))})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.weights
        code = torch.sigmoid(F.linear(torch.sigmoid(F.linear(x, a)), b))
        return code, F.linear(torch.relu(F.linear(code, b.t(), self.biases["up"])), a.t(), self.biases["out"])


class _Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).transpose(-1, -2)


class Parametrized(nn.Module):
    """A symmetric, an orthogonal and a weight-normalized weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        parametrize.register_parametrization(self.first, "weight", _Symmetric())
        self.second = parametrizations.orthogonal(nn.Linear(8, 8))
        self.third = parametrizations.weight_norm(nn.Linear(8, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.third(F.mish(self.second(F.softplus(self.first(x)))))


class HyperNetwork(nn.Module):
    """One network makes the weights of another, for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6 * 5 + 5))
        self.last = nn.Linear(5, 3)

    def forward(self, x: Tensor, task: Tensor) -> Tensor:
        made = self.make(task)
        weight, bias = made[:, :30].view(-1, 5, 6), made[:, 30:]
        return self.last(F.relu(torch.bmm(weight, x.unsqueeze(-1)).squeeze(-1) + bias))


class DynamicConv(nn.Module):
    """Kernels mixed for each sample and applied as one grouped convolution over the batch."""

    def __init__(self, kernels: int = 3) -> None:
        super().__init__()
        self.route = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, kernels), nn.Softmax(dim=1))
        self.weight = nn.Parameter(torch.randn(kernels, 8, 4, 3, 3) * 0.2)
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        weight = (self.route(x) @ self.weight.flatten(1)).view(n * 8, c, 3, 3)
        y = F.conv2d(x.reshape(1, n * c, h, w), weight, padding=1, groups=n).view(n, 8, h, w)
        return self.last(F.relu(y))


class LowRank(nn.Module):
    """LoRA beside frozen layers, merged by an addition in forward."""

    def __init__(self, rank: int = 2) -> None:
        super().__init__()
        self.base, self.last = nn.Linear(16, 16), nn.Linear(16, 4)
        self.down, self.up = nn.Parameter(torch.randn(rank, 16) * 0.3), nn.Parameter(torch.randn(16, rank) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.gelu(self.base(x) + (x @ self.down.t() @ self.up.t()) * 0.5))


class FiLM(nn.Module):
    """Features scaled and shifted by a condition, an in-place activation after an in-place addition."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.condition = nn.Conv2d(3, 8, 3, padding=1), nn.Embedding(10, 16)
        self.norm, self.last = nn.BatchNorm2d(8, affine=False), nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:
        scale, shift = self.condition(kind)[:, :, None, None].chunk(2, dim=1)
        y = self.norm(self.conv(x))
        y = y.mul_(1 + scale).add_(shift)
        return torch.sigmoid(self.last(F.relu_(y)))


class Siamese(nn.Module):
    """A shared encoder for three inputs, distances between them."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(10, 16), nn.PReLU(), nn.Linear(16, 8))
        self.distance, self.likeness = nn.PairwiseDistance(), nn.CosineSimilarity(dim=1)

    def forward(self, anchor: Tensor, near: Tensor, far: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b, c = map(self.encode, (anchor, near, far))
        return self.distance(a, b), self.likeness(a, c), torch.cdist(a, c)


class Codebook(nn.Module):
    """VQ-VAE: the nearest vector of a table, by squared distances and argmin."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 4, 1))
        self.table = nn.Embedding(16, 4)
        self.decode = nn.Sequential(nn.ConvTranspose2d(4, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        z = self.encode(image).permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, 4)
        far = flat.pow(2).sum(1, keepdim=True) + self.table.weight.pow(2).sum(1) - 2 * flat @ self.table.weight.t()
        which = torch.argmin(far, dim=1)
        found = self.table(which).view(z.shape)
        found = z + (found - z).detach()
        return self.decode(found.permute(0, 3, 1, 2).contiguous()), which.view(z.shape[:3])


class BayesHead(nn.Module):
    """A mixture density: weights, means and spreads, and their likelihood of a value."""

    def __init__(self, parts: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.weights, self.means, self.spreads = (nn.Linear(16, parts) for _ in range(3))

    def forward(self, x: Tensor, value: Tensor) -> Tensor:
        h = self.body(x)
        spread = F.softplus(self.spreads(h)) + 1e-3
        z = (value.unsqueeze(-1) - self.means(h)) / spread
        log = -0.5 * z.square() - spread.log() - 0.9189385
        return torch.logsumexp(F.log_softmax(self.weights(h), -1) + log, dim=-1)


class Flow(nn.Module):
    """RealNVP: couplings with masks, and the logarithm of the determinant."""

    def __init__(self, dim: int = 6) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 16), nn.LeakyReLU(), nn.Linear(16, 2 * dim)) for _ in range(2)
        )
        self.mask: Tensor
        self.register_buffer("mask", torch.arange(dim) % 2 == 0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        total = x.new_zeros(x.shape[0])
        for i, net in enumerate(self.nets):
            mask = (self.mask if i % 2 == 0 else ~self.mask).to(x.dtype)
            scale, shift = net(x * mask).chunk(2, dim=-1)
            scale = torch.tanh(scale) * (1 - mask)
            x = x * scale.exp() + shift * (1 - mask)
            total = total + scale.sum(-1)
        return x, total


class Actor(nn.Module):
    """A policy of reinforcement learning: observations clipped and scaled by running buffers, a squashed action."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.var: Tensor
        self.register_buffer("mean", torch.randn(11))
        self.register_buffer("var", torch.rand(11) + 0.5)
        self.trunk = nn.Sequential(nn.Linear(11, 32), nn.ELU(), nn.Linear(32, 32), nn.ELU())
        self.mu, self.log_std, self.value = nn.Linear(32, 3), nn.Parameter(torch.zeros(3)), nn.Linear(32, 1)

    def forward(self, seen: Tensor) -> dict[str, Tensor]:
        x = torch.clip((seen - self.mean) * torch.rsqrt(self.var + 1e-8), -5.0, 5.0)
        h = self.trunk(x)
        mu = self.mu(h)
        return {"mu": torch.tanh(mu), "std": self.log_std.exp().expand_as(mu), "value": self.value(h).squeeze(-1)}


class TabNet(nn.Module):
    """Gated linear units on columns, a mask of attention, categories embedded one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, d) for n, d in ((5, 2), (7, 3), (3, 2)))
        self.norm = nn.BatchNorm1d(11)
        self.mask, self.body, self.last = nn.Linear(11, 11), nn.Linear(11, 32), nn.Linear(16, 2)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        found = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        x = self.norm(torch.cat([numbers, *found], dim=1))
        x = x * F.softmax(self.mask(x), dim=-1)
        return self.last(F.glu(self.body(x)))


class ChebyshevGraph(nn.Module):
    """Graph convolution by powers of a normalized adjacency matrix, pooled over nodes with a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3 * 6, 16), nn.Linear(3 * 16, 8)
        self.last = nn.Linear(8, 2)

    @staticmethod
    def _spread(x: Tensor, near: Tensor) -> Tensor:
        once = near @ x
        return torch.cat([x, once, 2 * (near @ once) - x], dim=-1)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        near = (near > 0.5).float()
        near = torch.maximum(near, near.transpose(1, 2)) + torch.eye(near.size(1))
        root = near.sum(-1).pow(-0.5)
        near = root.unsqueeze(-1) * near * root.unsqueeze(-2)
        x = F.relu(self.first(self._spread(x, near)))
        x = F.relu(self.second(self._spread(x, near)))
        return self.last(x.max(dim=1)[0])


class MessagePassing(nn.Module):
    """Edges with features, the greatest message at every node by scatter_reduce, and a GRU cell for nodes."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.message, self.update, self.last = nn.Linear(2 * dim, dim), nn.GRUCell(dim, dim), nn.Linear(dim, 2)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges.unbind(0)
        messages = F.relu(self.message(torch.cat([x.index_select(0, source), x.index_select(0, target)], -1)))
        most = torch.zeros_like(x).scatter_reduce(0, target.unsqueeze(-1).expand_as(messages), messages, "amax")
        return self.last(self.update(most, x))


class GraphSage(nn.Module):
    """The mean of neighbours by scatter_reduce without the node itself, beside the node."""

    def __init__(self) -> None:
        super().__init__()
        self.neighbours, self.itself, self.out = nn.Linear(8, 16), nn.Linear(8, 16, bias=False), nn.Linear(16, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        places = edges[1].unsqueeze(1).expand(-1, x.size(1))
        means = torch.zeros_like(x).scatter_reduce(0, places, x[edges[0]], "mean", include_self=False)
        return self.out(F.normalize(F.relu(self.neighbours(means) + self.itself(x)), dim=-1))


class Recommender(nn.Module):
    """Users and items, twice: their product, and layers on both side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(30, 16), nn.Embedding(40, 16)
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.out = nn.Linear(16, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        (a, b), (c, d) = (table.chunk(2, -1) for table in (self.user(user), self.item(item)))
        deep = self.layers(torch.cat([b, d], -1))
        return torch.sigmoid(self.out(torch.cat([a * c, deep], -1))).squeeze(-1)


class WritesThroughViews(nn.Module):
    """Rows chosen by a table of places, written through a view of a larger tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y.view(-1, 4).t()[1:3].relu_()
        y.transpose(0, 1)[0] = 0.5
        return self.second(y)
