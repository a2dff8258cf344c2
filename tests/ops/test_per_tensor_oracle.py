"""quantize_per_tensor and dequantize_per_tensor, every overload, against PyTorch's decomposed library."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from decomposed_oracle import assert_like_the_oracle, oracle, ours
from hypothesis import given
from strategies import INPUTS, INTEGERS, assert_same, inputs, quant_ranges, quantized_dtypes, scales, shapes, stored

zero_points = st.one_of(st.integers(-300, 300), st.sampled_from([0, 128, -(2**31), 2**24 + 1, 2**31 - 1]))


@quantized_dtypes
@given(data=st.data())
def test_quantize_equals_the_oracle(isa, dtype, data):
    scale = data.draw(scales(negative=True))
    x = data.draw(inputs(data.draw(shapes()), scale))
    arguments = (scale, data.draw(zero_points), *data.draw(quant_ranges(dtype)), dtype)
    assert_like_the_oracle("quantize_per_tensor", x, *arguments)


@quantized_dtypes
@given(data=st.data())
def test_quantize_with_tensor_parameters_equals_the_oracle(isa, dtype, data):
    scale = torch.tensor([data.draw(scales())], dtype=data.draw(st.sampled_from([torch.float32, torch.float64])))
    x = data.draw(inputs(data.draw(shapes()), scale, [torch.float32]))
    kind = data.draw(st.sampled_from([torch.int32, torch.int64, torch.float32]))
    zero_point = torch.tensor(data.draw(st.integers(-300, 300)), dtype=kind)
    if kind.is_floating_point:
        zero_point += data.draw(st.sampled_from([0.0, 0.5, 0.3]))
    qmin, qmax = data.draw(quant_ranges(dtype))
    expected = oracle.quantize_per_tensor.tensor(x, scale, zero_point, qmin, qmax, dtype)
    assert_same(ours.quantize_per_tensor.tensor(x, scale, zero_point, qmin, qmax, dtype), expected)
    limits = torch.tensor(qmin), torch.tensor([qmax])
    assert_same(ours.quantize_per_tensor.tensor2(x, scale, zero_point, *limits, dtype), expected)


@quantized_dtypes
@given(data=st.data())
def test_dequantize_equals_the_oracle(isa, dtype, data):
    q = data.draw(stored(data.draw(shapes()), dtype))
    out_dtype = data.draw(st.sampled_from([None, *INPUTS]))
    qmin, qmax = data.draw(quant_ranges(dtype))
    arguments = (data.draw(scales(negative=True)), data.draw(zero_points), qmin, qmax, dtype)
    assert_like_the_oracle("dequantize_per_tensor", q, *arguments, out_dtype=out_dtype)


@quantized_dtypes
@given(data=st.data())
def test_dequantize_with_tensor_parameters_equals_the_oracle(isa, dtype, data):
    q = data.draw(stored(data.draw(shapes()), dtype))
    scale = torch.tensor([data.draw(scales())], dtype=data.draw(st.sampled_from([torch.float32, torch.float64])))
    kind = data.draw(st.sampled_from([torch.int32, torch.int64, torch.float32]))
    zero_point = torch.tensor(data.draw(st.integers(-300, 300)), dtype=kind)
    out_dtype = data.draw(st.sampled_from([None, *INPUTS]))
    qmin, qmax = data.draw(quant_ranges(dtype))
    expected = oracle.dequantize_per_tensor.tensor(q, scale, zero_point, qmin, qmax, dtype, out_dtype=out_dtype)
    y = ours.dequantize_per_tensor.tensor(q, scale, zero_point, qmin, qmax, dtype, out_dtype=out_dtype)
    assert_same(y, expected)
    limits = torch.tensor(qmin), torch.tensor([qmax])
    y = ours.dequantize_per_tensor.tensor2(q, scale, zero_point, *limits, dtype, out_dtype=out_dtype)
    assert_same(y, expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_every_integer_comes_back_from_its_own_value(isa, dtype):
    info = torch.iinfo(dtype)
    every = torch.arange(max(info.min, -(2**17)), min(info.max, 2**17) + 1).to(dtype)
    for zero_point in (0, 7, info.min // 2**10):
        arguments = (0.25, zero_point, info.min, info.max, dtype)
        values = ours.dequantize_per_tensor(every, *arguments)
        assert torch.equal(ours.quantize_per_tensor(values, *arguments), every)


def test_ties_round_to_even_before_the_zero_point_is_added(isa):
    x = torch.tensor([-1.5, -0.5, 0.5, 1.5, 2.5])
    for zero_point in (0, 1, 2, 3):
        q = ours.quantize_per_tensor(x, 1.0, zero_point, -128, 127, torch.int8)
        assert q.tolist() == [zero_point + k for k in (-2, 0, 0, 2, 2)]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 31, 33, 127, 130])
def test_nan_and_infinity_give_the_same_at_every_position(isa, length):
    """8 and 16 bit: NaN is 0; int32: INT_MIN."""
    for dtype in INTEGERS:
        info = torch.iinfo(dtype)
        for special, expected in (
            (float("nan"), info.min if dtype == torch.int32 else 0),
            # 2**31 - 1 is 2**31 in float32, which has no int32.
            (float("inf"), info.min if dtype == torch.int32 else info.max),
            (-float("inf"), info.min),
        ):
            x = torch.full((length,), special)
            q = ours.quantize_per_tensor(x, 0.5, 3, info.min, info.max, dtype)
            assert q.tolist() == [expected] * length
