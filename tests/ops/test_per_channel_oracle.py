"""quantize_per_channel and dequantize_per_channel against PyTorch's decomposed library."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from decomposed_oracle import assert_like_the_oracle, ours
from hypothesis import given
from strategies import (
    FLOAT8,
    INPUTS,
    INTEGERS,
    assert_laid_out_like,
    assert_same,
    inputs,
    lay_out,
    qparams,
    quant_ranges,
    quantized_dtypes,
    shapes,
    stored,
)

ZERO_POINT_DTYPES = (torch.int8, torch.int32, torch.int64, torch.float32, torch.float64)


@st.composite
def channel_shapes(draw):
    """(shape, axis, channels); an axis may count from the back."""
    shape = draw(shapes(min_dims=1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return shape, axis, shape[axis]


def along(parameters: torch.Tensor, shape: tuple[int, ...], axis: int) -> torch.Tensor:
    sides = [1] * len(shape)
    sides[axis] = shape[axis]
    return parameters.view(sides)


@quantized_dtypes
@given(data=st.data())
def test_quantize_equals_the_oracle(isa, dtype, data):
    shape, axis, channels = data.draw(channel_shapes())
    scales, zero_points = data.draw(qparams((channels,), ZERO_POINT_DTYPES))
    x = data.draw(inputs(shape, along(scales, shape, axis)))
    arguments = (scales, zero_points, axis, *data.draw(quant_ranges(dtype)), dtype)
    assert_like_the_oracle("quantize_per_channel", x, *arguments)


@pytest.mark.parametrize("scale_dtype", [torch.float16, torch.bfloat16], ids=str)
@given(data=st.data())
def test_quantize_with_half_precision_scales_equals_the_oracle(isa, scale_dtype, data):
    shape, axis, channels = data.draw(channel_shapes())
    scales, zero_points = data.draw(qparams((channels,), [torch.int32], [scale_dtype]))
    x = data.draw(inputs(shape, along(scales, shape, axis)))
    arguments = (scales, zero_points, axis, -128, 127, torch.int8)
    assert_like_the_oracle("quantize_per_channel", x, *arguments)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given(data=st.data())
def test_dequantize_equals_the_oracle(isa, dtype, data):
    shape, axis, channels = data.draw(channel_shapes())
    q = data.draw(stored(shape, dtype))
    # Narrower integers wrap around in PyTorch; see below.
    kinds = [torch.int64, torch.float32, torch.float64, None] + [torch.int32] * (dtype != torch.int32)
    scales, zero_points = data.draw(qparams((channels,), kinds))
    out_dtype = data.draw(st.sampled_from([None, *INPUTS]))
    arguments = (scales, zero_points, axis, *data.draw(quant_ranges(dtype)), dtype)
    assert_like_the_oracle("dequantize_per_channel", q, *arguments, out_dtype=out_dtype)


@pytest.mark.parametrize("scale_dtype", [torch.float16, torch.bfloat16], ids=str)
@given(data=st.data())
def test_dequantize_with_half_precision_scales_equals_the_oracle(isa, scale_dtype, data):
    shape, axis, channels = data.draw(channel_shapes())
    q = data.draw(stored(shape, torch.int8))
    scales, zero_points = data.draw(qparams((channels,), [torch.int32], [scale_dtype]))
    arguments = (scales, zero_points, axis, -128, 127, torch.int8)
    assert_like_the_oracle("dequantize_per_channel", q, *arguments)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given(data=st.data())
def test_dequantize_does_not_wrap_around_with_zero_points_of_the_same_type(isa, dtype, data):
    """PyTorch subtracts in the type of the operands: int8 ``127 - (-128)`` is -1 there, and 255 here."""
    shape, axis, channels = data.draw(channel_shapes())
    q = data.draw(stored(shape, dtype))
    scales, _ = data.draw(qparams((channels,), [None]))
    zero_points = data.draw(stored((channels,), dtype))
    info = torch.iinfo(dtype)
    y = ours.dequantize_per_channel(q, scales, zero_points, axis, info.min, info.max, dtype)
    difference = q.to(torch.int64) - along(zero_points, shape, axis)
    assert_same(y, (difference * along(scales, shape, axis)).to(torch.float32))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@given(data=st.data())
def test_dequantize_of_float8_is_the_formula_in_float32(isa, dtype, data):
    """PyTorch raises here: it has no arithmetic between float8 and other types."""
    shape, axis, channels = data.draw(channel_shapes())
    q = data.draw(stored(shape, dtype))
    scales, zero_points = data.draw(qparams((channels,), [torch.int32, torch.int64, torch.float32, None]))
    out_dtype = data.draw(st.sampled_from([None, *INPUTS]))
    y = ours.dequantize_per_channel(
        q, scales, zero_points, axis, *data.draw(quant_ranges(dtype)), dtype, out_dtype=out_dtype
    )
    difference = q.to(torch.float32)
    if zero_points is not None:
        difference = difference - along(zero_points, shape, axis)
    assert_same(y, (difference * along(scales, shape, axis)).to(out_dtype or torch.float32))
    assert_laid_out_like(y, q)


def test_ties_round_to_even_before_the_zero_point_is_added(isa):
    x = torch.tensor([[-1.5, -0.5, 0.5, 1.5, 2.5]] * 2)
    q = ours.quantize_per_channel(x, torch.ones(2), torch.tensor([3, 4]), 0, -128, 127, torch.int8)
    assert q.tolist() == [[1, 3, 3, 5, 5], [2, 4, 4, 6, 6]]


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -2])
def test_every_axis_of_every_layout_uses_its_own_channels(isa, axis):
    for shape in ((3, 17, 4, 5), (2, 64, 9, 33)):
        scales = torch.arange(1, shape[axis] + 1, dtype=torch.float32)
        x = along(scales, shape, axis).expand(shape)
        for layout in ("contiguous", "channels_last", "permuted", "sliced"):
            q = ours.quantize_per_channel(
                lay_out(x, layout), scales, torch.zeros(shape[axis], dtype=torch.int64), axis, 0, 255, torch.uint8
            )
            assert torch.all(q == 1)
