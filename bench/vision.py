"""Networks over images with more than convolutions and ReLU. Weights are random: speed does not depend on them."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution, a batch norm, SiLU."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.SiLU())


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.wide(F.silu(self.narrow(F.adaptive_avg_pool2d(x, 1))))
        return x * torch.sigmoid(weights)


class MobileBlock(nn.Module):
    """EfficientNet's block: wider, channel by channel, weighed, narrower."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, wider: int) -> None:
        super().__init__()
        inner = inputs * wider
        layers: list[nn.Module] = [conv(inputs, inner)] if wider > 1 else []
        layers += [conv(inner, inner, kernel, stride, inner), SqueezeExcite(inner, max(1, inputs // 4))]
        self.layers = nn.Sequential(*layers, nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


def efficientnet_b0() -> nn.Module:
    layers: list[nn.Module] = [conv(3, 32, 3, 2)]
    inputs = 32
    for wider, outputs, count, stride, kernel in (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):  # fmt: skip
        for i in range(count):
            layers.append(MobileBlock(inputs, outputs, kernel, stride if i == 0 else 1, wider))
            inputs = outputs
    return nn.Sequential(*layers, conv(320, 1280), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


class Split(nn.Module):
    """A part of the channels goes through blocks, and every result is kept (the C2f of YOLO)."""

    def __init__(self, inputs: int, outputs: int, count: int, adds: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.last = conv(inputs, outputs), conv((2 + count) * half, outputs)
        self.blocks = nn.ModuleList(nn.Sequential(conv(half, half, 3), conv(half, half, 3)) for _ in range(count))
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.adds else y)
        return self.last(torch.cat(parts, 1))


class Pyramid(nn.Module):
    """Maximums over wider and wider windows, side by side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = conv(channels, channels // 2), conv(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class Detector(nn.Module):
    """The shape of a nano YOLO: a backbone, a pyramid down and up again, heads at three sizes, 80 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), Split(32, 32, 1, True))
        self.third = nn.Sequential(conv(32, 64, 3, 2), Split(64, 64, 2, True))
        self.fourth = nn.Sequential(conv(64, 128, 3, 2), Split(128, 128, 2, True))
        self.fifth = nn.Sequential(conv(128, 256, 3, 2), Split(256, 256, 1, True), Pyramid(256))
        self.up_fourth, self.up_third = Split(384, 128, 1, False), Split(192, 64, 1, False)
        self.down_third, self.down_fourth = conv(64, 64, 3, 2), conv(128, 128, 3, 2)
        self.out_fourth, self.out_fifth = Split(192, 128, 1, False), Split(384, 256, 1, False)
        self.heads = nn.ModuleList(
            nn.Sequential(conv(c, 64, 3), conv(64, 64, 3), nn.Conv2d(64, 144, 1)) for c in (64, 128, 256)
        )

    def forward(self, x: Tensor) -> Tensor:
        third = self.third(self.stem(x))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        middle = self.up_fourth(torch.cat([F.interpolate(fifth, scale_factor=2.0), fourth], 1))
        low = self.up_third(torch.cat([F.interpolate(middle, scale_factor=2.0), third], 1))
        middle = self.out_fourth(torch.cat([self.down_third(low), middle], 1))
        high = self.out_fifth(torch.cat([self.down_fourth(middle), fifth], 1))
        return torch.cat([head(y).flatten(2) for head, y in zip(self.heads, (low, middle, high))], 2)


class UNet(nn.Module):
    """Down four times and up again, 32 to 512 channels, one mask."""

    WIDTHS = (32, 64, 128, 256, 512)

    def __init__(self) -> None:
        super().__init__()
        w = self.WIDTHS
        self.down = nn.ModuleList(self.twice(a, b) for a, b in zip((3, *w), w))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in itertools.pairwise(w))
        self.after = nn.ModuleList(self.twice(2 * a, a) for a in w[:-1])
        self.mask = nn.Conv2d(w[0], 1, 1)

    @staticmethod
    def twice(inputs: int, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for i in reversed(range(len(self.up))):
            x = self.after[i](torch.cat([kept[i], self.up[i](x)], 1))
        return self.mask(x)
