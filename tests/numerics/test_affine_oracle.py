"""The mathematics against PyTorch's quantized tensors: every variant where PyTorch uses it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from strategies import (
    assert_laid_out_like,
    assert_same,
    integers,
    lay_out,
    layouts,
    numbers,
    scale_lists,
    scales,
    seeds,
    shapes,
    zero_point_list,
)

import zeropoint
from zeropoint.numerics import affine, blocks
from zeropoint.numerics.affine import RoundingVariant

EIGHT_BIT = (zeropoint.quint8, zeropoint.qint8)
ALL = (*EIGHT_BIT, zeropoint.qint32)


def torch_dtype(dtype: zeropoint.QuantizedDtype) -> torch.dtype:
    return getattr(torch, dtype.name)


def target(dtype: zeropoint.QuantizedDtype) -> dict:
    return {"qmin": dtype.qmin, "qmax": dtype.qmax, "dtype": dtype.torch_storage}


@st.composite
def channel_shapes(draw):
    shape = draw(shapes(min_dims=1))
    axis = draw(st.integers(0, len(shape) - 1))
    sides = [1] * len(shape)
    sides[axis] = shape[axis]
    return shape, axis, sides


# ---------------------------------------------------------------------------------------------------- per tensor


@pytest.mark.parametrize("dtype", EIGHT_BIT, ids=repr)
@given(data=st.data())
def test_fused_is_quantize_per_tensor_to_8_bits(isa, dtype, data):
    scale = data.draw(scales())
    x = lay_out(numbers(data.draw(seeds), data.draw(shapes()), scale), data.draw(layouts))
    zero_point = data.draw(st.integers(dtype.qmin, dtype.qmax))
    q = affine.quantize_tensor(x, scale, zero_point, **target(dtype), variant=RoundingVariant.fused)
    assert_same(q, torch.quantize_per_tensor(x, scale, zero_point, torch_dtype(dtype)).int_repr())
    assert_laid_out_like(q, x)


@given(data=st.data())
def test_saturating_is_quantize_per_tensor_to_qint32(isa, data):
    scale = data.draw(scales())
    x = numbers(data.draw(seeds), data.draw(shapes()), scale)
    zero_point = data.draw(st.one_of(st.integers(-300, 300), st.sampled_from([-(2**31), 2**24 + 1, 2**31 - 1])))
    q = affine.quantize_tensor(x, scale, zero_point, **target(zeropoint.qint32), variant=RoundingVariant.saturating)
    assert_same(q, torch.quantize_per_tensor(x, scale, zero_point, torch.qint32).int_repr())


@pytest.mark.parametrize("special", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize("dtype", ALL, ids=repr)
def test_special_values_are_the_same_at_every_position(isa, dtype, special):
    variant = RoundingVariant.saturating if dtype.bits == 32 else RoundingVariant.fused
    for length in (1, 3, 8, 15, 32, 33, 65, 130):
        x = torch.full((length,), special)
        q = affine.quantize_tensor(x, 0.5, 3, **target(dtype), variant=variant)
        assert_same(q, torch.quantize_per_tensor(x, 0.5, 3, torch_dtype(dtype)).int_repr())
        if special != special and dtype.bits == 8:
            assert q.eq(dtype.qmax).all()


@pytest.mark.parametrize("dtype", EIGHT_BIT, ids=repr)
def test_every_tie_is_the_oracle_s(isa, dtype):
    """The three variants differ here and only here."""
    for scale in (1.0, 0.5, 0.1, 1 / 3, 0.0078125, 3.7):
        x = (torch.arange(-600, 600).to(torch.float32) + 0.5) * scale
        for zero_point in (dtype.qmin, 0, 1, 2, 3, dtype.qmax):
            q = affine.quantize_tensor(x, scale, zero_point, **target(dtype), variant=RoundingVariant.fused)
            assert_same(q, torch.quantize_per_tensor(x, scale, zero_point, torch_dtype(dtype)).int_repr())


@pytest.mark.parametrize("dtype", ALL, ids=repr)
@given(data=st.data())
def test_exact_dequantize_is_dequantize_per_tensor(isa, dtype, data):
    q = lay_out(integers(data.draw(seeds), data.draw(shapes()), dtype.torch_storage), data.draw(layouts))
    scale = data.draw(scales())
    zero_point = data.draw(st.one_of(st.integers(-128, 127), st.sampled_from([dtype.qmin, dtype.qmax])))
    zero_point = min(max(zero_point, dtype.qmin), dtype.qmax)
    y = affine.dequantize_tensor(q, scale, zero_point, exact=True)
    assert_laid_out_like(y, q)
    # Of qint32, PyTorch's differences wrap around in int32; ours do not.
    difference = q.to(torch.int64) - zero_point
    assert_same(y, difference.to(torch.float32) * scale)
    expected = torch._make_per_tensor_quantized_tensor(q.contiguous(), scale, zero_point).dequantize()
    fits = difference == difference.to(torch.int32)
    assert_same(y[fits], expected[fits])


# --------------------------------------------------------------------------------------------------- per channel


def per_channel_oracle(x, scale, zero_point, axis, dtype) -> torch.Tensor:
    if axis > 1:  # where PyTorch refuses channels-last tensors
        x = x.contiguous()
    return torch.quantize_per_channel(x, scale, zero_point, axis, torch_dtype(dtype)).int_repr()


@pytest.mark.parametrize("dtype", ALL, ids=repr)
@given(data=st.data())
def test_saturating_is_quantize_per_channel(isa, dtype, data):
    shape, axis, sides = data.draw(channel_shapes())
    scale = data.draw(scale_lists(shape[axis], data.draw(st.sampled_from([torch.float32, torch.float64]))))
    zero_point = zero_point_list(
        data.draw(seeds), shape[axis], torch.int64, max(dtype.qmin, -(2**25)), min(dtype.qmax, 2**25)
    )
    x = lay_out(numbers(data.draw(seeds), shape, scale.view(sides)), data.draw(layouts))
    # PyTorch keeps float64 scales and quantizes with their float32.
    q = affine.quantize(
        x,
        scale.to(torch.float32),
        zero_point,
        blocks.per_channel(shape, axis),
        **target(dtype),
        variant=RoundingVariant.saturating,
    )
    assert_same(q, per_channel_oracle(x, scale, zero_point, axis, dtype))
    assert_laid_out_like(q, x)


@pytest.mark.parametrize("dtype", EIGHT_BIT, ids=repr)
@given(data=st.data())
def test_wrapping_is_quantize_per_channel_with_float_zero_points(isa, dtype, data):
    shape, axis, sides = data.draw(channel_shapes())
    scale = data.draw(scale_lists(shape[axis]))
    zero_point = zero_point_list(data.draw(seeds), shape[axis], torch.float32)
    x = lay_out(numbers(data.draw(seeds), shape, scale.view(sides)), data.draw(layouts))
    q = affine.quantize(
        x, scale, zero_point, blocks.per_channel(shape, axis), **target(dtype), variant=RoundingVariant.wrapping
    )
    assert_same(q, per_channel_oracle(x, scale, zero_point, axis, dtype))
    assert_laid_out_like(q, x)


@pytest.mark.parametrize("dtype", ALL, ids=repr)
@given(data=st.data())
def test_float64_dequantize_is_dequantize_per_channel(isa, dtype, data):
    shape, axis, _ = data.draw(channel_shapes())
    q = lay_out(integers(data.draw(seeds), shape, dtype.torch_storage), data.draw(layouts))
    scale = data.draw(scale_lists(shape[axis], torch.float64))
    zero_point = zero_point_list(
        data.draw(seeds), shape[axis], torch.int64, max(dtype.qmin, -(2**31)), min(dtype.qmax, 2**31 - 1)
    )
    y = affine.dequantize(q, scale, zero_point, blocks.per_channel(shape, axis), exact=False)
    expected = torch._make_per_channel_quantized_tensor(q.contiguous(), scale, zero_point, axis).dequantize()
    assert_same(y, expected)


@pytest.mark.parametrize("dtype", EIGHT_BIT, ids=repr)
@given(data=st.data())
def test_dequantize_with_float_zero_points_is_the_oracle_s(isa, dtype, data):
    shape, axis, sides = data.draw(channel_shapes())
    scale = data.draw(scale_lists(shape[axis]))
    zero_point = zero_point_list(data.draw(seeds), shape[axis], torch.float32)
    x = numbers(data.draw(seeds), shape, scale.view(sides), special=False)
    quantized = torch.quantize_per_channel(x, scale, zero_point, axis, torch_dtype(dtype))
    y = affine.dequantize(quantized.int_repr(), scale, zero_point, blocks.per_channel(shape, axis))
    assert_same(y, quantized.dequantize())


# --------------------------------------------------------------------------------------------------------- range


@pytest.mark.parametrize("input_dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@given(data=st.data())
def test_minmax_of_a_tensor_is_aminmax(isa, input_dtype, data):
    x = numbers(data.draw(seeds), data.draw(shapes(min_side=1)), special=data.draw(st.booleans()))
    x = lay_out(x.to(input_dtype), data.draw(layouts))
    low, high = affine.minmax(x, blocks.per_tensor(x.shape))
    expected = torch.aminmax(x)
    assert torch.equal(low, expected.min.reshape(1)) or (low.isnan() and expected.min.isnan())
    assert torch.equal(high, expected.max.reshape(1)) or (high.isnan() and expected.max.isnan())


@given(data=st.data())
def test_minmax_of_channels_is_amin_and_amax(isa, data):
    shape = data.draw(shapes(min_dims=1, min_side=1))
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = lay_out(numbers(data.draw(seeds), shape, special=data.draw(st.booleans())), data.draw(layouts))
    low, high = affine.minmax(x, blocks.per_channel(shape, axis))
    rest = [d for d in range(len(shape)) if d != axis]
    expected = (x.amin(rest), x.amax(rest)) if rest else (x, x)
    # +0 and -0 are equal, and which of them is the smallest is nobody's concern.
    torch.testing.assert_close(low, expected[0], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(high, expected[1], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("position", [0, 1, 7, 8, 31, 40, 63, 64, 99])
def test_one_nan_anywhere_makes_the_range_nan(isa, position):
    x = torch.randn(100)
    x[position] = float("nan")
    low, high = affine.minmax(x, (100,))
    assert low.isnan()
    assert high.isnan()


# -------------------------------------------------------------------------------- both bodies of each function


@pytest.mark.parametrize("variant", [RoundingVariant.split, RoundingVariant.joined], ids=lambda s: s.name)
@given(data=st.data())
def test_the_formula_for_other_devices_is_the_kernel(isa, variant, data):
    """float64 inputs take the formula; of float32 values with float64 scales the kernel makes the same."""
    shape, axis, sides = data.draw(channel_shapes())
    scale = data.draw(scale_lists(shape[axis], torch.float64))
    zero_point = zero_point_list(data.draw(seeds), shape[axis], torch.int64)
    x = numbers(data.draw(seeds), shape, scale.view(sides))
    block = blocks.per_channel(shape, axis)
    for dtype in ALL:
        kernel = affine.quantize(x, scale, zero_point, block, **target(dtype), variant=variant)
        formula = affine.quantize(x.to(torch.float64), scale, zero_point, block, **target(dtype), variant=variant)
        assert_same(kernel, formula)
