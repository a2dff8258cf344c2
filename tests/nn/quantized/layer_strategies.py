"""Quantized operands for the tests of layers: every type, zero points at both ends, scales that fill the output."""

from __future__ import annotations

import math
from collections.abc import Sequence

import hypothesis.strategies as st
import torch
from reference import BOUNDS, Codes
from strategies import generator, integers, seeds
from torch import Tensor

import zeropoint
from zeropoint.numerics.dtypes import qint8, quint8
from zeropoint.tensor.qtensor import QTensor

BYTES = (torch.uint8, torch.int8)
QUANTIZED = {torch.uint8: quint8, torch.int8: qint8}

byte_dtypes = st.sampled_from(BYTES)


def zero_points(dtype: torch.dtype) -> st.SearchStrategy[int]:
    """Both ends of `dtype` often."""
    low, high = BOUNDS[dtype]
    return st.one_of(st.sampled_from([low, high, 0]), st.integers(low, high))


scales = st.floats(2.0**-10, 2.0, width=32)


@st.composite
def activations(draw: st.DrawFn, shape: Sequence[int]) -> Codes:
    dtype = draw(byte_dtypes)
    return Codes(integers(draw(seeds), shape, dtype), draw(scales), draw(zero_points(dtype)))


@st.composite
def weights(draw: st.DrawFn, shape: Sequence[int], outputs: int) -> Codes:
    """Per tensor or per channel; symmetric, or with zero points anywhere."""
    dtype, seed = draw(byte_dtypes), draw(seeds)
    count = draw(st.sampled_from([1, outputs]))
    low, high = BOUNDS[dtype]
    scale = torch.rand(count, generator=generator(seed)) * 0.1 + 0.001
    zero_point = draw(
        st.one_of(
            st.just(torch.full((count,), (low + high + 1) // 2)),
            st.sampled_from([low, high]).map(lambda end: torch.full((count,), end)),
            st.just(torch.randint(low, high + 1, (count,), generator=generator(seed + 1))),
        )
    )
    return Codes(integers(seed, shape, dtype), scale, zero_point)


@st.composite
def biases(draw: st.DrawFn, outputs: int, size: float) -> Tensor | None:
    """None, or values of about `size`, which is that of what they are added to."""
    if draw(st.booleans()):
        return None
    return torch.randn(outputs, generator=generator(draw(seeds))) * size


def filling_scale(x: Codes, w_scale: float | Tensor, depth: int) -> float:
    """An output scale for which results spread over about 8 bits."""
    return float(x.scale) * float(torch.as_tensor(w_scale).mean()) * 90 * math.sqrt(max(depth, 1))


@st.composite
def outputs(draw: st.DrawFn, x: Codes, w_scale: float | Tensor, depth: int) -> tuple[float, int]:
    """(scale, zero point) of the output."""
    scale = filling_scale(x, w_scale, depth) * draw(st.sampled_from([0.01, 0.5, 1.0, 1.0, 3.7]))
    return scale, draw(zero_points(x.data.dtype))


def quantized(q: Codes, axis: int | None = None) -> QTensor:
    """As a QTensor; per channel along `axis`, if there is a scale for each."""
    if isinstance(q.scale, Tensor) and q.scale.numel() > 1:
        return zeropoint.make_per_channel_quantized_tensor(q.data, q.scale, q.zero_point, axis)
    return zeropoint.make_per_tensor_quantized_tensor(q.data, float(q.scale), int(q.zero_point))
