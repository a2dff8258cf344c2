"""Whole models from graph mode, run from torch, against torch.ao's FX: as it is, and scripted and frozen."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zeropoint
from bench.timing import CALL, Row

ASKED = 1.2


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
    """One layer of MiniLM: 384 wide, 12 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.attended = (nn.Linear(384, 384) for _ in range(4))
        self.attended_norm, self.norm = nn.LayerNorm(384), nn.LayerNorm(384)
        self.wide, self.narrow = nn.Linear(384, 1536), nn.Linear(1536, 384)

    def heads(self, x: Tensor) -> Tensor:
        return x.reshape(1, 128, 12, 32).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        weights = torch.softmax(torch.matmul(query, key.transpose(-2, -1)) * 32**-0.5, -1)
        seen = torch.matmul(weights, value).transpose(1, 2).reshape(1, 128, 384)
        x = self.attended_norm(x + self.attended(seen))
        return self.norm(x + self.narrow(F.gelu(self.wide(x))))


def encoder() -> nn.Module:
    return nn.Sequential(*(EncoderLayer() for _ in range(6)))


def rows() -> Iterator[Row]:
    for name, make, shape in (
        ("ResNet-18 224x224", resnet18, (1, 3, 224, 224)),
        ("MobileNetV2 224x224", mobilenet_v2, (1, 3, 224, 224)),
        ("MiniLM encoder, 128 tokens", encoder, (1, 128, 384)),
    ):
        torch.manual_seed(0)
        model, x = make().eval(), torch.randn(shape)
        for mode in ("static", "dynamic") if "MiniLM" in name else ("static",):
            yield _row(f"{name}, {mode}", model, x, mode)


def _row(name: str, model: nn.Module, x: Tensor, mode: str) -> Row:
    ours = zeropoint.to_int8(model, (x,), [x] if mode == "static" else None, mode=mode, progress=False)
    peers = {f"torch.ao {how}": without_gradients(m, x) for how, m in _peers(model, x, mode)}
    targets = dict.fromkeys(peers, ASKED)
    return Row(
        name, without_gradients(ours, x), peers | {"float32": without_gradients(model, x)}, targets | {"float32": 0}
    )


def _peers(model: nn.Module, x: Tensor, mode: str) -> Iterator[tuple[str, Any]]:
    from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig, get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    dynamic = QConfigMapping().set_global(default_dynamic_qconfig)
    before = torch.backends.quantized.engine
    for engine in ("x86", "onednn"):
        torch.backends.quantized.engine = engine
        mapping = get_default_qconfig_mapping(engine) if mode == "static" else dynamic
        prepared = prepare_fx(copy.deepcopy(model), mapping, (x,))
        prepared(x)
        converted = convert_fx(prepared)
        yield f"{engine} eager", converted
        with torch.no_grad():
            yield f"{engine} jit", torch.jit.freeze(torch.jit.trace(converted, x))
    torch.backends.quantized.engine = before


def without_gradients(model: Any, x: Tensor) -> CALL:
    def call() -> object:
        with torch.no_grad():
            return model(x)

    return call
