"""The per-token operators, and their parameters, against PyTorch's decomposed library."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from decomposed_oracle import assert_like_the_oracle, oracle, ours
from hypothesis import given
from strategies import (
    FLOAT8,
    HALVES,
    INPUTS,
    INTEGERS,
    assert_same,
    inputs,
    lay_out,
    layouts,
    numbers,
    qparams,
    quant_ranges,
    quantized_dtypes,
    seeds,
    shapes,
    stored,
)

FLOATS = (*INPUTS, torch.float64)
PARAMETER_OPS = (
    "choose_qparams_per_token",
    "choose_qparams_per_token_asymmetric",
    "_choose_qparams_per_token_asymmetric_impl",
)


@st.composite
def tokens(draw):
    """(shape, shape of the parameters); the last axis is the token."""
    shape = draw(shapes(min_dims=1))
    return shape, (*shape[:-1], 1)


@quantized_dtypes
@given(data=st.data())
def test_quantize_equals_the_oracle(isa, dtype, data):
    shape, sides = data.draw(tokens())
    scales, zero_points = data.draw(qparams(sides, [torch.int32, torch.int64, torch.float32, torch.float64]))
    x = data.draw(inputs(shape, scales, FLOATS))
    arguments = (scales, zero_points, *data.draw(quant_ranges(dtype)), dtype)
    assert_like_the_oracle("quantize_per_token", x, *arguments)


@given(data=st.data())
def test_quantize_with_half_precision_scales_equals_the_oracle(isa, data):
    shape, sides = data.draw(tokens())
    scales, zero_points = data.draw(qparams(sides, [torch.int64], HALVES))
    x = data.draw(inputs(shape, scales))
    arguments = (scales, zero_points, -128, 127, torch.int8)
    assert_like_the_oracle("quantize_per_token", x, *arguments)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given(data=st.data())
def test_dequantize_equals_the_oracle(isa, dtype, data):
    shape, sides = data.draw(tokens())
    q = data.draw(stored(shape, dtype))
    kinds = [torch.int64, torch.float32, torch.float64] + [torch.int32] * (dtype != torch.int32)
    scales, zero_points = data.draw(qparams(sides, kinds))
    arguments = (scales, zero_points, *data.draw(quant_ranges(dtype)), dtype, data.draw(st.sampled_from(FLOATS)))
    assert_like_the_oracle("dequantize_per_token", q, *arguments)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@given(data=st.data())
def test_dequantize_of_float8_is_the_formula_in_float32(isa, dtype, data):
    """PyTorch raises here: it has no arithmetic between float8 and other types."""
    shape, sides = data.draw(tokens())
    q = data.draw(stored(shape, dtype))
    scales, zero_points = data.draw(qparams(sides, [torch.int64]))
    out_dtype = data.draw(st.sampled_from(INPUTS))
    y = ours.dequantize_per_token(q, scales, zero_points, *data.draw(quant_ranges(dtype)), dtype, out_dtype)
    assert_same(y, ((q.to(torch.float32) - zero_points) * scales).to(out_dtype))


def test_ties_round_to_even_after_the_zero_point_was_added(isa):
    x = torch.tensor([[-1.5, -0.5, 0.5, 1.5, 2.5]] * 2)
    q = ours.quantize_per_token(x, torch.ones(2, 1), torch.tensor([[3], [4]]), -128, 127, torch.int8)
    assert q.tolist() == [[2, 2, 4, 4, 6], [2, 4, 4, 6, 6]]


def test_parameters_may_be_flat(isa):
    """PyTorch would broadcast them along the tokens themselves."""
    x = torch.randn(4, 5, 6)
    scales, zero_points = ours.choose_qparams_per_token_asymmetric(x, torch.int8)
    q = ours.quantize_per_token(x, scales, zero_points, -128, 127, torch.int8)
    flat = scales.reshape(-1), zero_points.reshape(-1)
    assert torch.equal(ours.quantize_per_token(x, *flat, -128, 127, torch.int8), q)
    y = ours.dequantize_per_token(q, scales, zero_points, -128, 127, torch.int8, torch.float32)
    assert torch.equal(ours.dequantize_per_token(q, *flat, -128, 127, torch.int8, torch.float32), y)


@pytest.mark.parametrize("op", PARAMETER_OPS)
@pytest.mark.parametrize("input_dtype", FLOATS, ids=str)
@given(data=st.data())
def test_parameters_equal_the_oracle(isa, op, input_dtype, data):
    shape = data.draw(shapes(min_dims=1).filter(lambda s: s[-1] > 0))
    step = data.draw(st.sampled_from([1e-30, 1e-9, 1e-3, 1.0, 100.0]))
    x = numbers(data.draw(seeds), shape, step, special=data.draw(st.booleans()), far=data.draw(st.booleans()))
    if data.draw(st.booleans()):
        x = x.abs() * data.draw(st.sampled_from([1, -1]))
    x = lay_out(x.to(input_dtype), data.draw(layouts))
    for y, expected in zip(getattr(ours, op)(x, torch.int8), getattr(oracle, op)(x, torch.int8)):
        assert_same(y, expected)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-12, -3e-6, 5.0, -5.0])
@pytest.mark.parametrize("op", PARAMETER_OPS)
def test_parameters_of_a_constant_row_equal_the_oracle(isa, op, value):
    x = torch.full((3, 37), value)
    for y, expected in zip(getattr(ours, op)(x, torch.int8), getattr(oracle, op)(x, torch.int8)):
        assert_same(y, expected)


@given(data=st.data())
def test_gradient_through_the_asymmetric_parameters_equals_the_oracle(isa, data):
    shape = data.draw(shapes(min_dims=1, max_dims=3, min_side=1))
    x = numbers(data.draw(seeds), shape, special=False, far=False)
    gradients = []
    for op in (ours._choose_qparams_per_token_asymmetric_impl, oracle._choose_qparams_per_token_asymmetric_impl):
        leaf = x.clone().requires_grad_()
        scales, zero_points = op(leaf, torch.int8)
        assert not zero_points.requires_grad
        (scales * torch.arange(1, scales.numel() + 1).view(scales.shape)).sum().backward()
        gradients.append(leaf.grad)
    assert_same(*gradients)


def test_gradient_flows_from_dequantized_values_to_the_parameters(isa):
    """Training through dynamic quantization: the integers are constant, the scales are not."""
    x = torch.randn(3, 8)
    gradients = []
    for library in (ours, oracle):
        leaf = x.clone().requires_grad_()
        scales, zero_points = library._choose_qparams_per_token_asymmetric_impl(leaf, torch.int8)
        q = oracle.quantize_per_token(x, scales.detach(), zero_points, -128, 127, torch.int8)
        ((q - zero_points) * scales).sum().backward()
        gradients.append(leaf.grad)
    assert_same(*gradients)
