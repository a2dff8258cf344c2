"""Fake quantization, forward and backward, against PyTorch's."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the oracle of fake_quant_per_channel
from hypothesis import assume, given
from strategies import (
    assert_laid_out_like,
    assert_same,
    generator,
    lay_out,
    layouts,
    numbers,
    scale_lists,
    scales,
    seeds,
    shapes,
    zero_point_list,
)

import zeropoint.ops

ours = torch.ops.zeropoint
oracle = torch.ops.quantized_decomposed

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
input_dtypes = pytest.mark.parametrize("input_dtype", FLOATS, ids=str)
RANGES = [
    (0, 255),
    (-128, 127),
    (0, 15),
    (-5, 3),
    (-32768, 32767),
    (-(2**24) - 3, 2**24 + 1),  # where float32 runs out of integers
    (-(2**31), 2**31 - 1),
    (0, 2**31 - 1),
]


def forward_and_gradient(function, x: torch.Tensor, *arguments):
    """Value, and gradient for an upstream gradient of many values, zeros of both signs among them."""
    leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    y = function(leaf, *arguments)
    upstream = numbers(3, x.shape, special=False, far=False).to(x.dtype)
    (gradient,) = torch.autograd.grad(y, leaf, upstream)
    return y.detach(), gradient


def compare(mine, theirs, x: torch.Tensor, *arguments) -> None:
    for a, b in zip(forward_and_gradient(mine, x, *arguments), forward_and_gradient(theirs, x, *arguments)):
        assert_same(a, b)


@input_dtypes
@given(data=st.data())
def test_per_tensor_equals_the_oracle(isa, input_dtype, data):
    scale = data.draw(scales())
    x = numbers(data.draw(seeds), data.draw(shapes()), scale).to(input_dtype)
    x = lay_out(x, data.draw(layouts))
    qmin, qmax = data.draw(st.sampled_from(RANGES))
    zero_point = data.draw(st.one_of(st.integers(qmin, qmax), st.sampled_from([qmin, qmax, 0, (qmin + qmax) // 2])))
    arguments = (scale, min(max(zero_point, qmin), qmax), qmin, qmax)
    compare(zeropoint.fake_quantize_per_tensor_affine, torch.fake_quantize_per_tensor_affine, x, *arguments)
    y, mask = ours.fake_quantize_per_tensor_affine_cachemask(x, *arguments)
    expected = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, *arguments)
    assert_same(y, expected[0])
    assert_same(mask, expected[1])
    assert_laid_out_like(y, x)


@input_dtypes
@given(data=st.data())
def test_per_tensor_with_tensor_parameters_equals_the_oracle(isa, input_dtype, data):
    scale = torch.tensor([data.draw(scales())], dtype=data.draw(st.sampled_from([torch.float32, torch.float64])))
    x = numbers(data.draw(seeds), data.draw(shapes()), scale).to(input_dtype)
    qmin, qmax = data.draw(st.sampled_from(RANGES))
    kind = data.draw(st.sampled_from([torch.int32, torch.int64]))
    zero_point = torch.tensor([data.draw(st.integers(qmin, qmax))], dtype=kind)
    arguments = (scale, zero_point, qmin, qmax)
    compare(zeropoint.fake_quantize_per_tensor_affine, torch.fake_quantize_per_tensor_affine, x, *arguments)


@st.composite
def channel_case(draw, input_dtype, zero_point_dtype, ranges=RANGES):
    shape = draw(shapes(min_dims=1))
    axis = draw(st.integers(0, len(shape) - 1))
    assume(shape[axis] > 0)  # PyTorch raises without channels
    sides = [1] * len(shape)
    sides[axis] = shape[axis]
    scale = draw(scale_lists(shape[axis]))
    x = numbers(draw(seeds), shape, scale.view(sides)).to(input_dtype)
    qmin, qmax = draw(st.sampled_from(ranges))
    zero_point = zero_point_list(draw(seeds), shape[axis], zero_point_dtype, max(qmin, -(2**30)), min(qmax, 2**30))
    if zero_point_dtype.is_floating_point:
        x = torch.where(same_on_every_cpu(x, scale.view(sides), zero_point.view(sides)), x, 0)
    x = lay_out(x, draw(layouts))
    if zero_point_dtype.is_floating_point:  # once more: an expanded tensor shows each value to other channels
        assume(same_on_every_cpu(x, scale.view(sides), zero_point.view(sides)).all())
    return x, scale, zero_point, axis, qmin, qmax


def same_on_every_cpu(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
    """Whether PyTorch's x / scale + zero_point rounds to one integer with FMA, which its compiler takes for AVX2 and
    AVX512, and without (ATEN_CPU_CAPABILITY=default)."""
    inverse, zero_point = 1.0 / scale, zero_point.float()
    apart = torch.round(x.float() * inverse + zero_point)
    fused = torch.round((x.double() * inverse.double() + zero_point.double()).float())
    return (apart == fused) | (apart.isnan() & fused.isnan())


@input_dtypes
@given(data=st.data())
def test_per_channel_equals_the_oracle(isa, input_dtype, data):
    x, *arguments = data.draw(channel_case(input_dtype, torch.int32))
    compare(zeropoint.fake_quantize_per_channel_affine, torch.fake_quantize_per_channel_affine, x, *arguments)
    y, mask = ours.fake_quantize_per_channel_affine_cachemask(x, *arguments)
    expected = torch.ops.aten.fake_quantize_per_channel_affine_cachemask(x, *arguments)
    assert_same(y, expected[0])
    assert_same(mask, expected[1])
    assert_laid_out_like(y, x)


@input_dtypes
@pytest.mark.parametrize("zero_point_dtype", [torch.float32, torch.float16], ids=str)
@given(data=st.data())
def test_per_channel_with_float_zero_points_equals_the_oracle(isa, input_dtype, zero_point_dtype, data):
    ranges = RANGES if zero_point_dtype == torch.float32 else RANGES[:4]
    x, *arguments = data.draw(channel_case(input_dtype, zero_point_dtype, ranges))
    compare(zeropoint.fake_quantize_per_channel_affine, torch.fake_quantize_per_channel_affine, x, *arguments)


def test_float_zero_points_are_added_before_the_product_is_rounded(isa):
    """-57.75 / 0.7 + 100 is just below 17.5. PyTorch with FMA has our number; without it the product is rounded first,
    the sum is a tie, and the result one step more."""
    scale, zero_point = torch.tensor([0.7]), torch.tensor([100.0])
    x = torch.full((1, 40), -57.75)
    exact = round(float(-57.75 * (1.0 / scale).double() + 100.0))
    expected = ((exact - zero_point) * scale).expand(1, 40)
    assert_same(zeropoint.fake_quantize_per_channel_affine(x, scale, zero_point, 0, 0, 255), expected.contiguous())
    theirs = torch.fake_quantize_per_channel_affine(x, scale, zero_point, 0, 0, 255)
    assert ((theirs - expected).abs() <= scale * 1.001).all()


@pytest.mark.parametrize("zero_point_dtype", [torch.float32, torch.float16], ids=str)
def test_float64_values_with_float_zero_points_are_rounded_in_float32(isa, zero_point_dtype):
    """28.7739... / scale + 71 is just below a tie in float64 and on it in float32."""
    x = torch.tensor([[28.773935317993164]], dtype=torch.float64)
    arguments = (torch.tensor([0.9434077]), torch.tensor([71.0], dtype=zero_point_dtype), 0, -128, 127)
    compare(zeropoint.fake_quantize_per_channel_affine, torch.fake_quantize_per_channel_affine, x, *arguments)


@given(data=st.data())
def test_int64_zero_points_per_channel_mean_the_same_as_int32(isa, data):
    """PyTorch takes int32 only; observers answer int64."""
    x, scale, zero_point, *rest = data.draw(channel_case(torch.float32, torch.int32))
    y = zeropoint.fake_quantize_per_channel_affine(x, scale, zero_point.to(torch.int64), *rest)
    assert_same(y, zeropoint.fake_quantize_per_channel_affine(x, scale, zero_point, *rest))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)], ids=str)
def test_empty_inputs_stay_empty(isa, shape):
    x = torch.zeros(shape, requires_grad=True)
    for axis, channels in enumerate(shape):
        parameters = torch.ones(channels), torch.zeros(channels, dtype=torch.int32), axis, -8, 7
        for function in (zeropoint.fake_quantize_per_channel_affine, ours.fake_quant_per_channel):
            y = function(x, *parameters)
            assert_same(y, torch.zeros(shape))
            assert torch.autograd.grad(y.sum(), x)[0].shape == shape
    assert_same(zeropoint.fake_quantize_per_tensor_affine(x, 1.0, 0, -8, 7), torch.zeros(shape))


def test_an_axis_may_count_from_the_back(isa):
    x = torch.randn(2, 3, 4)
    parameters = torch.rand(4) + 0.1, torch.zeros(4, dtype=torch.int32)
    assert_same(
        zeropoint.fake_quantize_per_channel_affine(x, *parameters, -1, -8, 7),
        torch.fake_quantize_per_channel_affine(x, *parameters, 2, -8, 7),
    )


@pytest.mark.parametrize("zero_point_dtype", [torch.int32, torch.int64], ids=str)
@given(data=st.data())
def test_decomposed_per_channel_equals_the_oracle(isa, zero_point_dtype, data):
    x, *arguments = data.draw(channel_case(torch.float32, zero_point_dtype))
    # PyTorch's is registered for autograd only.
    compare(ours.fake_quant_per_channel, oracle.fake_quant_per_channel, x, *arguments)


@given(data=st.data())
def test_decomposed_per_channel_takes_zero_points_outside_the_range(isa, data):
    x, scale, _, axis, _, _ = data.draw(channel_case(torch.float32, torch.int32))
    zero_point = zero_point_list(data.draw(seeds), len(scale), torch.int64, -1000, 1000)
    compare(
        ours.fake_quant_per_channel, oracle.fake_quant_per_channel, x, scale.to(torch.float64), zero_point, axis, -8, 7
    )


def test_nan_is_the_bottom_of_the_range_in_affine_and_nan_in_decomposed(isa):
    x = torch.tensor([[float("nan")] * 9, [float("inf")] * 9, [-float("inf")] * 9])
    expected = torch.tensor([-8.0, 7.0, -8.0]).view(3, 1).expand(3, 9)
    assert torch.equal(zeropoint.fake_quantize_per_tensor_affine(x, 1.0, 0, -8, 7), expected)
    parameters = torch.ones(9), torch.zeros(9, dtype=torch.int32), 1, -8, 7
    per_channel = zeropoint.fake_quantize_per_channel_affine(x, *parameters)
    # Per channel PyTorch goes through int64, where everything too large is the smallest integer.
    assert torch.equal(per_channel, torch.full((3, 9), -8.0))
    decomposed = ours.fake_quant_per_channel(x, *parameters)
    assert decomposed[0].isnan().all()
    assert torch.equal(decomposed[1:], expected[1:])


def test_gradient_is_one_inside_the_range_and_zero_outside(isa):
    x = torch.linspace(-20, 20, 1001, requires_grad=True)
    zeropoint.fake_quantize_per_tensor_affine(x, 1.0, 0, -8, 7).sum().backward()
    inside = (x >= -8.5) & (x <= 7.5 - 1e-6)  # 7.5 rounds to 8
    assert torch.equal(x.grad, inside.to(torch.float32))


OPERATORS = {
    "per-tensor": lambda x: zeropoint.fake_quantize_per_tensor_affine(x, 0.5, 0, -3, 3),
    "per-channel": lambda x: zeropoint.fake_quantize_per_channel_affine(
        x, torch.full((4,), 0.5), torch.zeros(4, dtype=torch.int32), 1, -3, 3
    ),
    "decomposed": lambda x: ours.fake_quant_per_channel(
        x, torch.full((4,), 0.5), torch.zeros(4, dtype=torch.int32), 1, -3, 3
    ),
}


@pytest.mark.parametrize("function", OPERATORS.values(), ids=OPERATORS.keys())
def test_second_order_gradient_passes_through_the_mask(isa, function):
    x = torch.randn(5, 4, generator=generator(1)).requires_grad_()
    y = function(x)
    upstream = torch.randn(5, 4, generator=generator(2)).requires_grad_()
    (first,) = torch.autograd.grad(y, x, upstream, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum(), upstream)
    mask = (torch.round(x / 0.5).abs() <= 3).to(torch.float32)
    assert torch.equal(first, upstream * mask)
    assert torch.equal(second, 2 * upstream * mask)


@pytest.mark.parametrize("function", OPERATORS.values(), ids=OPERATORS.keys())
def test_inputs_that_need_no_gradient_get_none(isa, function):
    assert not function(torch.randn(5, 4)).requires_grad
    with torch.no_grad():
        assert not function(torch.randn(5, 4, requires_grad=True)).requires_grad


@pytest.mark.parametrize("layout", ["channels_last", "permuted", "sliced", "expanded"])
def test_gradients_keep_up_with_any_layout_of_upstream(isa, layout):
    x = torch.randn(2, 3, 4, 5)
    upstream = lay_out(torch.randn(2, 3, 4, 5), layout)
    for memory in (x, x.contiguous(memory_format=torch.channels_last)):
        leaf = memory.clone().requires_grad_()
        y = zeropoint.fake_quantize_per_tensor_affine(leaf, 0.25, 0, -3, 3)
        (gradient,) = torch.autograd.grad(y, leaf, upstream)
        assert torch.equal(gradient, upstream * (torch.round(x / 0.25).abs() <= 3))
