"""The models that are measured. Weights are random: speed does not depend on them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and what goes past them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.past: nn.Module = nn.Identity()
        if stride > 1:
            self.past = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.past(x))


def resnet18() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Inverted(nn.Module):
    """Wider, over neighbours channel by channel, narrower."""

    def __init__(self, inputs: int, outputs: int, stride: int, wider: int) -> None:
        super().__init__()
        inner = inputs * wider
        layers: list[nn.Module] = []
        if wider > 1:
            layers += [nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU()]
        layers += [nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


def mobilenet_v2() -> nn.Module:
    """With ReLU in the place of ReLU6, which torch.ao does not fuse with a convolution."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    inputs = 32
    for wider, outputs, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for i in range(count):
            layers.append(Inverted(inputs, outputs, stride if i == 0 else 1, wider))
            inputs = outputs
    layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


class EncoderLayer(nn.Module):
    """One layer of BERT and its like, 12 heads; MiniLM's is 384 wide."""

    def __init__(self, width: int = 384) -> None:
        super().__init__()
        self.query, self.key, self.value, self.attended = (nn.Linear(width, width) for _ in range(4))
        self.attended_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = width // 12

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (12, self.head)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        weights = torch.softmax(torch.matmul(query, key.transpose(-2, -1)) * self.head**-0.5, -1)
        seen = torch.matmul(weights, value).transpose(1, 2).flatten(2)
        x = self.attended_norm(x + self.attended(seen))
        return self.norm(x + self.narrow(F.gelu(self.wide(x))))


def encoder() -> nn.Module:
    return nn.Sequential(*(EncoderLayer() for _ in range(6)))


def bert_base() -> nn.Module:
    return nn.Sequential(*(EncoderLayer(768) for _ in range(12)))


def mobilenet_v2_relu6() -> nn.Module:
    """As published, with ReLU6."""
    model = mobilenet_v2()
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.ReLU):
                setattr(module, name, nn.ReLU6())
    return model


class VoiceEncoder(nn.Module):
    """The size of Resemblyzer: three LSTM layers of 256 over 40 mel bands, a linear layer, a unit vector."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(40, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    def forward(self, mels: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(mels)
        return F.normalize(torch.relu(self.linear(hidden[-1])), dim=1)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


class Crepe(nn.Module):
    """The full size of CREPE: six convolutions over 1024 samples, each with a batch norm and a pool."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1024, 128, 128, 128, 256, 512)
        layers: list[nn.Module] = []
        inputs = 1
        for i, outputs in enumerate(widths):
            kernel, stride, padding = ((512, 1), (4, 1), (254, 0)) if i == 0 else ((64, 1), (1, 1), (32, 0))
            layers += [nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU(), nn.BatchNorm2d(outputs)]
            layers.append(nn.MaxPool2d((2, 1)))
            inputs = outputs
        self.layers = nn.Sequential(*layers)
        self.linear = nn.Linear(2048, 360)

    def forward(self, samples: Tensor) -> Tensor:
        x = self.layers(samples[:, None, :, None])
        return torch.sigmoid(self.linear(x.permute(0, 2, 1, 3).flatten(1)))


class VoiceEncoderGru(nn.Module):
    """The same with GRU layers."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(40, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    def forward(self, mels: Tensor) -> Tensor:
        _, hidden = self.gru(mels)
        return F.normalize(torch.relu(self.linear(hidden[-1])), dim=1)


class Bags(nn.Module):
    """A recommender's sparse side: bags of 20 from a table of 100,000 rows, and a small network."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(100_000, 128, mode="sum")
        self.layers = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, numbers: Tensor) -> Tensor:
        return self.layers(self.table(numbers))


class Decoder(nn.Module):
    """GPT-2 small, one token: 12 layers of 768, the keys and values of what came before, 50257 words."""

    WIDTH, HEADS, LAYERS, WORDS = 768, 12, 12, 50257

    def __init__(self) -> None:
        super().__init__()
        width = self.WIDTH
        self.words, self.places = nn.Embedding(self.WORDS, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList(DecoderLayer(width, self.HEADS) for _ in range(self.LAYERS))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, self.WORDS, bias=False)

    def forward(self, word: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """word: (batch, 1); keys and values: (layers, batch, heads, before, 64)."""
        x = self.words(word) + self.places.weight[keys.shape[3]]
        for i, layer in enumerate(self.layers):
            x = layer(x, keys[i], values[i])
        return self.head(self.norm(x))


class DecoderLayer(nn.Module):
    """One layer of GPT-2 on one token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.attended = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, 64)).transpose(1, 2)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        y = self.first(x)
        keys = torch.cat([keys, self.split(self.key(y))], 2)
        values = torch.cat([values, self.split(self.value(y))], 2)
        weights = torch.softmax(torch.matmul(self.split(self.query(y)), keys.transpose(-2, -1)) * 0.125, -1)
        x = x + self.attended(torch.matmul(weights, values).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.second(x)), approximate="tanh"))
