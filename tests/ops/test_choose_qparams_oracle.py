"""choose_qparams and choose_qparams_symmetric against PyTorch's decomposed library."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the oracle
from hypothesis import given
from strategies import FLOAT8, INPUTS, INTEGERS, assert_same, lay_out, layouts, numbers, seeds, shapes

import zeropoint.ops  # noqa: F401 (registers the operators)

ours = torch.ops.zeropoint
oracle = torch.ops.quantized_decomposed

OPS = ("choose_qparams", "choose_qparams_symmetric")
# A range must include 0.
RANGES = [
    (0, 255),
    (-128, 127),
    (-127, 127),
    (0, 127),
    (-8, 7),
    (0, 15),
    (-5, 0),
    (-32768, 32767),
    (-(2**31), 2**31 - 1),
]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("input_dtype", INPUTS, ids=str)
@given(data=st.data())
def test_parameters_equal_the_oracle(isa, op, input_dtype, data):
    step = data.draw(st.sampled_from([1e-30, 1e-9, 1e-5, 1e-3, 1.0, 100.0]))
    x = numbers(data.draw(seeds), data.draw(shapes(min_side=1)), step, special=False, far=data.draw(st.booleans()))
    side = data.draw(st.sampled_from([None, 1, -1]))
    if side is not None:
        x = x.abs() * side
    x = lay_out(x.to(input_dtype), data.draw(layouts))
    eps = data.draw(st.sampled_from([1e-5, torch.finfo(torch.float32).eps, 2.0**-12, 1e-3, 1.0]))
    dtype = data.draw(st.sampled_from([*INTEGERS, *FLOAT8]))
    arguments = (*data.draw(st.sampled_from(RANGES)), eps, dtype)
    results = zip(getattr(ours, op).tensor(x, *arguments), getattr(oracle, op).tensor(x, *arguments))
    for y, expected in results:
        assert_same(y, expected)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("values", [[0.0], [-0.0, 0.0], [3.0], [-3.0], [1e-20, -1e-20], [3e38, -3e38]], ids=str)
def test_parameters_of_few_values_equal_the_oracle(isa, op, values):
    x = torch.tensor(values)
    for dtype, low, high in ((torch.uint8, 0, 255), (torch.int8, -128, 127)):
        results = zip(
            getattr(ours, op).tensor(x, low, high, 1e-5, dtype), getattr(oracle, op).tensor(x, low, high, 1e-5, dtype)
        )
        for y, expected in results:
            assert_same(y, expected)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("values", [[1.0, float("inf")], [-float("inf"), 2.0], [-float("inf"), float("inf")]], ids=str)
def test_an_infinite_range_gives_what_the_oracle_gives(isa, op, values):
    x = torch.tensor(values)
    results = zip(
        getattr(ours, op).tensor(x, 0, 255, 1e-5, torch.uint8), getattr(oracle, op).tensor(x, 0, 255, 1e-5, torch.uint8)
    )
    for y, expected in results:
        assert_same(y, expected)


def test_dynamic_quantization_chains_the_operators(isa):
    """choose, quantize with tensor parameters, dequantize: what an exported dynamic model does."""
    x = torch.randn(5, 10)
    found = []
    for library in (ours, oracle):
        scale, zero_point = library.choose_qparams.tensor(x, 0, 255, torch.finfo(torch.float32).eps, torch.uint8)
        q = library.quantize_per_tensor.tensor(x, scale, zero_point, 0, 255, torch.uint8)
        found.append(library.dequantize_per_tensor.tensor(q, scale, zero_point, 0, 255, torch.uint8))
        assert torch.all((found[-1] - x).abs() <= scale / 2 + 1e-6)
    assert_same(*found)
