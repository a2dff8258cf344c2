"""The spellings of every row of the tables of operators, and models that call them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

X1 = (2, 4, 12)
X2 = (2, 4, 8, 6)
X3 = (2, 4, 4, 4, 4)


class Calls(nn.Module):
    """A 1x1 convolution or linear layer, which makes integers, and then each of what is tried, on a copy."""

    def __init__(self, tried: Any, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.tried = tried
        self.modules_tried = nn.ModuleList(t for t in tried if isinstance(t, nn.Module))
        dims = len(shape) - 2
        self.first = nn.Linear(shape[-1], shape[-1]) if dims < 1 else getattr(nn, f"Conv{dims}d")(shape[1], shape[1], 1)
        self.table = nn.Parameter(torch.randn(12, shape[-1]))
        self.slopes = nn.Parameter(torch.rand(4) / 2)
        self.bias = nn.Parameter(torch.randn(12))
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("var", torch.rand(4) + 0.5)

    def forward(self, x: Tensor) -> Any:
        y = self.first(x)
        return [self.call(tried, y.clone()) for tried in self.tried]

    def call(self, tried: Any, y: Tensor) -> Any:
        return tried(y) if isinstance(tried, nn.Module) else tried(self, y)


Case = tuple[tuple[int, ...], Any]


def _in(shape: tuple[int, ...], *tried: Any) -> list[Case]:
    return [(shape, t) for t in tried]


NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


def _norm(kind: Any, *args: Any) -> nn.Module:
    """A norm with numbers that change something."""
    module = kind(*args)
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if value.is_floating_point():
            spread = torch.linspace(-1, 1, value.numel()).reshape(value.shape)
            value.data = 1 + spread / 2 if "var" in name or "weight" in name else spread
    return module


def _layers() -> dict[str, list[Case]]:
    made: dict[str, list[Case]] = {}
    for d, shape in enumerate((X1, X2, X3), 1):
        conv, transposed = getattr(nn, f"Conv{d}d"), getattr(nn, f"ConvTranspose{d}d")
        function, transposed_function = getattr(F, f"conv{d}d"), getattr(F, f"conv_transpose{d}d")
        weight = torch.linspace(-1, 1, 16 * 3**d).sin().reshape(4, 4, *[3] * d)
        made[f"conv{d}d"] = [
            *_in(shape, conv(4, 6, 3, stride=2, padding=1), conv(4, 4, 3, padding=1, groups=2, bias=False)),
            *_in(shape, conv(4, 6, 3, padding="same"), nn.Sequential(conv(4, 6, 1, padding="valid"), nn.ReLU())),
            *_in(shape, WithWeight(function, weight), conv(4, 6, 2, padding="same", bias=False)),
        ]
        made[f"conv_transpose{d}d"] = [
            *_in(shape, transposed(4, 6, 3, stride=2, output_padding=1), transposed(4, 4, 2, groups=2, bias=False)),
            *_in(shape, WithWeight(transposed_function, weight)),
        ]
    return made


class WithWeight(nn.Module):
    """A function of two tensors with a parameter as the second."""

    def __init__(self, function: Callable[..., Any], weight: Tensor, *more: Any) -> None:
        super().__init__()
        self.function, self.more = function, more
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.weight, *self.more)


class Indexed(nn.Module):
    """Something that takes indices."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.ones_like(x).flatten(1).cumsum(1).to(torch.int64) % 10)


class FunctionalTable(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.rows = nn.Parameter(torch.linspace(-1, 1, 80).reshape(10, 8))

    def forward(self, indices: Tensor) -> Tensor:
        return self.function(indices, self.rows)


class First(nn.Module):
    """The first result of a module that gives several."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return self.inner(x)[0]


class Step(nn.Module):
    """Two steps of a cell; the hidden state."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, y: Tensor) -> Tensor:
        states = self.cell(y[:, 0], self.cell(y[:, 1]))
        return states[0] if isinstance(states, tuple) else states


# By the name of the operator. A function takes the module around it, for parameters, and the value.
CASES: dict[str, list[Case]] = {
    **_layers(),
    "linear": [
        *_in(X1, nn.Linear(12, 5), nn.Linear(12, 5, bias=False), nn.Sequential(nn.Linear(12, 5), nn.ReLU())),
        *_in(X1, lambda m, y: F.linear(y, m.table), lambda m, y: F.linear(y, m.table, m.bias)),
        *_in(X1, lambda m, y: y @ m.table.t() + m.bias, lambda m, y: m.bias + torch.matmul(y, m.table.transpose(0, 1))),
        *_in(X1, lambda m, y: y @ m.table + m.bias, lambda m, y: y @ m.table.mT, lambda m, y: F.relu(y @ m.table.T)),
        *_in((5, 12), lambda m, y: torch.addmm(m.bias, y, m.table), lambda m, y: y.mm(m.table.permute(1, 0))),
        *_in((5, 12), lambda m, y: torch.mm(y, m.table), lambda m, y: m.bias.addmm(y, m.table.t()).relu_()),
    ],
    "matmul": [
        *_in(X1, lambda m, y: y @ y.transpose(1, 2), lambda m, y: torch.matmul(y, y.mT)),
        *_in(X1, lambda m, y: y.matmul(y.mT), WithWeight(torch.matmul, torch.linspace(-1, 1, 60).reshape(1, 12, 5))),
        *_in(X1, WithWeight(lambda y, w: w @ y, torch.linspace(-1, 1, 24).reshape(6, 4))),
    ],
    "bmm": [
        *_in(X1, lambda m, y: torch.bmm(y, y.transpose(1, 2)), lambda m, y: y.bmm(y.transpose(1, 2))),
        *_in(X1, lambda m, y: torch.baddbmm(y[:, :, :4], y, y.transpose(1, 2))),
    ],
    "add": [
        *_in(X1, lambda m, y: y + y.flip(0), lambda m, y: torch.add(y, y.flip(0)), lambda m, y: y.add(y.flip(0))),
        *_in(X1, lambda m, y: y.clone().add_(y.flip(0)), lambda m, y: F.relu(y + y.flip(0))),
        *_in(X1, lambda m, y: y + m.bias, lambda m, y: torch.relu_(y.flip(1) + y), lambda m, y: _plus(y)),
        *_in(X1, lambda m, y: torch.add(y, y.flip(0), alpha=0.5), lambda m, y: F.relu(y.add(y.flip(0), alpha=-2))),
        *_in(X1, lambda m, y: y - y.flip(0), lambda m, y: torch.sub(y, y.flip(0), alpha=2), lambda m, y: m.bias - y),
        *_in(X1, lambda m, y: y.clone().sub_(y.flip(0)).relu(), lambda m, y: torch.rsub(y, y.flip(0), alpha=3)),
    ],
    "mul": [
        *_in(X1, lambda m, y: y * y.flip(0), lambda m, y: torch.mul(y, y.flip(0)), lambda m, y: y.mul(y.flip(0))),
        *_in(X1, lambda m, y: y.clone().mul_(y.flip(0)), lambda m, y: F.relu(y * y.flip(0))),
    ],
    "cat": [
        *_in(X1, lambda m, y: torch.cat([y, y.flip(0)], 1), lambda m, y: torch.cat((y, y), -1).relu()),
        *_in(X1, lambda m, y: torch.stack([y, y.flip(0)]), lambda m, y: torch.stack((y, y), -1)),
        *_in(X1, lambda m, y: torch.concat([y, y]), lambda m, y: torch.hstack([y, y])),
    ],
    "batch_norm": [
        *_in(X1, nn.Sequential(nn.Tanh(), _norm(nn.BatchNorm1d, 4))),
        *_in(X2, nn.Sequential(nn.Tanh(), _norm(nn.BatchNorm2d, 4), nn.ReLU())),
        *_in(X3, nn.Sequential(nn.Tanh(), _norm(nn.BatchNorm3d, 4))),
        *_in(X2, lambda m, y: F.batch_norm(y.tanh(), m.mean, m.var, m.slopes, m.slopes)),
    ],
    "layer_norm": [
        *_in(X1, _norm(nn.LayerNorm, 12), nn.LayerNorm((4, 12), elementwise_affine=False)),
        *_in(X1, lambda m, y: F.layer_norm(y, (12,), m.bias)),
    ],
    "group_norm": _in(X2, _norm(nn.GroupNorm, 2, 4), lambda m, y: F.group_norm(y, 2)),
    "instance_norm": [
        *_in(X1, nn.InstanceNorm1d(4)),
        *_in(X2, _norm(nn.InstanceNorm2d, 4, 1e-5, 0.1, True), lambda m, y: F.instance_norm(y)),
        *_in(X3, nn.InstanceNorm3d(4)),
    ],
    "hardswish": _in(X2, nn.Hardswish(), nn.Hardswish(inplace=True), lambda m, y: F.hardswish(y)),
    "silu": _in(X2, nn.SiLU(), nn.SiLU(inplace=True), lambda m, y: F.silu(y)),
    "softsign": _in(X2, nn.Softsign(), lambda m, y: F.softsign(y), lambda m, y: y / (1 + y.abs())),
    "softshrink": _in(X2, nn.Softshrink(), nn.Softshrink(0.2), lambda m, y: F.softshrink(y, 0.3)),
    # It jumps by its number where rounding may go either way, so the number is small.
    "hardshrink": _in(X2, nn.Hardshrink(0.02), lambda m, y: F.hardshrink(y, 0.03), lambda m, y: y.hardshrink(0.02)),
    "mish": _in(X2, nn.Mish(), nn.Mish(inplace=True), lambda m, y: F.mish(y)),
    "gelu": _in(X2, nn.GELU(), nn.GELU(approximate="tanh"), lambda m, y: F.gelu(y)),
    "elu": _in(X2, nn.ELU(), nn.ELU(0.5, inplace=True), lambda m, y: F.elu(y), lambda m, y: F.elu_(y, 0.7), nn.SELU()),
    "celu": _in(X2, nn.CELU(), nn.CELU(0.5, inplace=True), lambda m, y: F.celu(y), lambda m, y: F.celu_(y, 0.7)),
    "leaky_relu": [
        *_in(X2, nn.LeakyReLU(), nn.LeakyReLU(0.2, inplace=True), lambda m, y: F.leaky_relu(y)),
        *_in(X2, lambda m, y: F.leaky_relu_(y, 0.1), nn.RReLU(), nn.RReLU(0.1, 0.4, inplace=True)),
    ],
    "prelu": _in(X2, nn.PReLU(), nn.PReLU(4), lambda m, y: F.prelu(y, m.slopes), lambda m, y: y.prelu(m.slopes)),
    "sigmoid": [
        *_in(X2, nn.Sigmoid(), lambda m, y: torch.sigmoid(y), lambda m, y: y.sigmoid(), lambda m, y: y.sigmoid_()),
        *_in(X2, lambda m, y: F.sigmoid(y), nn.GLU(1), lambda m, y: F.glu(y)),
    ],
    "hardsigmoid": _in(X2, nn.Hardsigmoid(), nn.Hardsigmoid(inplace=True), lambda m, y: F.hardsigmoid(y)),
    "tanh": _in(X2, nn.Tanh(), lambda m, y: torch.tanh(y), lambda m, y: y.tanh(), lambda m, y: y.tanh_()),
    "softmax": [
        *_in(X1, nn.Softmax(-1), lambda m, y: F.softmax(y, 1), lambda m, y: torch.softmax(y, -1)),
        *_in(X1, lambda m, y: y.softmax(2)),
    ],
    "embedding": _in(X1, Indexed(nn.Embedding(10, 8)), Indexed(FunctionalTable(F.embedding))),
    "embedding_bag": [
        *_in(X1, Indexed(nn.EmbeddingBag(10, 8)), Indexed(nn.EmbeddingBag(10, 8, mode="sum"))),
        *_in(X1, Indexed(nn.EmbeddingBag(10, 8, mode="max")), Indexed(FunctionalTable(F.embedding_bag))),
    ],
    "quantized_lstm": [
        *_in(X1, First(nn.LSTM(12, 8)), First(nn.LSTM(12, 8, 2, batch_first=True, bidirectional=True))),
        *_in(X1, First(nn.LSTM(12, 8, bias=False))),
    ],
    "quantized_gru": [
        *_in(X1, First(nn.GRU(12, 8)), First(nn.GRU(12, 8, 2, batch_first=True, bidirectional=True))),
        *_in(X1, First(nn.GRU(12, 8, bias=False))),
    ],
    "quantized_rnn_tanh": [
        *_in(X1, First(nn.RNN(12, 8)), First(nn.RNN(12, 8, 2, batch_first=True, bidirectional=True))),
        *_in(X1, First(nn.RNN(12, 8, bias=False))),
    ],
    "quantized_rnn_relu": _in(X1, First(nn.RNN(12, 8, nonlinearity="relu"))),
    "quantized_lstm_cell": _in(X1, Step(nn.LSTMCell(12, 8)), Step(nn.LSTMCell(12, 8, bias=False))),
    "quantized_gru_cell": _in(X1, Step(nn.GRUCell(12, 8)), Step(nn.GRUCell(12, 8, bias=False))),
    "quantized_rnn_tanh_cell": _in(X1, Step(nn.RNNCell(12, 8)), Step(nn.RNNCell(12, 8, bias=False))),
    "quantized_rnn_relu_cell": _in(X1, Step(nn.RNNCell(12, 8, nonlinearity="relu"))),
}  # fmt: skip


def _plus(y: Tensor) -> Tensor:
    z = y.flip(2)
    z += y
    return z


MOVING_CASES: dict[str, list[Case]] = {
    "reshape.default": [
        *_in(X1, lambda m, y: y.reshape(-1, 6), lambda m, y: torch.reshape(y, (-1,)), lambda m, y: y.view(-1, 12)),
        *_in(X1, lambda m, y: torch.ops.aten._unsafe_view(y, [-1, 12])),
    ],
    "flatten.using_ints": _in(X1, nn.Flatten(), lambda m, y: y.flatten(1), lambda m, y: torch.flatten(y, 1)),
    "unflatten.int": _in(X1, nn.Unflatten(1, (2, 2)), lambda m, y: y.unflatten(1, (2, 2))),
    "transpose.int": _in(X1, lambda m, y: y.transpose(0, 1), lambda m, y: torch.transpose(y, -1, 1)),
    "permute.default": _in(X1, lambda m, y: y.permute(2, 0, 1), lambda m, y: torch.permute(y, (0, 2, 1))),
    "t.default": _in((5, 12), lambda m, y: y.t(), lambda m, y: torch.t(y)),
    "numpy_T.default": _in((5, 12), lambda m, y: y.T),
    "mT.default": _in(X1, lambda m, y: y.mT),
    "squeeze.default": _in(X1, lambda m, y: y[:, :1].squeeze()),
    "squeeze.dim": _in(X1, lambda m, y: y[:, :1].squeeze(1), lambda m, y: torch.squeeze(y[:, :1], 1)),
    "squeeze.dims": _in(X1, lambda m, y: y[:, :1].squeeze((1,))),
    "unsqueeze.default": _in(X1, lambda m, y: y.unsqueeze(1), lambda m, y: y[:, None]),
    "expand.default": _in(X1, lambda m, y: y[:, :1].expand(-1, 3, -1)),
    "expand_as.default": _in(X1, lambda m, y: y[:, :1].expand_as(y)),
    "contiguous.default": _in(X1, lambda m, y: y.transpose(1, 2).contiguous()),
    "clone.default": _in(X1, lambda m, y: y.clone()),
    "slice.Tensor": _in(X1, lambda m, y: y[:, 1:3], lambda m, y: y[..., ::2]),
    "select.int": _in(X1, lambda m, y: y[:, 1], lambda m, y: y.select(1, -1)),
    "index_select.default": _in(X1, lambda m, y: y.index_select(1, torch.tensor([2, 0]))),
    "narrow.default": _in(X1, lambda m, y: y.narrow(1, 1, 2), lambda m, y: torch.narrow(y, 2, 0, 3)),
    "chunk.default": _in(X1, lambda m, y: y.chunk(2, 1)[1], lambda m, y: torch.chunk(y, 3, -1)),
    "split.Tensor": _in(X1, lambda m, y: y.split(3, 1)[1], lambda m, y: torch.split(y, 4, -1)),
    "split_with_sizes.default": _in(X1, lambda m, y: y.split([1, 3], 1)[1]),
    "unbind.int": _in(X1, lambda m, y: y.unbind(1)[2], lambda m, y: torch.unbind(y, 1)),
    "flip.default": _in(X1, lambda m, y: y.flip(1), lambda m, y: torch.flip(y, (0, 2))),
    "roll.default": _in(X1, lambda m, y: y.roll(1, 1), lambda m, y: torch.roll(y, 2, -1)),
    "repeat.default": _in(X1, lambda m, y: y.repeat(1, 2, 1)),
    "tile.default": _in(X1, lambda m, y: y.tile(2), lambda m, y: torch.tile(y, (2, 1, 1))),
    "ravel.default": _in(X1, lambda m, y: y.ravel()),
    "movedim.int": _in(X1, lambda m, y: y.movedim(0, 1)),
    "moveaxis.intlist": _in(X1, lambda m, y: torch.moveaxis(y, (0, 1), (1, 2))),
    "moveaxis.int": _in(X1, lambda m, y: torch.moveaxis(y, 0, -1)),
    "movedim.intlist": _in(X1, lambda m, y: y.movedim((0, 1), (1, 2))),
    "swapaxes.default": _in(X1, lambda m, y: y.swapaxes(0, 1)),
    "swapdims.default": _in(X1, lambda m, y: y.swapdims(0, 1)),
    "sort.default": _in(X1, lambda m, y: y.sort()[0], lambda m, y: torch.sort(y, 1, descending=True).values),
    "sort.stable": _in(X1, lambda m, y: torch.sort(y, stable=True, dim=1)[0]),
    "max.default": _in(X1, lambda m, y: y.max(), lambda m, y: torch.max(y)),
    "min.default": _in(X1, lambda m, y: y.min(), lambda m, y: torch.min(y)),
    "max.dim": _in(X1, lambda m, y: y.max(1).values, lambda m, y: torch.max(y, 1, keepdim=True)[0]),
    "min.dim": _in(X1, lambda m, y: y.min(1).values),
    "amax.default": _in(X1, lambda m, y: y.amax(1), lambda m, y: torch.amax(y, (1, 2))),
    "amin.default": _in(X1, lambda m, y: y.amin(1), lambda m, y: torch.amin(y, (1, 2))),
    "pixel_shuffle.default": _in(X2, nn.PixelShuffle(2), lambda m, y: F.pixel_shuffle(y, 2)),
    "pixel_unshuffle.default": _in(X2, nn.PixelUnshuffle(2), lambda m, y: F.pixel_unshuffle(y, 2)),
    "channel_shuffle.default": _in(X2, nn.ChannelShuffle(2), lambda m, y: F.channel_shuffle(y, 2)),
    "alias.default": [
        *_in(X1, lambda m, y: torch.ops.aten.alias(y), lambda m, y: y.float(), lambda m, y: y.to(torch.float32)),
        *_in(X1, lambda m, y: y.type_as(y), lambda m, y: y.to(m.bias.dtype)),
    ],
    "index.Tensor": _in(X1, lambda m, y: y[:, [2, 0, 2]], lambda m, y: y[:, :, torch.tensor([[1, 0]])]),
    "gather.default": _in(X1, lambda m, y: y.gather(1, torch.tensor([[[3] * 12]] * 2)[: y.shape[0]])),
    "repeat_interleave.self_int": _in(X1, lambda m, y: y.repeat_interleave(2, 1)),
    "tensor_split.sections": _in(X1, lambda m, y: torch.tensor_split(y, 3, 1)),
    "rot90.default": _in(X2, lambda m, y: torch.rot90(y, 1, (2, 3))),
    "broadcast_to.default": _in(X1, lambda m, y: y[:, :1].broadcast_to(y.shape[0], 4, 12)),
    "detach.default": _in(X1, lambda m, y: y.detach(), lambda m, y: y.clone().detach_()),
    "lift_fresh_copy.default": _in(X1, lambda m, y: torch.ops.aten.lift_fresh_copy(y)),
    "reshape_as.default": _in(X1, lambda m, y: y.reshape_as(y), lambda m, y: y.flip(0).view_as(y)),
}

POOLING_CASES: dict[str, list[Case]] = {
    # behind something that is moved, so that it is not a part of the layer before it
    "relu.default": [
        *_in(X1, lambda m, y: F.relu(y.flip(0)), lambda m, y: y.flip(0).relu_(), lambda m, y: torch.relu(y.flip(0))),
        *_in(X1, nn.Sequential(nn.Flatten(0, 1), nn.ReLU(inplace=True))),
    ],
    "relu6.default": _in(X1, nn.ReLU6(), nn.ReLU6(inplace=True), lambda m, y: F.relu6(y)),
    "hardtanh.default": [
        *_in(X1, nn.Hardtanh(-0.5, 0.7, inplace=True), lambda m, y: F.hardtanh(y), lambda m, y: F.hardtanh_(y)),
    ],
    "clamp.default": [
        *_in(X1, lambda m, y: y.clamp(-0.5, 0.5), lambda m, y: torch.clamp(y, max=0.4), lambda m, y: y.clamp_(0)),
        *_in(X1, lambda m, y: y.clip(-0.5, 0.5)),
    ],
    "clamp_min.default": _in(X1, lambda m, y: y.clamp_min(-0.5), lambda m, y: y.clamp_min_(0)),
    "clamp_max.default": _in(X1, lambda m, y: y.clamp_max(0.5), lambda m, y: y.clamp_max_(0)),
    "dropout.default": _in(X1, nn.Dropout(), nn.Dropout(inplace=True), lambda m, y: F.dropout(y, training=False)),
    "max_pool1d.default": _in(X1, nn.MaxPool1d(2), lambda m, y: F.max_pool1d(y, 3, 2, 1)),
    "max_pool2d.default": _in(X2, nn.MaxPool2d(2), lambda m, y: F.max_pool2d(y, 3, 2, 1, ceil_mode=True)),
    "max_pool3d.default": _in(X3, nn.MaxPool3d(2), lambda m, y: F.max_pool3d(y, 3, 2, 1)),
    "avg_pool1d.default": _in(X1, nn.AvgPool1d(2), lambda m, y: F.avg_pool1d(y, 3, 2, 1)),
    "avg_pool2d.default": _in(X2, nn.AvgPool2d(2), lambda m, y: F.avg_pool2d(y, 3, 2, 1, count_include_pad=False)),
    "avg_pool3d.default": _in(X3, nn.AvgPool3d(2), lambda m, y: F.avg_pool3d(y, 3, 2, 1)),
    "adaptive_avg_pool1d.default": _in(X1, nn.AdaptiveAvgPool1d(3), lambda m, y: F.adaptive_avg_pool1d(y, 1)),
    "adaptive_avg_pool2d.default": [
        *_in(X2, nn.AdaptiveAvgPool2d((3, 2)), nn.AdaptiveAvgPool2d(1), lambda m, y: F.adaptive_avg_pool2d(y, (1, 2))),
        *_in(X2, nn.AdaptiveAvgPool2d((None, 2))),
    ],
    "adaptive_avg_pool3d.default": _in(X3, nn.AdaptiveAvgPool3d(2), lambda m, y: F.adaptive_avg_pool3d(y, 1)),
    "mean.dim": [
        *_in(X2, lambda m, y: y.mean((2, 3)), lambda m, y: torch.mean(y, 1, keepdim=True), lambda m, y: y.mean(-1)),
        *_in(X2, lambda m, y: y.mean(), lambda m, y: torch.mean(y)),
    ],
    "upsample_nearest1d.vec": _in(X1, nn.Upsample(scale_factor=2), lambda m, y: F.interpolate(y, size=7)),
    **{
        f"_upsample_nearest_exact{d}d.vec": [
            *_in(shape, nn.Upsample(scale_factor=1.5, mode="nearest-exact")),
            *_in(shape, lambda m, y: F.interpolate(y, size=7, mode="nearest-exact")),
        ]
        for d, shape in enumerate((X1, X2, X3), 1)
    },
    "threshold.default": _in(X1, nn.Threshold(-0.2, -0.3), lambda m, y: F.threshold(y, -0.4, -0.4, inplace=True)),
    "topk.default": _in(X1, lambda m, y: y.topk(3)[0], lambda m, y: torch.topk(y, 2, 1, largest=False).values),
    "pad.default": [
        *_in(X2, nn.ZeroPad2d(1), lambda m, y: F.pad(y, (1, 2)), nn.ReflectionPad2d(2), nn.ReplicationPad2d(1)),
        *_in(X2, nn.CircularPad2d(1), lambda m, y: F.pad(y, (1, 0, 2, 1), mode="reflect")),
        *_in(X1, nn.ReflectionPad1d(3)),
    ],
    "constant_pad_nd.default": _in(X2, lambda m, y: torch.constant_pad_nd(y, (0, 1, 2, 0))),
    "upsample_nearest2d.vec": [
        *_in(X2, nn.Upsample(scale_factor=2), nn.UpsamplingNearest2d(size=(5, 7))),
        *_in(X2, lambda m, y: F.interpolate(y, scale_factor=(2, 3))),
    ],
    "upsample_nearest3d.vec": _in(X3, nn.Upsample(scale_factor=2), lambda m, y: F.interpolate(y, size=(5, 6, 7))),
    "upsample_bilinear2d.vec": [
        *_in(X2, nn.Upsample(scale_factor=2, mode="bilinear"), nn.UpsamplingBilinear2d(size=(5, 7))),
        *_in(X2, lambda m, y: F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)),
    ],
}  # fmt: skip


def on_integers(name: str) -> str:
    """What the operator on integers of a record is called, or begins with."""
    if name in ("embedding", "embedding_bag"):
        return f"{name}_byte"
    return name if hasattr(torch.ops.zeropoint, name) or name.startswith("quantized_") else "lookup"


def spelled(cases: dict[str, list[Case]]) -> list[Any]:
    """Parameters of a test: the name of a row, the shape of its inputs, and what to try on them."""
    return [
        pytest.param(name, shape, [tried for at, tried in several if at == shape], id=f"{name}-{len(shape)}")
        for name, several in cases.items()
        for shape in sorted({shape for shape, _ in several})
    ]


def grouped(cases: dict[str, list[Case]], at_once: int = 10) -> list[Any]:
    """As `spelled`, with the names of several rows of one shape, all in one model, which is quicker.

    One by one they are thorough.
    """
    rows: dict[tuple[int, ...], list[tuple[str, list[Any]]]] = {}
    for name, shape, tried in (case.values for case in spelled(cases)):
        rows.setdefault(shape, []).append((name, tried))
    found = []
    for shape, of_shape in rows.items():
        for start in range(0, len(of_shape), at_once):
            names, tried = zip(*of_shape[start : start + at_once])
            label = f"{names[0]}-{len(shape)}" + (f" and {len(names) - 1} more" if at_once > 1 else "")
            marks = [pytest.mark.thorough] * (at_once == 1)
            found.append(pytest.param(names, shape, [t for several in tried for t in several], id=label, marks=marks))
    return found


# Functions of one value are annotated and lowered alike. Sigmoid, GELU and hardswish stand for these in the
# quick suite, but in `tests/graph/workflow/test_operators.py`, which has all of them.
LIKE_SIGMOID = frozenset({"silu", "mish", "elu", "celu", "leaky_relu", "hardsigmoid", "tanh", "softsign"})


def functions_thinned(cases: list[Any]) -> list[Any]:
    """The parameters, which begin with a name, with the functions that others stand for marked thorough."""
    return [
        pytest.param(
            *case.values, id=case.id, marks=[*case.marks, *[pytest.mark.thorough] * (case.values[0] in LIKE_SIGMOID)]
        )
        for case in cases
    ]


def dimensions_thinned(names: Iterable[str]) -> list[Any]:
    """The names, with those of one and of three dimensions that also have a form of two marked thorough.

    They differ in the operator that is called; the quick suite has all in `tests/graph/workflow/test_operators.py`.
    """
    names = list(names)
    alike = [name for name in names if (two := re.sub("[13]d", "2d", name)) != name and two in names]
    return [pytest.param(name, id=name, marks=[pytest.mark.thorough] * (name in alike)) for name in names]


def model_of(tried: list[Any], shape: tuple[int, ...]) -> tuple[Calls, Tensor]:
    """A model that calls what is to be tried, the same each time, and data for it."""
    torch.manual_seed(0)
    for part in (p for t in tried if isinstance(t, nn.Module) for p in t.modules()):
        if hasattr(part, "reset_parameters") and not isinstance(part, NORMS):
            part.reset_parameters()
    model = Calls(tried, shape).eval()
    return model, torch.randn(4, *shape[1:]) if len(shape) > 2 else torch.randn(8, shape[1])


def _tensors(results: list[Any]) -> list[Tensor]:
    return [t for result in results for t in ([result] if isinstance(result, Tensor) else result)]


# The input, the first layer's result, the weights and the result are rounded, each by half a step or less, and a sum of
# two has the errors of both. FX came to 3.2 steps at most and 0.86 in the mean of squares, over all 328 results.
MOST_STEPS, MEAN_STEPS = 4.0, 1.0


def assert_same_bytes(program: Any, made: Any, data: Tensor) -> None:
    """Whether a program gives what its graph gives, to the bit."""
    with torch.no_grad():
        expected, found = pytree.tree_leaves(made(data)), pytree.tree_leaves(program(data))
    for number, (e, f) in enumerate(zip(expected, found, strict=True)):
        assert e.dtype == f.dtype, number
        assert torch.equal(e, f), number


def _step(values: Tensor) -> float:
    """The step of 8 bits over these values and 0."""
    return (max(float(values.max()), 0.0) - min(float(values.min()), 0.0)) / 255


def assert_close(model: Calls, made: Any, data: Tensor) -> None:
    """Whether a model on integers gives what the float one does, but for the rounding."""
    with torch.no_grad():
        expected, found = _tensors(model(data)), _tensors(made(data))
        step_before = _step(model.first(data))
    for number, (e, f) in enumerate(zip(expected, found, strict=True)):
        assert e.shape == f.shape, number
        steps = (e - f).abs() / max(_step(e), step_before)
        assert steps.max() < MOST_STEPS, number
        assert steps.square().mean().sqrt() < MEAN_STEPS, number
