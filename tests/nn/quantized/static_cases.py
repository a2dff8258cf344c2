"""Every static module, once: how it is made, and what it is called with."""

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


def weight(*shape: int, axis: int | None = 0) -> zeropoint.QTensor:
    """Per channel along `axis`, or per tensor."""
    values = numbers(*shape, seed=5)
    if axis is None:
        return zeropoint.quantize_per_tensor(values, 0.03, 0, zeropoint.qint8)
    count = shape[axis]
    scales = torch.linspace(0.02, 0.04, count, dtype=torch.float64)
    return zeropoint.quantize_per_channel(values, scales, torch.zeros(count, dtype=torch.int64), axis, zeropoint.qint8)


def with_weight(module: Any, axis: int | None, scale: float = 0.2, zero_point: int = 110) -> Any:
    """A layer with a weight quantized along `axis`, and a bias if it has one."""
    bias = module.bias()
    module.set_weight_bias(weight(*module.weight().shape, axis=axis), None if bias is None else numbers(*bias.shape))
    module.scale, module.zero_point = scale, zero_point
    return module


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


def _layer(cls: Any, *arguments: Any, inputs: Callable[[], tuple[Any, ...]], axis: int | None = 0, **more: Any) -> Case:
    return Case(lambda: with_weight(cls(*arguments, **more), axis), lambda: cls(*arguments, **more), inputs)


def _two_images() -> tuple[Any, ...]:
    return activation(2, 4, 6, 8), activation(2, 6, 4, 6)


LAYERS: dict[str, Case] = {
    "Linear": _layer(nnq.Linear, 16, 6, inputs=_line),
    "Linear, per tensor, without bias": _layer(nnq.Linear, 16, 6, False, inputs=_line, axis=None),
    "LinearReLU": _layer(nniq.LinearReLU, 16, 6, inputs=_line),
    "LinearLeakyReLU": _layer(nniq.LinearLeakyReLU, 16, 6, 0.05, inputs=_line),
    "LinearTanh": _layer(nniq.LinearTanh, 16, 6, inputs=_line),
    "Conv1d": _layer(nnq.Conv1d, 4, 6, 3, inputs=_line, padding=1),
    "Conv1d, reflected": _layer(nnq.Conv1d, 4, 6, 3, inputs=_line, padding=1, padding_mode="reflect"),
    "Conv2d": _layer(nnq.Conv2d, 4, 6, 3, inputs=_image),
    "Conv2d, grouped, reflected": _layer(
        nnq.Conv2d, 4, 6, (3, 2), inputs=_image, axis=None, groups=2, padding=1, stride=2, padding_mode="reflect"
    ),
    "Conv3d": _layer(nnq.Conv3d, 4, 6, 2, inputs=_volume, dilation=2, bias=False),
    "ConvReLU1d": _layer(nniq.ConvReLU1d, 4, 6, 3, inputs=_line),
    "ConvReLU2d": _layer(nniq.ConvReLU2d, 4, 6, 3, inputs=_image),
    "ConvReLU3d": _layer(nniq.ConvReLU3d, 4, 6, 2, inputs=_volume),
    "ConvAdd2d": _layer(nniq.ConvAdd2d, 4, 6, 3, inputs=_two_images),
    "ConvAddReLU2d": _layer(nniq.ConvAddReLU2d, 4, 6, 3, inputs=_two_images),
    "ConvTranspose1d": _layer(nnq.ConvTranspose1d, 4, 6, 3, inputs=_line, axis=1),
    "ConvTranspose2d": _layer(nnq.ConvTranspose2d, 4, 6, 3, inputs=_image, axis=None, stride=2, output_padding=1),
    "ConvTranspose3d": _layer(nnq.ConvTranspose3d, 4, 6, 2, inputs=_volume, axis=1, bias=False),
}

CASES: dict[str, Case] = LAYERS | {
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
