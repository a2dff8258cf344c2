"""Block-wise quantization against the formula with the parameters written out, and against its special cases."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from strategies import (
    FLOAT8,
    INPUTS,
    assert_laid_out_like,
    assert_same,
    inputs,
    lay_out,
    qparams,
    quant_ranges,
    quantized_dtypes,
    stored,
)

import zeropoint.ops  # noqa: F401 (registers the operators)

ours = torch.ops.zeropoint


@st.composite
def blocked(draw):
    """(shape, block size, number of blocks along each axis)."""
    if draw(st.integers(0, 15)) == 15:
        counts, block = draw(
            st.sampled_from(
                [((4, 5), (64, 33)), ((41003,), (1,)), ((1, 7, 3), (3, 1, 657)), ((2, 1, 6, 6), (2, 48, 6, 6))]
            )
        )
    else:
        rank = draw(st.integers(1, 4))
        counts = draw(st.tuples(*[st.integers(1, 4)] * rank))
        block = draw(st.tuples(*[st.integers(1, 9 if rank < 3 else 4)] * rank))
    return tuple(c * b for c, b in zip(counts, block)), list(block), counts


def spread(parameters: torch.Tensor, block: list[int]) -> torch.Tensor:
    """One parameter for each element."""
    for axis, size in enumerate(block):
        parameters = parameters.repeat_interleave(size, dim=axis)
    return parameters


@quantized_dtypes
@given(data=st.data())
def test_quantize_is_the_formula(isa, dtype, data):
    shape, block, counts = data.draw(blocked())
    scales, zero_points = data.draw(qparams(counts, [torch.int32, torch.int64, torch.float32]))
    x = data.draw(inputs(shape, spread(scales, block)))
    qmin, qmax = data.draw(quant_ranges(dtype))
    q = ours.quantize_per_block(x, block, scales, zero_points, qmin, qmax, dtype)
    v = torch.round(x.to(torch.float32) * spread(1.0 / scales, block)) + spread(zero_points, block)
    assert_same(q, v.clamp(qmin, qmax).to(dtype))
    assert_laid_out_like(q, x)
    flat = ours.quantize_per_block(x, block, scales.reshape(-1), zero_points.reshape(-1), qmin, qmax, dtype)
    assert_same(flat, q)


@quantized_dtypes
@given(data=st.data())
def test_dequantize_is_the_formula(isa, dtype, data):
    shape, block, counts = data.draw(blocked())
    scales, zero_points = data.draw(qparams(counts, [torch.int32, torch.int64, torch.float32, None]))
    q = data.draw(stored(shape, dtype))
    out_dtype = data.draw(st.sampled_from([None, *INPUTS]))
    y = ours.dequantize_per_block(
        q, block, scales, zero_points, *data.draw(quant_ranges(dtype)), dtype, out_dtype=out_dtype
    )
    values = q.to(torch.float32) if dtype in FLOAT8 else q.to(torch.int64)
    difference = values if zero_points is None else values - spread(zero_points, block)
    assert_same(y, (difference * spread(scales, block)).to(out_dtype or torch.float32))
    assert_laid_out_like(y, q)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "permuted", "sliced"])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_a_block_of_one_channel_is_per_channel(isa, axis, layout):
    shape = (3, 4, 5, 6)
    x = lay_out(torch.randn(shape), layout)
    block = [-1] * 4
    block[axis] = 1
    parameters = torch.rand(shape[axis]) + 0.1, torch.randint(-9, 9, (shape[axis],))
    q = ours.quantize_per_block(x, block, *parameters, -128, 127, torch.int8)
    assert_same(q, ours.quantize_per_channel(x, *parameters, axis, -128, 127, torch.int8))
    y = ours.dequantize_per_block(q, block, *parameters, -128, 127, torch.int8)
    assert_same(y, ours.dequantize_per_channel(q, *parameters, axis, -128, 127, torch.int8))


def test_a_block_of_neighbours_in_a_row_is_per_group(isa):
    x = torch.randn(6, 64)
    parameters = torch.rand(6, 4) + 0.1, torch.zeros(6, 4, dtype=torch.int32)  # with 0 the two roundings agree
    q = ours.quantize_per_block(x, [1, 16], *parameters, -8, 7, torch.int8)
    assert_same(q, ours.quantize_per_channel_group(x, *parameters, -8, 7, torch.int8, 16))
    y = ours.dequantize_per_block(q, [1, 16], *parameters, -8, 7, torch.int8)
    assert_same(y, ours.dequantize_per_channel_group(q, *parameters, -8, 7, torch.int8, 16, torch.float32))


def test_one_block_is_per_tensor(isa):
    x = torch.randn(7, 9)
    q = ours.quantize_per_block(x, [-1, -1], torch.tensor([0.5]), torch.tensor([3]), 0, 255, torch.uint8)
    assert_same(q, ours.quantize_per_tensor(x, 0.5, 3, 0, 255, torch.uint8))


def test_a_tensor_without_dimensions_is_one_block(isa):
    q = ours.quantize_per_block(torch.tensor(1.0), [], torch.tensor(0.5), torch.tensor(3), 0, 255, torch.uint8)
    assert_same(q, torch.tensor(5, dtype=torch.uint8))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)], ids=str)
def test_empty_tensors_have_blocks_too(isa, shape):
    block = [-1] * len(shape)
    q = ours.quantize_per_block(torch.zeros(shape), block, torch.tensor([0.5]), torch.tensor([3]), 0, 255, torch.uint8)
    assert_same(q, torch.zeros(shape, dtype=torch.uint8))
    y = ours.dequantize_per_block(q, block, torch.tensor([0.5]), torch.tensor([3]), 0, 255, torch.uint8)
    assert_same(y, torch.zeros(shape))
