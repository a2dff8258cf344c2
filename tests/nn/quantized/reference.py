"""What quantized layers must answer, in int64 and then in float32 one operation at a time. Nobody optimizes this file.

acc = sum((x - x_zero_point) * (w - w_zero_point))          exact
v = f32(acc) * m[n] + b[n]                                  m[n] = x_scale * w_scale[n] / scale, b[n] = bias[n] / scale
v = v + f32(z - z_zero_point) * (z_scale / scale)           if something is added
v = v * slope                                               where v < 0, if leaky
y = clamp(rne(v) + zero_point, low, high)                   low is the zero point, if ReLU
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BOUNDS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


@dataclass(frozen=True)
class Codes:
    """Integers with their scale and zero point; those of weights are arrays ``(1,)`` or ``(outputs,)``."""

    data: Tensor
    scale: float | Tensor
    zero_point: int | Tensor

    def centered(self) -> Tensor:
        assert isinstance(self.zero_point, int)
        return self.data.to(torch.int64) - self.zero_point


def f32(value: float | Tensor) -> np.ndarray:
    if isinstance(value, Tensor):
        value = value.numpy()
    return np.asarray(value).astype(np.float32)


def along(array: np.ndarray, dims: int, axis: int) -> np.ndarray:
    """`array`, of one axis, at `axis` of `dims`."""
    return array.reshape([-1 if d == axis % dims else 1 for d in range(dims)])


def centered_weight(w: Codes, transposed_groups: int | None = None) -> Tensor:
    """``w - zero_point``, whose output channels are the first axis, or, transposed, the second within each group."""
    data = w.data.to(torch.int64)
    zero_point = torch.as_tensor(w.zero_point).to(torch.int64).reshape(-1)
    if transposed_groups is None:
        return data - zero_point.reshape(-1, *[1] * (data.dim() - 1))
    inputs, per_group, *kernel = data.shape
    zero_point = zero_point.expand(per_group * transposed_groups) if len(zero_point) == 1 else zero_point
    split = data.reshape(transposed_groups, inputs // transposed_groups, per_group, *kernel)
    split = split - zero_point.reshape(transposed_groups, 1, per_group, *[1] * len(kernel))
    return split.reshape(data.shape)


# -------------------------------------------------------------------------------------------------------- the sums


def linear_sums(x: Codes, w: Codes) -> Tensor:
    return x.centered() @ centered_weight(w).t()


def matmul_sums(a: Codes, b: Codes) -> Tensor:
    return a.centered() @ b.centered()


def conv_sums(
    x: Codes, w: Codes, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> Tensor:
    """One kernel position after the other, over an input padded with (centered) zeros."""
    weight, image = centered_weight(w), x.centered()
    n, channels, *sizes = image.shape
    outputs, per_group, *kernel = weight.shape
    room = torch.zeros((n, channels, *[s + 2 * p for s, p in zip(sizes, padding)]), dtype=torch.int64)
    room[(..., *[slice(p, p + s) for s, p in zip(sizes, padding)])] = image
    out = [(s + 2 * p - d * (k - 1) - 1) // t + 1 for s, p, d, k, t in zip(sizes, padding, dilation, kernel, stride)]
    acc = torch.zeros((n, outputs, *out), dtype=torch.int64)
    for position in itertools.product(*map(range, kernel)):
        taken = room[
            (..., *[slice(k * d, k * d + (o - 1) * t + 1, t) for k, d, o, t in zip(position, dilation, out, stride)])
        ]
        for g in range(groups):
            mine = slice(g * outputs // groups, (g + 1) * outputs // groups)
            group = taken[:, g * per_group : (g + 1) * per_group]
            acc[:, mine] += torch.einsum("nc...,oc->no...", group, weight[(mine, slice(None), *position)])
    return acc


def conv_transpose_sums(
    x: Codes,
    w: Codes,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Every input adds the kernel, times itself, to the places it reaches; then the padding is cut off."""
    weight, image = centered_weight(w, groups), x.centered()
    n, channels, *sizes = image.shape
    _, per_group, *kernel = weight.shape
    reach = [d * (k - 1) for d, k in zip(dilation, kernel)]
    whole = [(s - 1) * t + r + 1 + o for s, t, r, o in zip(sizes, stride, reach, output_padding)]
    acc = torch.zeros((n, per_group * groups, *whole), dtype=torch.int64)
    for position in itertools.product(*map(range, kernel)):
        places = [slice(k * d, k * d + (s - 1) * t + 1, t) for k, d, s, t in zip(position, dilation, sizes, stride)]
        for g in range(groups):
            mine = slice(g * channels // groups, (g + 1) * channels // groups)
            part = torch.einsum("nc...,co->no...", image[:, mine], weight[(mine, slice(None), *position)])
            acc[(slice(None), slice(g * per_group, (g + 1) * per_group), *places)] += part
    return acc[(..., *[slice(p, size - p) for p, size in zip(padding, whole)])]


# ----------------------------------------------------------------------------------------------------- the epilogue


def to_float(acc: Tensor, x_scale: float, w_scale: float | Tensor, bias: Tensor | None, axis: int) -> np.ndarray:
    """float32, by the scales of both operands and the bias."""
    return _rescaled(acc, x_scale, w_scale, bias, 1.0, axis)


def _rescaled(
    acc: Tensor, x_scale: float, w_scale: float | Tensor, bias: Tensor | None, scale: float, axis: int
) -> np.ndarray:
    assert acc.numel() == 0 or acc.abs().max() < 2**31, "the sums of this example do not fit int32"
    m = f32(x_scale) * f32(w_scale) / f32(scale)
    v = f32(acc) * along(m, acc.dim(), axis)
    if bias is not None:
        v = v + along(f32(bias) / f32(scale), acc.dim(), axis)
    assert v.dtype == np.float32
    return v


def requantize(
    acc: Tensor,
    x_scale: float,
    w_scale: float | Tensor,
    scale: float,
    zero_point: int,
    dtype: torch.dtype,
    *,
    bias: Tensor | None = None,
    axis: int = 1,
    relu: bool = False,
    slope: float | None = None,
    added: Codes | None = None,
) -> Tensor:
    """Integers of `dtype` from exact sums; `axis` is that of the output channels."""
    v = _rescaled(acc, x_scale, w_scale, bias, scale, axis)
    if added is not None:
        v = v + f32(added.centered()) * (f32(added.scale) / f32(scale))
    if slope is not None:
        v = np.where(v < 0, v * f32(slope), v)
    assert v.dtype == np.float32
    low, high = BOUNDS[dtype]
    if relu:
        low = zero_point
    y = np.clip(np.rint(v.astype(np.float64)) + zero_point, low, high)
    return torch.from_numpy(y.astype(np.int64)).to(dtype)


# ------------------------------------------------------------------------------------------------ float activations


def quantize_rows(x: Tensor) -> tuple[Tensor, np.ndarray]:
    """Each row to int8 symmetrically: integers, and a scale for each row."""
    values = f32(x)
    most = np.abs(values).max(axis=-1, keepdims=True) if values.shape[-1] else np.zeros((*values.shape[:-1], 1), "f4")
    scale = np.maximum(most / f32(127.0), np.finfo(np.float32).eps)
    q = np.clip(np.rint(values * (f32(1.0) / scale)), -127, 127)
    return torch.from_numpy(q.astype(np.int64)), scale
