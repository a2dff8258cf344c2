"""quantize_per_channel_group and dequantize_per_channel_group against PyTorch's decomposed library."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from decomposed_oracle import assert_like_the_oracle, oracle, ours
from hypothesis import given
from strategies import (
    FLOAT8,
    INPUTS,
    INTEGERS,
    assert_same,
    inputs,
    integers,
    numbers,
    qparams,
    quant_ranges,
    quantized_dtypes,
    scale_lists,
    seeds,
    stored,
    zero_point_list,
)

FLOATS = (*INPUTS, torch.float64)


@st.composite
def grouped(draw):
    """(rows, groups in a row, group size)."""
    if draw(st.integers(0, 15)) == 15:
        return draw(st.sampled_from([(40, 8, 128), (3, 427, 33), (1300, 1, 32), (5000, 4, 2)]))
    return draw(st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(2, 40)))


def spread(parameters: torch.Tensor, group_size: int) -> torch.Tensor:
    return parameters.repeat_interleave(group_size, dim=1)


@quantized_dtypes
@given(data=st.data())
def test_quantize_equals_the_oracle(isa, dtype, data):
    rows, groups, size = data.draw(grouped())
    kinds = [torch.int8, torch.int32, torch.int64, torch.float32, torch.float64]
    scales, zero_points = data.draw(qparams((rows, groups), kinds))
    # Beyond float16's range there is only infinity.
    x = data.draw(inputs((rows, groups * size), spread(scales, size), FLOATS, special=False))
    arguments = (scales, zero_points, *data.draw(quant_ranges(dtype)), dtype, size)
    assert_like_the_oracle("quantize_per_channel_group", x, *arguments)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given(data=st.data())
def test_dequantize_equals_the_oracle(isa, dtype, data):
    rows, groups, size = data.draw(grouped())
    q = data.draw(stored((rows, groups * size), dtype))
    kinds = [torch.int64, torch.float32, torch.float64, None] + [torch.int32] * (dtype != torch.int32)
    scales, zero_points = data.draw(qparams((rows, groups), kinds))
    arguments = (scales, zero_points, *data.draw(quant_ranges(dtype)), dtype, size, data.draw(st.sampled_from(FLOATS)))
    assert_like_the_oracle("dequantize_per_channel_group", q, *arguments)


@given(data=st.data())
def test_half_precision_parameters_equal_the_oracle(isa, data):
    """Weight-only models keep their scales in the type of the weights."""
    rows, groups, size = data.draw(grouped())
    half = data.draw(st.sampled_from([torch.float16, torch.bfloat16]))
    scales = data.draw(scale_lists(rows * groups, half, wild=False)).view(rows, groups)
    zero_points = zero_point_list(data.draw(seeds), rows * groups, half, -8, 8).view(rows, groups)
    x = numbers(data.draw(seeds), (rows, groups * size), spread(scales, size), special=False, far=False).to(half)
    q = ours.quantize_per_channel_group(x, scales, zero_points, -8, 7, torch.int8, size)
    assert_same(q, oracle.quantize_per_channel_group(x, scales, zero_points, -8, 7, torch.int8, size))
    arguments = (q, scales, zero_points, -8, 7, torch.int8, size, half)
    assert_same(ours.dequantize_per_channel_group(*arguments), oracle.dequantize_per_channel_group(*arguments))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_dequantize_of_float8_is_the_formula_in_float32(isa, dtype):
    """PyTorch raises here: it has no arithmetic between float8 and other types."""
    q = integers(7, (4, 60), dtype)
    scales = torch.rand(4, 5) + 0.1
    zero_points = torch.randint(-5, 5, (4, 5))
    expected = (q.to(torch.float32) - spread(zero_points, 12)) * spread(scales, 12)
    y = ours.dequantize_per_channel_group(
        q, scales, zero_points, -57344 if dtype == FLOAT8[0] else -448, 448, dtype, 12, torch.float32
    )
    assert_same(y, expected)


@pytest.mark.parametrize("rows", [1, 5])
def test_a_group_larger_than_the_row_is_the_row(isa, rows):
    """What GPTQ does when it quantizes single columns of a grouped matrix."""
    for columns in (1, 2, 17):
        x = torch.randn(rows, columns)
        scales, zero_points = torch.rand(rows, 1) + 0.1, torch.zeros(rows, 1)
        q = ours.quantize_per_channel_group(x, scales, zero_points, -8, 7, torch.int8, 128)
        assert_same(q, oracle.quantize_per_channel_group(x, scales, zero_points, -8, 7, torch.int8, 128))
        arguments = (q, scales, zero_points, -8, 7, torch.int8, 128, torch.float32)
        assert_same(ours.dequantize_per_channel_group(*arguments), oracle.dequantize_per_channel_group(*arguments))


def test_ties_round_to_even_after_the_zero_point_was_added(isa):
    x = torch.tensor([[-0.5, 0.5, -0.5, 0.5]])
    q = ours.quantize_per_channel_group(x, torch.ones(1, 2), torch.tensor([[3, 4]]), -128, 127, torch.int8, 2)
    assert q.tolist() == [[2, 4, 4, 4]]
