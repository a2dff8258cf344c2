"""Models like those people have, small where that changes nothing, with batch norms that have seen data."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def with_statistics(model: nn.Module, *inputs: Tensor) -> nn.Module:
    """`model`, its batch norms filled, in evaluation mode."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.5
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.3, 0.3)
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(*inputs)
    return model.eval()


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, widths: tuple[int, ...], blocks: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        before = (widths[0], *widths)
        for i, width in enumerate(widths):
            first = Block(before[i], width, 1 if i == 0 else 2)
            self.add_module(f"layer{i + 1}", nn.Sequential(first, *(Block(width, width, 1) for _ in range(blocks - 1))))
        self.layers = len(widths)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for i in range(self.layers):
            x = self.get_submodule(f"layer{i + 1}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Inverted(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        self.residual = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True), nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(inplace=True))
        shapes = ((16, 16, 1, 1), (16, 24, 2, 6), (24, 24, 1, 6), (24, 32, 2, 6), (32, 32, 1, 6))
        self.features = nn.Sequential(*(Inverted(*shape) for shape in shapes))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(self.stem(x)).mean([2, 3]))


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = _double(3, 16), _double(16, 32), _double(32, 64)
        self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.join2, self.join1 = _double(64, 32), _double(32, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        bottom = self.bottom(F.max_pool2d(second, 2))
        y = self.join2(torch.cat([second, self.up2(bottom)], dim=1))
        return self.head(self.join1(torch.cat([first, self.up1(y)], dim=1)))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.intermediate, self.dense = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        b, s, w = x.shape
        q, k, v = (
            f(x).view(b, s, self.heads, w // self.heads).transpose(1, 2) for f in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm1(x + self.output(attended.transpose(1, 2).reshape(b, s, w)))
        return self.norm2(x + self.dense(F.gelu(self.intermediate(x))))


class Bert(nn.Module):
    """Like BERT; `mask` of 1 for what is to be read, turned into what is added to the scores."""

    def __init__(self, vocabulary: int = 100, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, 4) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.norm(self.words(ids) + self.positions(torch.arange(ids.shape[1])))
        added = None if mask is None else (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, added)
        return torch.tanh(self.pooler(x))


class Recurrent(nn.Module):
    """A recurrent layer with a residual around it, and layers before and behind it."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.inputs = nn.Linear(20, 32)
        self.recurrent = kind(32, 32, num_layers=2, batch_first=True)
        self.outputs = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.inputs(x))
        y, _ = self.recurrent(x)
        return self.outputs(x + y)


class SpoiledRecurrent(nn.Module):
    """A recurrent network. In one layer two inputs that are equal have large weights that cancel: in 8 bits these
    leave no steps for the others."""

    def __init__(self, kind: type[nn.Module], spoiled: int | None, **options: bool) -> None:
        super().__init__()
        self.recurrent = kind(16, 24, num_layers=3, **options)
        if spoiled is None:
            return
        with torch.no_grad():
            for name, value in self.recurrent.named_parameters():
                if name.startswith(f"weight_ih_l{spoiled}"):
                    value[:, 0], value[:, 1] = 300 * value[:, 2], -300 * value[:, 2]
                elif f"_l{spoiled - 1}" in name:  # its first two units
                    value[1::24] = value[0::24]

    def forward(self, x):
        y, state = self.recurrent(x)
        return y, *(state if isinstance(state, tuple) else (state,))
