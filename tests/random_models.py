"""Models nobody would write: small graphs of layers and operators, each from a number."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Around the sizes of vectors, tiles and blocks of kernels.
_CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 63, 64, 65)
_IMAGES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 16, 17, 19)
_MOST_VALUES = 40_000  # of one tensor
_MOST_MACS = 4_000_000

Values = list[Tensor]
Operation = Callable[["RandomModel", Values], Tensor]

_FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    F.relu,
    F.relu6,
    F.hardswish,
    F.hardsigmoid,
    torch.sigmoid,
    torch.tanh,
    F.leaky_relu,
    F.elu,
    F.gelu,
    F.silu,
    F.hardtanh,
    F.softplus,
    F.mish,
    torch.abs,
    torch.square,
    torch.neg,
    torch.sin,
)


class RandomModel(nn.Module):
    """The model of a seed. `inputs(batch, generator)` are what it is called with.

    Operations are added one by one, each to values that are there, while all is computed on an example: so every model
    fits together. The results are the values that no operation reads.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        torch.manual_seed(seed)
        self._layers = nn.ModuleList()
        self._operations: list[Operation] = []
        self.words: list[str] = []
        r = self._random
        self.kind = r.choice(
            ("image", "image", "image", "sequence", "sequence", "signal", "volume", "vector", "tokens", "bags")
        )
        channels = r.choice(_CHANNELS)
        sizes = {
            "image": (r.choice(_IMAGES), r.choice(_IMAGES)),
            "sequence": (),
            "signal": (r.choice(_IMAGES) * 2,),
            "volume": (r.randint(2, 7), r.randint(2, 7), r.randint(2, 7)),
            "vector": (),
            "tokens": (),
            "bags": (),
        }[self.kind]
        self._shape = (r.randint(2, 9), channels) if self.kind == "sequence" else (channels, *sizes)
        self._rows = r.randint(2, 40) if self.kind in ("tokens", "bags") else 0  # of the table that tokens are in
        if self._rows:
            self._shape = (r.randint(2, 9),)
            self._embed(channels + channels % 2)  # tables of 4 bits have whole bytes
        self.eval()
        with torch.no_grad():
            values = _Values([self.inputs(2, torch.Generator().manual_seed(seed))[0]])
            if self._rows:
                values.append(self._operations[0](self, values))
            wanted = r.randint(2, 9)
            for _ in range(60):
                if len(self._operations) >= wanted:
                    break
                self._grow(values)
            # All that nobody reads, so that nothing is computed in vain.
            self._results = [i for i in range(1, len(values)) if i not in values.read]

    def inputs(self, batch: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        if self._rows:
            return (torch.randint(self._rows, (batch, *self._shape), generator=generator),)
        return (torch.randn(batch, *self._shape, generator=generator) * 1.5,)

    def forward(self, x: Tensor) -> Any:
        values = [x]
        for operation in self._operations:
            values.append(operation(self, values))
        results = [values[i] for i in self._results]
        return results[0] if len(results) == 1 else tuple(results)

    @property
    def is_sequence(self) -> bool:
        return self.kind in ("sequence", "tokens")

    @property
    def has_linear_layers(self) -> bool:
        return self.is_sequence or self.kind in ("vector", "bags")

    # ------------------------------------------------------------------------------------------------ one more value
    def _embed(self, features: int) -> None:
        kind = nn.EmbeddingBag if self.kind == "bags" else nn.Embedding
        given = {"mode": "sum"} if self.kind == "bags" else {}
        call = self._layer(kind(self._rows, features, **given), 0)
        self.words.append(f"{kind.__name__} {self._rows}x{features}")
        self._operations.append(lambda model, v: call(model, v[0]))

    def _grow(self, values: _Values) -> None:
        r, read = self._random, set(values.read)
        first = 1 if self._rows else 0  # tokens are no values to compute with
        at = len(values) - 1 if r.random() < 0.75 else r.randrange(first, len(values))
        ways = {2: _VECTOR, 3: _SEQUENCE if self.is_sequence else _SIGNAL, 4: _IMAGE, 5: _VOLUME}
        way = r.choice(ways[values[at].dim()])
        if len(self._operations) == first:  # something to quantize
            way = _linear if self.has_linear_layers else _convolution
        layers = len(self._layers)
        try:
            name, operation = way(self, values, at)
            self.eval()
            values.read = set()
            made = operation(self, values)
        except (_DoesNotFit, RuntimeError):  # PyTorch has limits of its own for windows and pads
            made = None
        used, values.read = values.read, read
        # Neither empty nor large, and a range that observers have something to do with.
        if made is None or not 0 < made.numel() <= _MOST_VALUES or not 1e-3 < made.abs().max().item() < 1e3:
            del self._layers[layers:]
            return
        values.read |= used
        self._operations.append(operation)
        self.words.append(f"{name}({at}) -> {tuple(made.shape)}")
        values.append(made)

    def _layer(self, layer: nn.Module, macs: int) -> Callable[[RandomModel, Tensor], Any]:
        if macs > _MOST_MACS:
            raise _DoesNotFit
        self._layers.append(layer)
        number = len(self._layers) - 1
        return lambda model, x: model._layers[number](x)


class _DoesNotFit(Exception):
    pass


class _Values(Values):
    """A list that knows which of its values were read."""

    read: set[int]

    def __init__(self, values: Values) -> None:
        super().__init__(values)
        self.read = set()

    def __getitem__(self, i: Any) -> Any:
        self.read.add(i)
        return super().__getitem__(i)


Way = Callable[[RandomModel, Values, int], "tuple[str, Operation]"]


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _convolution(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    r, x = m._random, values[at]
    axes, channels = x.dim() - 2, x.shape[1]
    kernel = [r.choice((1, 1, 2, 3, 3, 3, 5, 7)) for _ in range(axes)]
    if r.random() < 0.7:
        kernel = kernel[:1] * axes
    stride = [r.choice((1, 1, 1, 2, 2, 3)) for _ in range(axes)]
    dilation = [r.choice((1, 1, 1, 2, 3)) for _ in range(axes)]
    padding = [r.randint(0, k // 2 * d) for k, d in zip(kernel, dilation)]
    groups = r.choice((1, 1, 1, channels, r.choice(_divisors(channels))))
    each = r.choice((1, 1, 2, 3)) if groups == channels else max(1, r.choice(_CHANNELS) // groups)
    out = groups * each
    if any(n + 2 * p < d * (k - 1) + 1 for n, p, d, k in zip(x.shape[2:], padding, dilation, kernel)):
        raise _DoesNotFit
    taps = 1
    for k in kernel:
        taps *= k
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    layer = kinds[axes - 1](channels, out, kernel, stride, padding, dilation, groups, bias=r.random() < 0.8)
    call = m._layer(layer, x[0, 0].numel() * taps * channels * out // groups)
    norm = None
    if axes == 2 and r.random() < 0.3:
        norm = m._layer(_settled(nn.BatchNorm2d(out)), 0)
    return (
        f"conv k{kernel} s{stride} d{dilation} p{padding} g{groups}{' bn' if norm else ''}",
        lambda model, v: norm(model, call(model, v[at])) if norm else call(model, v[at]),
    )


def _settled(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    norm.running_var.uniform_(0.3, 1.5)
    norm.running_mean.normal_(0, 0.3)
    return norm


def _transposed(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    r, x = m._random, values[at]
    axes, channels = x.dim() - 2, x.shape[1]
    kernel, stride = r.randint(1, 4), r.randint(1, 3)
    padding, groups = r.randint(0, (kernel - 1) // 2), r.choice((1, 1, r.choice(_divisors(channels))))
    extra = r.randint(0, stride - 1)
    out = groups * r.randint(1, 6)
    kinds = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    layer = kinds[axes - 1](channels, out, kernel, stride, padding, extra, groups)
    call = m._layer(layer, x[0].numel() * kernel**axes * out // groups)
    return f"transposed k{kernel} s{stride} p{padding}+{extra} g{groups}", lambda model, v: call(model, v[at])


def _linear(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    r, features = m._random, values[at].shape[-1]
    out = r.choice(_CHANNELS)
    call = m._layer(nn.Linear(features, out, bias=r.random() < 0.8), values[at][0].numel() * out)
    return f"linear {features}->{out}", lambda model, v: call(model, v[at])


def _function(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    function = m._random.choice(_FUNCTIONS)
    return function.__name__, lambda model, v: function(v[at])


def _binary(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    r = m._random
    others = [i for i, v in enumerate(values) if v.shape == values[at].shape and v.is_floating_point()]
    other = r.choice(others)
    kind = r.choice(("add", "add", "mul", "sub", "add_relu", "maximum", "divide"))
    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "add": torch.add,
        "mul": torch.mul,
        "sub": torch.sub,
        "add_relu": lambda a, b: F.relu(a + b),
        "maximum": torch.maximum,
        "divide": lambda a, b: a / (1.5 + b.abs()),
    }
    return f"{kind} with {other}", lambda model, v: functions[kind](v[at], v[other])


def _joined(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    axis = 2 if m.is_sequence and values[at].dim() == 3 else 1
    shape = [n for i, n in enumerate(values[at].shape) if i != axis]
    others = [
        i
        for i, v in enumerate(values)
        if v.is_floating_point()
        and v.dim() == values[at].dim()
        and [n for k, n in enumerate(v.shape) if k != axis] == shape
    ]
    chosen = [at, *m._random.choices(others, k=m._random.randint(1, 2))]
    return f"cat {chosen}", lambda model, v: torch.cat([v[i] for i in chosen], axis)


def _pool(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    r, x = m._random, values[at]
    axes = x.dim() - 2
    kernel, stride, up = r.randint(1, 4), r.randint(1, 3), r.random() < 0.3
    padding = r.randint(0, kernel // 2)
    if any(n + 2 * padding < kernel for n in x.shape[2:]):
        raise _DoesNotFit
    if r.random() < 0.5:
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[axes - 1]
        return f"max_pool {kernel} {stride} {padding} {up}", lambda model, v: pool(
            v[at], kernel, stride, padding, ceil_mode=up
        )
    inside = r.random() < 0.5
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[axes - 1]
    return f"avg_pool {kernel} {stride} {padding} {up} {inside}", lambda model, v: average(
        v[at], kernel, stride, padding, ceil_mode=up, count_include_pad=inside
    )


def _adaptive(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    size = m._random.choice((1, 1, 2, 3))
    return f"adaptive {size}", lambda model, v: F.adaptive_avg_pool2d(v[at], size)


def _resized(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    mode = m._random.choice(("nearest", "bilinear"))
    return f"resized {mode}", lambda model, v: F.interpolate(v[at], scale_factor=2, mode=mode)


def _mean(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    axes = list(range(2, values[at].dim()))
    return "mean", lambda model, v: v[at].mean(axes)


def _flat(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    if values[at][0].numel() > 600:
        raise _DoesNotFit
    return "flatten", lambda model, v: v[at].flatten(1)


def _cut(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    r = m._random
    axis = r.randrange(1, values[at].dim())
    begin = r.randrange(values[at].shape[axis])
    end = r.randint(begin + 1, values[at].shape[axis])
    step = r.choice((1, 1, 2))
    return f"cut {axis} {begin}:{end}:{step}", lambda model, v: v[at][
        (slice(None),) * axis + (slice(begin, end, step),)
    ]


def _shuffled(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    groups = m._random.choice(_divisors(values[at].shape[1]))
    return f"shuffled {groups}", lambda model, v: F.channel_shuffle(v[at], groups)


def _padded(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    pads = [m._random.randint(0, 2) for _ in range(4)]
    return f"padded {pads}", lambda model, v: F.pad(v[at], pads)


def _gated(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    channels = values[at].shape[1]
    call = m._layer(nn.Conv2d(channels, channels, 1), channels * channels)
    return "gated", lambda model, v: v[at] * torch.sigmoid(call(model, F.adaptive_avg_pool2d(v[at], 1)))


def _normed(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    features = values[at].shape[-1]
    if features < 4:
        raise _DoesNotFit
    call = m._layer(nn.LayerNorm(features), 0)
    return "layer_norm", lambda model, v: call(model, v[at])


def _grouped_norm(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    channels = values[at].shape[1]
    if values[at][0].numel() < 16:
        raise _DoesNotFit
    call = m._layer(nn.GroupNorm(m._random.choice(_divisors(channels)), channels), 0)
    return "group_norm", lambda model, v: call(model, v[at])


def _attention(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    features = values[at].shape[-1]
    heads = m._random.choice([d for d in _divisors(features) if d <= 8])
    parts = [m._layer(nn.Linear(features, features), values[at][0].numel() * features) for _ in range(3)]

    def attend(model: RandomModel, v: Values) -> Tensor:
        q, k, w = (part(model, v[at]).unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        scores = q @ k.transpose(-2, -1) / (features // heads) ** 0.5
        return (scores.softmax(-1) @ w).transpose(1, 2).flatten(2)

    return f"attention {heads}", attend


def _fused_attention(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    features = values[at].shape[-1]
    heads, causal = m._random.choice([d for d in _divisors(features) if d <= 8]), m._random.random() < 0.5
    parts = [m._layer(nn.Linear(features, features), values[at][0].numel() * features) for _ in range(4)]

    def attend(model: RandomModel, v: Values) -> Tensor:
        q, k, w = (part(model, v[at]).unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts[:3])
        return parts[3](model, F.scaled_dot_product_attention(q, k, w, is_causal=causal).transpose(1, 2).flatten(2))

    return f"fused attention {heads} {causal}", attend


def _simple(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    name = m._random.choice(list(_SIMPLE))
    return name, lambda model, v: _SIMPLE[name](v[at])


# Moves, views, reductions: nothing to learn. Sizes are those of the value, the batch stays in front.
_SIMPLE: dict[str, Callable[[Tensor], Tensor]] = {
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(1, -1),
    "repeat": lambda x: x.repeat(1, 2, *[1] * (x.dim() - 2)),
    "reversed axes": lambda x: x.transpose(1, -1),
    "unsqueezed": lambda x: x.unsqueeze(1).squeeze(1),
    "reshaped": lambda x: x.reshape(x.shape[0], -1, x.shape[1]).transpose(1, 2).reshape(x.shape),
    "expanded": lambda x: x[:, :1].expand(x.shape) + x,
    "sum": lambda x: x.sum(1, keepdim=True) * 0.25,
    "largest": lambda x: x.amax(-1, keepdim=True),
    "variance": lambda x: x.var(-1, unbiased=False, keepdim=True),
    "norm": lambda x: x / (1.0 + x.norm(dim=-1, keepdim=True)),
    "log softmax": lambda x: x.log_softmax(-1),
    "sums so far": lambda x: x.cumsum(-1) * 0.25,
    "clamped": lambda x: x.clamp(-0.7, 1.1),
    "by a number": lambda x: x * 0.5 + 1.0,
    "where": lambda x: torch.where(x > 0, x, x * 0.25),
    "filled": lambda x: x.masked_fill(x < -1.0, 0.5),
    "sorted": lambda x: x.sort(-1)[0],
    "rounded": lambda x: (x * 4).floor() * 0.25,
    "stacked": lambda x: torch.stack([x, x.neg()], 1).sum(1) + x,
    "split": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
}


def _sloped(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    call = m._layer(nn.PReLU(m._random.choice((1, values[at].shape[1]))), 0)
    return "prelu", lambda model, v: call(model, v[at])


def _batch_normed(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    call = m._layer(_settled(nn.BatchNorm2d(values[at].shape[1])), 0)
    return "batch_norm", lambda model, v: call(model, v[at])


def _instance_normed(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    if values[at][0, 0].numel() < 4:
        raise _DoesNotFit
    call = m._layer(nn.InstanceNorm2d(values[at].shape[1], affine=True), 0)
    return "instance_norm", lambda model, v: call(model, v[at])


def _rms_normed(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    call = m._layer(nn.RMSNorm(values[at].shape[-1]), 0)
    return "rms_norm", lambda model, v: call(model, v[at])


def _pixels(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    _, channels, height, width = values[at].shape
    if height % 2 == 0 and width % 2 == 0 and m._random.random() < 0.5:
        return "pixel_unshuffle", lambda model, v: F.pixel_unshuffle(v[at], 2)
    if channels % 4 != 0:
        raise _DoesNotFit
    return "pixel_shuffle", lambda model, v: F.pixel_shuffle(v[at], 2)


def _products(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    return "product", lambda model, v: v[at] @ v[at].transpose(1, 2)


def _recurrent(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    r, features = m._random, values[at].shape[-1]
    hidden, both = r.choice(_CHANNELS[:16]), r.random() < 0.3
    kind = r.choice((nn.LSTM, nn.GRU))
    layer = kind(features, hidden, batch_first=True, bidirectional=both)
    call = m._layer(layer, values[at].shape[1] * (features + hidden) * hidden * 8)
    return f"{kind.__name__} {features}->{hidden} {both}", lambda model, v: call(model, v[at])[0]


def _last_step(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    return "last", lambda model, v: v[at][:, -1]


def _softmax(m: RandomModel, values: Values, at: int) -> tuple[str, Operation]:
    return "softmax", lambda model, v: v[at].softmax(-1)


_SPATIAL: tuple[Way, ...] = (
    _convolution,
    _convolution,
    _convolution,
    _transposed,
    _function,
    _function,
    _binary,
    _binary,
    _joined,
    _pool,
    _mean,
    _flat,
    _cut,
    _simple,
    _sloped,
)
_IMAGE: tuple[Way, ...] = (
    *_SPATIAL,
    _convolution,
    _convolution,
    _adaptive,
    _resized,
    _shuffled,
    _padded,
    _gated,
    _grouped_norm,
    _batch_normed,
    _instance_normed,
    _pixels,
    _simple,
)
_SIGNAL = _VOLUME = _SPATIAL
_SEQUENCE: tuple[Way, ...] = (
    _linear,
    _linear,
    _function,
    _binary,
    _joined,
    _normed,
    _rms_normed,
    _attention,
    _fused_attention,
    _recurrent,
    _products,
    _cut,
    _last_step,
    _softmax,
    _simple,
    _simple,
)
_VECTOR: tuple[Way, ...] = (
    _linear,
    _linear,
    _function,
    _binary,
    _joined,
    _normed,
    _rms_normed,
    _cut,
    _softmax,
    _simple,
)
