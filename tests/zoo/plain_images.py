"""Architectures for images as people write them, small."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations


def conv_bn(a: int, b: int, kernel: int = 3, stride: int = 1, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(b), act())


class UNet(nn.Module):
    """With F.pad of sizes that are computed, as the widespread implementation has it."""

    def __init__(self, transposed: bool = True) -> None:
        super().__init__()
        self.first, self.second, self.bottom = self._double(3, 8), self._double(8, 16), self._double(16, 32)
        if transposed:
            self.up1: nn.Module = nn.ConvTranspose2d(32, 16, 2, stride=2)
            self.up2: nn.Module = nn.ConvTranspose2d(16, 8, 2, stride=2)
        else:
            self.up1 = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), conv_bn(32, 16))
            self.up2 = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), conv_bn(16, 8))
        self.third, self.fourth, self.last = self._double(32, 16), self._double(16, 8), nn.Conv2d(8, 2, 1)

    @staticmethod
    def _double(a: int, b: int) -> nn.Sequential:
        return nn.Sequential(conv_bn(a, b), conv_bn(b, b))

    @staticmethod
    def _join(up: Tensor, skip: Tensor) -> Tensor:
        dy, dx = skip.size(2) - up.size(2), skip.size(3) - up.size(3)
        return torch.cat([skip, F.pad(up, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = self.second(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        d = self.third(self._join(self.up1(c), b))
        return self.last(self.fourth(self._join(self.up2(d), a)))


class YoloHead(nn.Module):
    """A CSP backbone and a head that decodes boxes on a grid."""

    def __init__(self, classes: int = 4, anchors: int = 2) -> None:
        super().__init__()
        self.classes, self.anchors = classes, anchors
        self.stem = nn.Sequential(conv_bn(3, 8, 3, 2, nn.SiLU), conv_bn(8, 16, 3, 2, nn.SiLU))
        self.left, self.right = conv_bn(16, 8, 1, 1, nn.SiLU), conv_bn(16, 8, 1, 1, nn.SiLU)
        self.join, self.head = conv_bn(16, 16, 1, 1, nn.SiLU), nn.Conv2d(16, anchors * (5 + classes), 1)
        self.register_buffer("sizes", torch.tensor([[1.0, 2.0], [2.0, 1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        left = self.left(x)
        pooled = [F.max_pool2d(left, k, 1, k // 2) for k in (3, 5)]
        x = self.join(torch.cat([sum(pooled, left), self.right(x)], 1))  # type: ignore[list-item]
        x = self.head(x)
        n, _, h, w = x.shape
        x = x.view(n, self.anchors, 5 + self.classes, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((gx, gy), -1).view(1, 1, h, w, 2).float()
        xy = (x[..., :2] * 2 - 0.5 + grid) * 4
        wh = (x[..., 2:4] * 2) ** 2 * self.sizes.view(1, self.anchors, 1, 1, 2)
        return torch.cat((xy, wh, x[..., 4:]), -1).view(n, -1, 5 + self.classes)


class BotNet(nn.Module):
    """Attention over places with learned relative positions, by einsum."""

    def __init__(self, size: int = 8, dim: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.stem = heads, conv_bn(3, dim, 3, 2)
        self.qkv = nn.Conv2d(dim, 3 * dim, 1, bias=False)
        self.rel_h = nn.Parameter(torch.randn(1, heads, dim // heads, 1, size) * 0.1)
        self.rel_w = nn.Parameter(torch.randn(1, heads, dim // heads, size, 1) * 0.1)
        self.last = nn.Linear(dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        n, c, w, h = x.shape
        q, k, v = (t.view(n, self.heads, c // self.heads, -1) for t in self.qkv(x).chunk(3, 1))
        position = (self.rel_h + self.rel_w).view(1, self.heads, c // self.heads, -1).permute(0, 1, 3, 2)
        scores = torch.matmul(q.permute(0, 1, 3, 2), k) + torch.matmul(position, q)
        x = torch.matmul(v, scores.softmax(-1).permute(0, 1, 3, 2)).view(n, c, w, h)
        return self.last(F.relu(x).mean((2, 3)))


class VAE(nn.Module):
    """With the sample given, so that it is deterministic."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(32, 8), nn.Linear(32, 8)
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.encode(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        return self.decode(mean + noise * torch.exp(0.5 * log_variance)), mean, log_variance


def dcgan_generator() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip


def discriminator() -> nn.Module:
    normed = parametrizations.spectral_norm
    return nn.Sequential(
        normed(nn.Conv2d(3, 16, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1), nn.InstanceNorm2d(32),
        nn.LeakyReLU(0.2), nn.Conv2d(32, 1, 4),
    )  # fmt: skip


class EDSR(nn.Module):
    """Super-resolution with pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)) for _ in range(2)
        )
        self.tail = nn.Sequential(nn.Conv2d(16, 64, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(16, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        skip = x = self.head(x)
        for block in self.blocks:
            x = x + block(x) * 0.1
        return self.tail(x + skip)


class SpatialTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.theta = nn.Linear(32, 6)
        nn.init.constant_(self.theta.bias, 0.1)
        self.rest = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(32, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        theta = self.theta(self.look(x)).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return self.rest(F.grid_sample(x, grid, align_corners=False)).log_softmax(-1)


class Hourglass(nn.Module):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.stem, self.last = conv_bn(3, 8), nn.Conv2d(8, 4, 1)
        self.down = nn.ModuleList(conv_bn(8, 8) for _ in range(depth))
        self.up = nn.ModuleList(conv_bn(8, 8) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.stem(x), []
        for down in self.down:
            skips.append(x)
            x = down(F.max_pool2d(x, 2))
        for up, skip in zip(self.up, reversed(skips)):
            x = skip + F.interpolate(up(x), scale_factor=2, mode="nearest")
        return self.last(x)


class FPN(nn.Module):
    """A pyramid that is resized to the sizes of the levels."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList([conv_bn(3, 8, 3, 2), conv_bn(8, 16, 3, 2), conv_bn(16, 32, 3, 2)])
        self.lateral = nn.ModuleList(nn.Conv2d(c, 8, 1) for c in (8, 16, 32))
        self.smooth = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        for level in self.levels:
            x = level(x)
            found.append(x)
        merged = [lateral(f) for lateral, f in zip(self.lateral, found)]
        for i in (1, 0):
            size = merged[i].shape[-2:]
            merged[i] = merged[i] + F.interpolate(merged[i + 1], size=size, mode="bilinear", align_corners=False)
        return [smooth(m) for smooth, m in zip(self.smooth, merged)]


class AttentionGate(nn.Module):
    """CBAM: weights for channels, then for places."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = conv_bn(3, 16, 3, 2), nn.Linear(16, 10)
        self.shared = nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 16))
        self.spatial = nn.Conv2d(2, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        weights = self.shared(x.mean((2, 3))) + self.shared(x.amax((2, 3)))
        x = x * weights.sigmoid()[:, :, None, None]
        places = torch.cat([x.mean(1, keepdim=True), x.max(1, keepdim=True)[0]], 1)
        x = x * self.spatial(places).sigmoid()
        return self.last(x.mean((2, 3)))


class PatchMixer(nn.Module):
    """MLP-Mixer."""

    def __init__(self, tokens: int = 16, dim: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.across = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.within = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim))
        self.last = nn.Linear(dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        x = x + self.within(self.norms[1](x))
        return self.last(self.norms[2](x).mean(1))


class PointNet(nn.Module):
    """Points in three dimensions, with a learned 3x3 transformation."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.turn = nn.Linear(16, 9)
        self.layers = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1))
        self.last = nn.Linear(64, 10)
        self.register_buffer("same", torch.eye(3).flatten())

    def forward(self, x: Tensor) -> Tensor:
        turn = (self.turn(self.look(x).max(2)[0]) + self.same).view(-1, 3, 3)
        x = torch.bmm(x.transpose(2, 1), turn).transpose(2, 1)
        return F.log_softmax(self.last(self.layers(x).max(2)[0]), dim=-1)


class NeRF(nn.Module):
    """Sines and cosines of places, then an MLP with a skip."""

    def __init__(self, octaves: int = 4) -> None:
        super().__init__()
        self.octaves, width = octaves, 3 + 6 * octaves
        self.first, self.second = (
            nn.Sequential(nn.Linear(width, 32), nn.ReLU()),
            nn.Sequential(nn.Linear(32 + width, 32), nn.ReLU()),
        )
        self.density, self.color = nn.Linear(32, 1), nn.Sequential(nn.Linear(32, 3), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        parts = [x]
        for octave in range(self.octaves):
            parts += [torch.sin(x * 2.0**octave), torch.cos(x * 2.0**octave)]
        encoded = torch.cat(parts, -1)
        h = self.second(torch.cat([self.first(encoded), encoded], -1))
        return torch.cat([self.color(h), F.softplus(self.density(h))], -1)


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            conv_bn(1, 8, 3, 2), conv_bn(8, 16, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 8)
        )

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return F.pairwise_distance(F.normalize(self.tower(a)), F.normalize(self.tower(b)))


class DQN(nn.Module):
    """Dueling heads."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 16, 4, 2), nn.ReLU(), nn.Flatten())
        self.value, self.advantage = nn.Linear(256, 1), nn.Linear(256, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x / 255.0)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(1, keepdim=True)


class StandardizedConv(nn.Conv2d):
    """A convolution whose weight is standardized in each call."""

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        mean, var = w.mean((1, 2, 3), keepdim=True), w.var((1, 2, 3), keepdim=True, unbiased=False)
        return F.conv2d(x, (w - mean) / torch.sqrt(var + 1e-5), self.bias, self.stride, self.padding)


def standardized() -> nn.Module:
    return nn.Sequential(
        StandardizedConv(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), StandardizedConv(16, 16, 3, 2),
        nn.GroupNorm(4, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


class DiffusionUNet(nn.Module):
    """Timesteps as sines, FiLM, GroupNorm, SiLU, attention in the middle: as in diffusion models."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.dim, self.time = dim, nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, 2 * dim))
        self.first, self.norm1, self.norm2 = nn.Conv2d(3, dim, 3, padding=1), nn.GroupNorm(4, dim), nn.GroupNorm(4, dim)
        self.down, self.up = nn.Conv2d(dim, dim, 3, 2, 1), nn.Conv2d(dim, dim, 3, padding=1)
        self.attention, self.last = nn.MultiheadAttention(dim, 2, batch_first=True), nn.Conv2d(2 * dim, 3, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        half = self.dim // 2
        frequency = torch.exp(-torch.arange(half, dtype=torch.float32) * (4.0 / half))
        angle = t.float()[:, None] * frequency[None]
        scale, shift = self.time(torch.cat([angle.sin(), angle.cos()], -1))[:, :, None, None].chunk(2, 1)
        skip = self.first(x)
        h = F.silu(self.norm1(skip) * (1 + scale) + shift)
        h = self.down(h)
        n, c, height, width = h.shape
        flat = self.norm2(h).flatten(2).transpose(1, 2)
        h = h + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(n, c, height, width)
        h = self.up(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        return self.last(torch.cat([h, skip], 1))


def one_hot_steps(steps: int, batch: int = 2) -> Any:
    """Timesteps, as an input."""
    return lambda g: (torch.randint(0, steps, (batch,), generator=g),)
