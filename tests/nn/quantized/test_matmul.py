"""Products of two quantized tensors: the bytes of the reference under every instruction set, and PyTorch's numbers."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from layer_strategies import QUANTIZED, activations, outputs, quantized
from reference import Codes, matmul_sums, requantize
from strategies import assert_same, examples, generator, integers

import zeropoint
from zeropoint.nn.quantized import functional
from zeropoint.qfunctions import packed

ours = torch.ops.zeropoint

sides = st.one_of(st.integers(1, 9), st.sampled_from([15, 16, 17, 33, 64, 65]))
BATCHES = [((), ()), ((2,), (2,)), ((1,), (3,)), ((3,), ()), ((), (2,)), ((2, 1), (3,)), ((2, 3), (2, 3)), ((0,), (0,))]


def check(a: Codes, b: Codes, scale: float, zero_point: int) -> None:
    want = requantize(matmul_sums(a, b), a.scale, b.scale, scale, zero_point, a.data.dtype, axis=-1)
    y = functional.matmul(quantized(a), quantized(b), scale, zero_point)
    assert_same(y.int_repr(), want)
    assert (y.q_scale(), y.q_zero_point(), y.qdtype) == (scale, zero_point, QUANTIZED[a.data.dtype])
    assert_same(ours.matmul(a.data, a.scale, a.zero_point, b.data, b.scale, b.zero_point, scale, zero_point), want)


@pytest.mark.parametrize(("left", "right"), BATCHES, ids=str)
@given(data=st.data())
@examples(30)
def test_equals_the_reference_for_batches_that_broadcast(isa, left, right, data):
    m, k, n = data.draw(sides), data.draw(sides), data.draw(sides)
    a, b = data.draw(activations((*left, m, k))), data.draw(activations((*right, k, n)))
    check(a, b, *data.draw(outputs(a, b.scale, k)))


@given(data=st.data())
@examples(30)
def test_transposed_and_sliced_operands_equal_the_reference(isa, data):
    m, k, n = data.draw(sides), data.draw(sides), data.draw(sides)
    a, b = data.draw(activations((2, k, m))), data.draw(activations((2, k, 2 * n)))
    a, b = Codes(a.data.mT, a.scale, a.zero_point), Codes(b.data[..., ::2], b.scale, b.zero_point)
    check(a, b, *data.draw(outputs(a, b.scale, k)))


EXTREMES = {
    "255 x 127": (torch.uint8, 255, torch.int8, 127),
    "-128 x -128": (torch.int8, -128, torch.int8, -128),
    "255 x 255": (torch.uint8, 255, torch.uint8, 255),
}


@pytest.mark.parametrize(("a_dtype", "a_value", "b_dtype", "b_value"), EXTREMES.values(), ids=EXTREMES)
@pytest.mark.parametrize("end", ["min", "max"])
def test_extreme_products_do_not_saturate(isa, a_dtype, a_value, b_dtype, b_value, end):
    a = Codes(torch.full((5, 301), a_value, dtype=a_dtype), 0.1, getattr(torch.iinfo(a_dtype), end))
    b = Codes(torch.full((301, 18), b_value, dtype=b_dtype), 0.1, getattr(torch.iinfo(b_dtype), end))
    check(a, b, 0.01 * 301 * 300, 2)


def test_depth_of_65536_is_exact(isa):
    a = Codes(torch.full((2, 2**16), 255, dtype=torch.uint8), 0.1, 0)
    b = Codes(torch.full((2**16, 3), 127, dtype=torch.int8), 0.1, 0)
    a.data[:, ::1013] = 1
    check(a, b, 0.01 * 2**16 * 300, 0)


def test_large_batches_equal_the_reference_on_any_number_of_threads(isa):
    a, b = Codes(integers(0, (6, 40, 64), torch.uint8), 0.1, 100), Codes(integers(1, (6, 64, 50), torch.int8), 0.1, 9)
    for threads in (1, 2, 3):
        zeropoint.set_num_threads(threads)
        check(a, b, 100.0, 100)


def test_bmm_is_matmul_of_three_dimensions(isa):
    a, b = Codes(integers(0, (3, 4, 5), torch.uint8), 0.1, 7), Codes(integers(1, (3, 5, 6), torch.uint8), 0.1, 250)
    want = functional.matmul(quantized(a), quantized(b), 3.0, 100)
    assert_same(functional.bmm(quantized(a), quantized(b), 3.0, 100).int_repr(), want.int_repr())
    with pytest.raises(ValueError, match=r"needs \(B, M, K\).*\(4, 5\).*\(3, 5, 6\)"):
        functional.bmm(quantized(Codes(a.data[0], 0.1, 7)), quantized(b), 3.0, 100)


def test_is_within_one_step_of_pytorch():
    g = generator(0)
    a = Codes(torch.randint(0, 256, (7, 61, 33), dtype=torch.uint8, generator=g), 0.02, 53)
    b = Codes(torch.randint(0, 256, (7, 33, 65), dtype=torch.uint8, generator=g), 0.03, 101)
    scale = 0.02 * 0.03 * 74 * 74 * 33**0.5 / 40
    pair = [torch._make_per_tensor_quantized_tensor(q.data, q.scale, q.zero_point) for q in (a, b)]
    theirs = torch.ops.quantized.matmul(*pair, scale, 99).int_repr()
    apart = (functional.matmul(quantized(a), quantized(b), scale, 99).int_repr().int() - theirs.int()).abs()
    assert apart.max() <= 1
    assert (apart == 0).double().mean() >= 0.999


BAD = {
    "depth": (3, integers(1, (4, 6), torch.int8), ValueError, r"\(2, 5\) with \(4, 6\)"),
    "vector": (0, integers(0, (5,), torch.uint8), ValueError, r"\(5,\) with \(5, 6\)"),
    "float": (0, torch.zeros(2, 5), TypeError, "a must be.*got float32"),
    "second float": (3, torch.zeros(5, 6), TypeError, "b must be.*got float32"),
    "first scale": (1, math.nan, ValueError, "first scale.*nan"),
    "second scale": (4, 0.0, ValueError, "second scale.*got 0"),
    "output scale": (6, -1.0, ValueError, "output's scale.*got -1"),
    "first zero point": (2, 256, ValueError, "zero_point.*256"),
    "second zero point": (5, 200, ValueError, "zero_point.*200"),
    "second zero point far beyond": (5, 2**32, ValueError, "zero_point"),
    "output zero point": (7, -1, ValueError, "zero_point.*-1"),
}


@pytest.mark.parametrize(("place", "value", "error", "message"), BAD.values(), ids=BAD)
def test_wrong_arguments_are_refused_naming_both_sides(place, value, error, message):
    arguments = [integers(0, (2, 5), torch.uint8), 0.1, 3, integers(1, (5, 6), torch.int8), 0.1, 0, 0.2, 5]
    arguments[place] = value
    with pytest.raises(error, match=message):
        ours.matmul(*arguments)


def test_batches_that_do_not_broadcast_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 4, 5\) and \(3, 5, 6\) do not broadcast"):
        ours.matmul(integers(0, (2, 4, 5), torch.uint8), 0.1, 0, integers(0, (3, 5, 6), torch.uint8), 0.1, 0, 0.1, 0)


def test_what_is_not_quantized_per_tensor_is_refused():
    a = quantized(Codes(integers(0, (2, 5), torch.uint8), 0.1, 3))
    with pytest.raises(TypeError, match="the second must be a quantized tensor"):
        packed.matmul(a, torch.zeros(5, 6), 0.1, 0)
    per_channel = Codes(integers(0, (5, 6), torch.int8), torch.ones(6), torch.zeros(6, dtype=torch.int64))
    with pytest.raises(ValueError, match="the second must be quantized per tensor"):
        packed.matmul(a, quantized(per_channel, 1), 0.1, 0)
