"""Every static module without a weight matrix, once: how it is made, and what it is called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.nn import quantized as nnq
from zeropoint.nn.intrinsic import quantized as nniq
from zeropoint.nn.quantized import functional_modules


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def activation(*shape: int, dtype: Any = zeropoint.quint8) -> zeropoint.QTensor:
    zero_point = 120 if dtype is zeropoint.quint8 else -8
    return zeropoint.quantize_per_tensor(numbers(*shape) * 2, 0.05, zero_point, dtype)


def table(rows: int, columns: int, dtype: Any, seed: int = 0) -> zeropoint.QTensor:
    weight = numbers(rows, columns, seed=seed)
    low, high = weight.amin(1), weight.amax(1)
    scales = (high - low) / (dtype.qmax - dtype.qmin)
    return zeropoint.quantize_per_channel(weight, scales, -low / scales, 0, dtype)


def batch_norm(cls: Any, features: int) -> Any:
    made = cls(features)
    made.running_mean[:], made.running_var[:] = numbers(features), numbers(features, seed=1) ** 2 + 0.5
    made.weight[:], made.bias[:] = numbers(features, seed=2), numbers(features, seed=3)
    made.scale, made.zero_point = 0.07, 90
    return made


def with_slopes(count: int) -> nnq.PReLU:
    made = nnq.PReLU(0.04, 130, count)
    made.set_weight(zeropoint.quantize_per_tensor(numbers(count), 0.02, 128, zeropoint.quint8))
    return made


class Arithmetic(nn.Module):
    """All that a QFunctional has."""

    def __init__(self) -> None:
        super().__init__()
        self.f = functional_modules.QFunctional(0.1, 110)

    def forward(self, x: Tensor) -> Tensor:
        y = self.f.add_relu(self.f.mul(self.f.add(x, x), x), x)
        y = self.f.mul_scalar(self.f.add_scalar(y, 0.5), -2.0)
        return self.f.cat([self.f.matmul(y, x), y], dim=1)


@dataclass(frozen=True)
class Case:
    """`fresh` makes a module of the same shape whose numbers are others, for a state_dict to be loaded into."""

    make: Callable[[], Any]
    fresh: Callable[[], Any]
    inputs: Callable[[], tuple[Any, ...]]


def _image() -> tuple[Any, ...]:
    return (activation(2, 4, 6, 8),)


def _volume() -> tuple[Any, ...]:
    return (activation(2, 4, 3, 5, 8),)


def _line() -> tuple[Any, ...]:
    return (activation(2, 4, 16),)


def _indices() -> tuple[Any, ...]:
    return (torch.tensor([3, 0, 9, 9, 1, 4]),)


def _bags() -> tuple[Any, ...]:
    return (torch.tensor([3, 0, 9, 9, 1, 4]), torch.tensor([0, 2, 5]))


def _affine(features: int) -> tuple[Tensor, Tensor, float, int]:
    return numbers(features), numbers(features, seed=1), 0.05, 120


def _zeros(features: int) -> tuple[Tensor, Tensor, float, int]:
    return torch.zeros(features), torch.zeros(features), 1.0, 0


def _embedding(cls: Any, columns: int, dtype: Any, **options: Any) -> Case:
    return Case(
        lambda: cls(10, columns, _weight=table(10, columns, dtype), dtype=dtype, **options),
        lambda: cls(10, columns, dtype=dtype, **options),
        _bags if cls is nnq.EmbeddingBag else _indices,
    )


CASES: dict[str, Case] = {
    "BatchNorm2d": Case(lambda: batch_norm(nnq.BatchNorm2d, 4), lambda: nnq.BatchNorm2d(4), _image),
    "BatchNorm3d": Case(lambda: batch_norm(nnq.BatchNorm3d, 4), lambda: nnq.BatchNorm3d(4), _volume),
    "BNReLU2d": Case(lambda: batch_norm(nniq.BNReLU2d, 4), lambda: nniq.BNReLU2d(4), _image),
    "BNReLU3d": Case(lambda: batch_norm(nniq.BNReLU3d, 4), lambda: nniq.BNReLU3d(4), _volume),
    "LayerNorm": Case(lambda: nnq.LayerNorm([8], *_affine(8)), lambda: nnq.LayerNorm([8], *_zeros(8)), _image),
    "LayerNorm, not affine": Case(
        lambda: nnq.LayerNorm([6, 8], None, None, 0.05, 120, elementwise_affine=False),
        lambda: nnq.LayerNorm([6, 8], None, None, 1.0, 0, elementwise_affine=False),
        _image,
    ),
    "GroupNorm": Case(lambda: nnq.GroupNorm(2, 4, *_affine(4)), lambda: nnq.GroupNorm(2, 4, *_zeros(4)), _image),
    "InstanceNorm1d": Case(
        lambda: nnq.InstanceNorm1d(4, None, None, 0.05, 120), lambda: nnq.InstanceNorm1d(4, None, None, 1.0, 0), _line
    ),
    "InstanceNorm2d": Case(
        lambda: nnq.InstanceNorm2d(4, *_affine(4)), lambda: nnq.InstanceNorm2d(4, *_zeros(4)), _image
    ),
    "InstanceNorm3d": Case(
        lambda: nnq.InstanceNorm3d(4, *_affine(4)), lambda: nnq.InstanceNorm3d(4, *_zeros(4)), _volume
    ),
    "ReLU6": Case(nnq.ReLU6, nnq.ReLU6, _image),
    "ELU": Case(lambda: nnq.ELU(0.05, 30, 1.5), lambda: nnq.ELU(1.0, 0, 1.5), _image),
    "LeakyReLU": Case(lambda: nnq.LeakyReLU(0.05, 60, 0.2), lambda: nnq.LeakyReLU(1.0, 0, 0.2), _image),
    "Hardswish": Case(lambda: nnq.Hardswish(0.04, 12), lambda: nnq.Hardswish(1.0, 0), _image),
    "Sigmoid": Case(lambda: nnq.Sigmoid(1 / 200, 3), lambda: nnq.Sigmoid(1.0, 0), _image),
    "Softmax": Case(lambda: nnq.Softmax(-1, 1 / 256, 0), lambda: nnq.Softmax(-1), _image),
    "Softmax, dim unsaid": Case(lambda: nnq.Softmax(None, 1 / 256, 0), nnq.Softmax, _image),
    "PReLU": Case(lambda: with_slopes(4), lambda: nnq.PReLU(1.0, 0, 4), _image),
    "PReLU, one slope": Case(lambda: with_slopes(1), lambda: nnq.PReLU(1.0, 0), _line),
    "Dropout": Case(lambda: nnq.Dropout(0.5), lambda: nnq.Dropout(0.5), _image),
    "MaxPool2d": Case(lambda: nnq.MaxPool2d(2), lambda: nnq.MaxPool2d(2), _image),
    "QFunctional": Case(Arithmetic, Arithmetic, lambda: (activation(2, 8, 8),)),
    "Embedding": _embedding(nnq.Embedding, 8, zeropoint.quint8),
    "Embedding, 4 bits": _embedding(nnq.Embedding, 8, zeropoint.quint4x2),
    "Embedding, 4 bits, 7 columns": _embedding(nnq.Embedding, 7, zeropoint.quint4x2),
    "Embedding, 2 bits": _embedding(nnq.Embedding, 8, zeropoint.quint2x4),
    "EmbeddingBag": _embedding(nnq.EmbeddingBag, 8, zeropoint.quint8),
    "EmbeddingBag, mean": _embedding(nnq.EmbeddingBag, 8, zeropoint.quint8, mode="mean"),
    "EmbeddingBag, 4 bits": _embedding(nnq.EmbeddingBag, 8, zeropoint.quint4x2),
    "EmbeddingBag, 4 bits, 7 columns": _embedding(nnq.EmbeddingBag, 7, zeropoint.quint4x2),
    "EmbeddingBag, 2 bits": _embedding(nnq.EmbeddingBag, 8, zeropoint.quint2x4),
}
