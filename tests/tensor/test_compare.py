"""equal and the six comparisons, against PyTorch's quantized tensors."""

from __future__ import annotations

import operator

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from strategies import lay_out, layouts, numbers, scales, seeds, shapes
from twins import DTYPES, integers_near, mine, theirs, zero_points

import zeropoint
from zeropoint import qint8, qint32, quint4x2, quint8

COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
by_comparison = pytest.mark.parametrize("compare", COMPARISONS, ids=lambda c: c.__name__)


def drawn(data: st.DataObject, dtype: zeropoint.QuantizedDtype) -> tuple[tuple[float, int], torch.Tensor]:
    """Qparams and integers. 32-bit ones are halved: where q - zero_point needs 33 bits PyTorch's wraps around."""
    scale, zero_point = data.draw(scales()), data.draw(zero_points(dtype))
    values = integers_near(data.draw(seeds), data.draw(shapes()), zero_point, dtype)
    return ((scale, zero_point // 2), values // 2) if dtype == qint32 else ((scale, zero_point), values)


@by_comparison
@by_dtype
@given(data=st.data())
def test_two_quantized_tensors(dtype, compare, data):
    qparams, a = drawn(data, dtype)
    a = lay_out(a, data.draw(layouts))
    other, _ = drawn(data, dtype) if data.draw(st.booleans()) else (qparams, None)
    b = torch.where(torch.rand(a.shape) < 0.5, a, a.roll(1))
    ours = compare(mine(a, *qparams, dtype), mine(b, *other, dtype))
    assert ours.dtype == torch.bool
    assert torch.equal(ours, compare(theirs(a, *qparams), theirs(b, *other)))


@by_comparison
@by_dtype
@given(data=st.data())
def test_against_floats_and_numbers(dtype, compare, data):
    (scale, zero_point), a = drawn(data, dtype)
    q, oracle = mine(a, scale, zero_point, dtype), theirs(a, scale, zero_point)
    floats = numbers(data.draw(seeds), a.shape, scale)
    floats = torch.where(torch.rand(a.shape) < 0.5, floats, q.dequantize())
    kind = data.draw(st.sampled_from([torch.float32, torch.float64, torch.float16]))
    assert torch.equal(compare(q, floats.to(kind)), compare(oracle, floats.to(kind)))
    assert torch.equal(compare(floats, q), compare(floats, oracle))
    assert torch.equal(compare(q, torch.tensor(2)), compare(oracle, torch.tensor(2)))
    for number in (0, 0.5, 3 * scale, -float("inf"), float("nan")):
        assert torch.equal(compare(q, number), compare(oracle, number))
        assert torch.equal(compare(number, q), compare(number, oracle))


@by_comparison
def test_broadcasting_and_other_dtypes(compare):
    a = zeropoint.quantize_per_tensor(torch.randn(3, 1, 5), 0.1, 3, quint8)
    for b in (
        zeropoint.quantize_per_tensor(torch.randn(4, 1), 0.1, 3, quint8),
        zeropoint.quantize_per_tensor(torch.randn(4, 1), 0.2, -3, qint8),
        zeropoint.quantize_per_tensor(torch.randn(4, 1), 0.2, 3, quint4x2),
        zeropoint.quantize_per_channel(torch.randn(4, 1), torch.rand(4) + 0.1, torch.zeros(4), 0, qint8),
    ):
        assert torch.equal(compare(a, b), compare(a.dequantize(), b.dequantize()))


@pytest.mark.parametrize("scale", [1e-42, 1e38, -0.5])
@by_comparison
def test_integers_do_not_decide_where_their_order_is_not_that_of_the_values(compare, scale):
    q = mine(torch.arange(0, 256, dtype=torch.uint8), scale, 3, quint8)
    other = mine(torch.arange(255, -1, -1, dtype=torch.uint8), scale, 3, quint8)
    assert torch.equal(compare(q, other), compare(q.dequantize(), other.dequantize()))


@by_dtype
@given(data=st.data())
def test_equal(dtype, data):
    (scale, zero_point), a = drawn(data, dtype)
    b = a.clone()
    if a.numel() and data.draw(st.booleans()):
        b.view(-1)[-1] ^= 1
    b = lay_out(b, data.draw(st.sampled_from(["contiguous", "channels_last", "sliced"])))
    q, oracle = mine(a, scale, zero_point, dtype), theirs(a, scale, zero_point)
    another = zero_point - 1 if zero_point > dtype.qmin else zero_point + 1
    for other in ((scale, zero_point), (scale * 2, zero_point), (scale, another)):
        assert torch.equal(q, mine(b, *other, dtype)) == torch.equal(oracle, theirs(b, *other))


def test_equal_asks_for_dtype_shape_and_scheme():
    x = torch.tensor([[1.0, 2.0]])
    q = zeropoint.quantize_per_tensor(x, 0.5, 0, qint8)
    assert q.equal(zeropoint.quantize_per_tensor(x, 0.5, 0, qint8))
    assert not q.equal(zeropoint.quantize_per_tensor(x, 0.5, 0, quint8))
    assert not q.equal(zeropoint.quantize_per_tensor(x[0], 0.5, 0, qint8))
    assert not q.equal(x)
    assert not torch.equal(x, q)
    scales, zero_points = torch.tensor([0.5, 0.5]), torch.tensor([0, 0])
    channels = zeropoint.quantize_per_channel(x, scales, zero_points, 1, qint8)
    assert not q.equal(channels)
    assert channels.equal(zeropoint.quantize_per_channel(x, scales, zero_points, 1, qint8))
    assert not channels.equal(zeropoint.quantize_per_channel(x, scales * 2, zero_points, 1, qint8))


def test_packed_tensors_are_equal_where_their_values_are():
    x = torch.tensor([1.0, 2.0, 3.0, 0.0])
    q = zeropoint.quantize_per_tensor(x, 1.0, 0, quint4x2)
    assert q.equal(zeropoint.quantize_per_tensor(x.repeat_interleave(2), 1.0, 0, quint4x2)[::2])
    assert not q.equal(q.flip(0))


def test_close_with_tolerances_or_the_way_out():
    x = torch.tensor([1.0, 2.0, 3.0])
    a, b = (zeropoint.quantize_per_tensor(x, scale, 0, qint8) for scale in (0.1, 0.1001))
    assert torch.allclose(a, b, atol=0.01)
    assert not torch.allclose(a, b, atol=1e-6)
    assert torch.allclose(a, a.dequantize())
    torch.testing.assert_close(a, a.clone(), rtol=0, atol=0)
    with pytest.raises(
        ValueError, match=r"call \.dequantize\(\) first\. torch\.isclose and torch\.testing\.assert_close"
    ):
        torch.isclose(a, b)
