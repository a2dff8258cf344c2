"""A QTensor and PyTorch's quantized tensor (the oracle) with the same integers and qparams, in the same layout."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import torch
from strategies import assert_same, generator, integers, scales, seeds, shapes

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, qint32, quint2x4, quint4x2, quint8
from zeropoint.tensor import QTensor

BYTES = (qint8, quint8, qint32)
PACKED = (quint4x2, quint2x4)
DTYPES = (*BYTES, *PACKED)
SCHEMES = ("per_tensor", "per_channel", "per_channel_float")
MEMORY_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}

Pair = tuple[QTensor, torch.Tensor]


def torch_dtype(dtype: QuantizedDtype) -> torch.dtype:
    return getattr(torch, dtype.name)


def strides(t: torch.Tensor) -> list[int]:
    """Strides that mean something: of axes with more than one element, in a tensor that has some."""
    return [s for s, n in zip(t.stride(), t.shape) if n > 1] if t.numel() else []


def assert_pair(ours: torch.Tensor, oracle: torch.Tensor, layout: bool = True) -> None:
    """The same dtype, scheme, qparams, shape, strides (of one `layout`), integers and values."""
    assert isinstance(ours, QTensor)
    assert repr(ours.qdtype).removeprefix("zeropoint.") == str(oracle.dtype).removeprefix("torch.")
    assert repr(ours.qscheme()).removeprefix("zeropoint.") == str(oracle.qscheme()).removeprefix("torch.")
    assert ours.shape == oracle.shape
    assert ours.device == oracle.device
    assert not layout or strides(ours) == strides(oracle)
    if ours.qscheme().per_channel:
        assert_same(ours.q_per_channel_scales(), oracle.q_per_channel_scales())
        assert_same(ours.q_per_channel_zero_points(), oracle.q_per_channel_zero_points())
        assert ours.q_per_channel_axis() == oracle.q_per_channel_axis()
    else:
        assert (ours.q_scale(), ours.q_zero_point()) == (oracle.q_scale(), oracle.q_zero_point())
    assert_same(ours.int_repr(), oracle.int_repr())
    if ours.numel() or not ours.qscheme().per_channel:  # PyTorch divides by the size of an empty axis
        # In 32 bits PyTorch wraps around where the difference of an integer and its zero point is too large.
        known = (ours.values() // 2**30 + 1) // 2 == 0 if ours.qdtype == qint32 else torch.tensor(True)
        assert_same(ours.dequantize().where(known, 0.0), oracle.dequantize().where(known, 0.0))


def assert_equal_qtensors(a: torch.Tensor, b: torch.Tensor) -> None:
    """Two QTensors that cannot be told apart, but for where they are."""
    assert isinstance(a, QTensor)
    assert isinstance(b, QTensor)
    assert (a.qdtype, a.shape, a.stride()) == (b.qdtype, b.shape, b.stride())
    assert a._quantizer.same(b._quantizer)
    assert_same(a.int_repr(), b.int_repr())
    assert_same(a.dequantize(), b.dequantize())


def make(dtype: QuantizedDtype, scheme: str = "per_tensor", shape: tuple[int, ...] = (3, 4), axis: int = 0) -> QTensor:
    """An ordinary QTensor with different values."""
    x = torch.linspace(-1.0, 2.0, torch.Size(shape).numel()).reshape(shape)
    if scheme == "per_tensor":
        return zeropoint.quantize_per_tensor(x, 0.25, 2, dtype)
    steps = torch.linspace(0.1, 0.4, shape[axis])
    zero_points = torch.arange(shape[axis]) % 3
    if scheme == "per_channel_float":
        zero_points = zero_points.float()
    return zeropoint.quantize_per_channel(x, steps, zero_points, axis, dtype)


def every_kind() -> list[tuple[QuantizedDtype, str]]:
    """Each dtype with each scheme it can have."""
    return [(d, s) for d in DTYPES for s in SCHEMES if possible(d, s)]


def possible(dtype: QuantizedDtype, scheme: str) -> bool:
    """PyTorch dies of qint32 with float zero points; sub-byte types have no integer zero points per channel."""
    return not (dtype == qint32 and scheme == "per_channel_float") and not (dtype in PACKED and scheme == "per_channel")


@st.composite
def pairs(
    draw: st.DrawFn,
    dtypes: tuple[QuantizedDtype, ...] = BYTES,
    schemes: tuple[str, ...] = SCHEMES,
    min_dims: int = 0,
    max_dims: int = 5,
) -> Pair:
    """Any kind of quantized tensor: dtypes, schemes, contiguous and channels last, empty and of no dimensions."""
    dtype = draw(st.sampled_from(dtypes))
    scheme = draw(st.sampled_from([s for s in schemes if possible(dtype, s)]))
    least = min_dims if scheme == "per_tensor" else max(min_dims, 1)
    shape = draw(shapes(least, max_dims).filter(lambda s: math.prod(s) < 10_000))
    values = integers(draw(seeds), shape, dtype.torch_storage)
    if dtype == qint32:
        values = values % 4001 - 2000  # where float32 is exact, as PyTorch takes differences in it now and then
    # PyTorch cannot bring tensors with float zero points into another layout.
    channels_last = scheme != "per_channel_float" and draw(st.booleans())
    memory_format = MEMORY_FORMATS.get(len(shape)) if channels_last else None
    if memory_format:
        values = values.contiguous(memory_format=memory_format)
    if scheme == "per_tensor":
        scale, zero_point = draw(scales()), draw(st.integers(0, 100))
        ours = zeropoint.make_per_tensor_quantized_tensor(values, scale, zero_point)
        oracle = torch._make_per_tensor_quantized_tensor(values.contiguous(), scale, zero_point)
    else:
        # PyTorch has per-channel tensors in channels last along axes 0 and 1.
        axis = draw(st.integers(0, min(len(shape), 2 if memory_format else 5) - 1))
        g = generator(draw(seeds))
        # Of float32, so that a channel taken out, whose products are float32, has the same values to the bit.
        steps = torch.rand(shape[axis], generator=g) + 0.01
        zero_points = torch.randint(0, 100, (shape[axis],), generator=g)
        if scheme == "per_channel_float":
            zero_points = zero_points + torch.rand(shape[axis], generator=g)
        ours = zeropoint.make_per_channel_quantized_tensor(values, steps, zero_points, axis)
        oracle = torch._make_per_channel_quantized_tensor(values.contiguous(), steps, zero_points, axis)
    return ours, oracle.contiguous(memory_format=memory_format) if memory_format else oracle
