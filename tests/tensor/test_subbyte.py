"""Types below a byte: really packed, and right where PyTorch's are not."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from pairs import PACKED, assert_equal_qtensors, make
from strategies import assert_same, examples

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, quint2x4, quint4x2

SHAPES = [(), (0,), (1,), (5,), (1, 4), (1, 5), (3, 5), (2, 3, 4), (1000, 1001)]


@pytest.mark.parametrize("dtype", PACKED, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_memory_is_a_fraction_of_a_byte_per_element(dtype: QuantizedDtype, shape: tuple[int, ...]) -> None:
    q = zeropoint.quantize_per_tensor(torch.ones(shape), 1.0, 2, dtype)
    bytes_needed = -(-q.numel() * dtype.bits // 8)
    everything = [
        q,
        q.clone(),
        zeropoint.empty_like(q),
        zeropoint.empty_affine_quantized(shape, dtype=dtype),
        q.reshape(-1),
        torch.stack([q])[0],
    ]
    for t in everything:
        assert t._data.untyped_storage().nbytes() == t.nbytes == t.int_repr().numel() == bytes_needed
    oracle = torch.quantize_per_tensor(torch.ones(shape), 1.0, 2, getattr(torch, dtype.name))
    if q.numel():
        assert bytes_needed <= oracle.untyped_storage().nbytes()  # PyTorch makes room for whole bytes in each row
        assert_same(q.int_repr(), oracle.int_repr())


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((1,), quint2x4, [3]),
        ((1, 4), quint4x2, [51, 51]),
        ((1, 4), quint2x4, [255]),
        ((1, 5), quint4x2, [51, 51, 3]),
        ((1, 5), quint2x4, [255, 3]),
    ],
)
def test_int_repr_is_the_packed_bytes(shape: tuple[int, ...], dtype: QuantizedDtype, expected: list[int]) -> None:
    q = zeropoint.quantize_per_tensor(torch.ones(shape), 1.0, 2, dtype)
    assert q.int_repr().tolist() == expected
    assert (q.q_scale(), q.q_zero_point()) == (1.0, 2)
    assert q.storage().nbytes() == len(expected)


@pytest.mark.parametrize("dtype", PACKED, ids=repr)
def test_per_channel_is_packed_in_row_major_order(dtype: QuantizedDtype) -> None:
    x = torch.rand(3, 2, 4, 5) * 4
    steps, zero_points = torch.tensor([0.2, 0.03]), torch.tensor([0.1, 0.2])
    q = zeropoint.quantize_per_channel(x, steps, zero_points, 1, dtype)
    expected = torch.round(x * (1 / steps)[:, None, None] + zero_points[:, None, None]).clamp(0, dtype.qmax)
    flat = expected.to(torch.uint8).view(-1, dtype.per_byte)
    assert_same(q.int_repr(), sum(flat[:, i] << i * dtype.bits for i in range(dtype.per_byte)).to(torch.uint8))


@pytest.mark.parametrize("dtype", PACKED, ids=repr)
def test_channels_last(dtype: QuantizedDtype) -> None:
    x = torch.rand(2, 3, 4, 5) * 3
    q = zeropoint.quantize_per_tensor(x, 1.0, 0, dtype)
    last = zeropoint.quantize_per_tensor(x.contiguous(memory_format=torch.channels_last), 1.0, 0, dtype)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert last.dequantize().is_contiguous(memory_format=torch.channels_last)
    assert last.nbytes == last._data.untyped_storage().nbytes() == q.nbytes
    assert_same(last.dequantize(), q.dequantize())
    assert_same(last.int_repr(), q.int_repr())
    assert_equal_qtensors(last.contiguous(), q)
    assert_equal_qtensors(q.contiguous(memory_format=torch.channels_last), last)


def test_unused_bits_are_not_shown() -> None:
    q = zeropoint.quantize_per_tensor(torch.full((4,), 13.0), 1.0, 0, quint4x2)
    assert q[:1].int_repr().tolist() == [13]
    assert q[:3].int_repr().tolist() == [13 * 17, 13]
    assert q[1:2].int_repr().tolist() == [13]
    assert q[1:].int_repr().tolist() == [13 * 17, 13]


@examples(80)
@given(st.sampled_from(PACKED), st.data())
def test_a_part_is_what_the_part_of_bytes_would_be(dtype: QuantizedDtype, data: st.DataObject) -> None:
    """Any history of slicing and writing gives what it gives with one value in a byte."""
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    q = make(dtype, shape=shape)
    model = q.dequantize()
    part, expected = q, model
    for _ in range(data.draw(st.integers(1, 4))):
        if not part.dim():
            break
        dim = data.draw(st.integers(0, part.dim() - 1))
        start = data.draw(st.integers(0, part.shape[dim]))
        step = data.draw(st.integers(1, 2))
        key = (*[slice(None)] * dim, slice(start, None, step))
        part, expected = part[key], expected[key]
        if data.draw(st.booleans()):
            part, expected = part.transpose(0, dim), expected.transpose(0, dim)
        if part.shape[0] and data.draw(st.booleans()):
            part, expected = part[-1], expected[-1]
    assert_same(part.dequantize(), expected.contiguous())
    part.fill_(0.25)
    expected.fill_(0.25)
    assert_same(q.dequantize(), model)
    source = zeropoint.quantize_per_tensor(torch.zeros(part.shape), 0.25, 2, dtype)
    part.copy_(source)
    expected.fill_(0.0)
    assert_same(q.dequantize(), model)


def test_equal_packed_tensors() -> None:
    x = torch.rand(5)
    a, b = (zeropoint.quantize_per_tensor(x, 0.1, 10, quint4x2) for _ in range(2))
    assert torch.equal(a, b)
