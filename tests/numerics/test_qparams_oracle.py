"""Quantization parameters and ranges against PyTorch's."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import assume, given
from strategies import assert_same, generator, lay_out, layouts, numbers, seeds, shapes

import zeropoint
from zeropoint.numerics.qparams import qparams_from_range

reduce_ranges = pytest.mark.parametrize("reduce_range", [False, True], ids=["8-bit", "7-bit"])


@reduce_ranges
@given(data=st.data())
def test_choose_qparams_equals_the_oracle(isa, reduce_range, data):
    step = 10.0 ** data.draw(st.floats(-12, 6))
    x = numbers(data.draw(seeds), data.draw(shapes(min_side=1)), step, special=False, far=data.draw(st.booleans()))
    side = data.draw(st.sampled_from([None, 1, -1]))
    if side is not None:
        x = x.abs() * side
    x = lay_out(x, data.draw(layouts))
    assert zeropoint.choose_qparams(x, reduce_range) == torch._choose_qparams_per_tensor(x, reduce_range)


@reduce_ranges
@pytest.mark.parametrize(
    "values",
    [
        [0.0],
        [-0.0],
        [5.0],
        [-5.0],
        [1e-45],
        [-1e-40, 1e-42],
        [1e-7, -1e-7],
        [0.0, 6.1e-5 * 255],
        [-6.1e-5 * 100, 6.1e-5 * 155],
        [0.0, 0.015554999],
        [-0.015555001, 0.0],
        [-0.00030349852750077844, 0.00030349852750077844],  # stretched by a float32 quotient of float32 numbers
        [-8.350370080734137e-06, 8.350370080734137e-06],
        [3e38, -3e38],
        [3.4e38, -1.0],
    ],
    ids=str,
)
def test_choose_qparams_of_few_values_equals_the_oracle(isa, reduce_range, values):
    x = torch.tensor(values)
    assert zeropoint.choose_qparams(x, reduce_range) == torch._choose_qparams_per_tensor(x, reduce_range)


@reduce_ranges
@given(low=st.floats(-(2.0**126), 0, width=32), high=st.floats(0, 2.0**126, width=32))
def test_choose_qparams_of_any_range_equals_the_oracle(isa, reduce_range, low, high):
    x = torch.tensor([low, high])
    assert zeropoint.choose_qparams(x, reduce_range) == torch._choose_qparams_per_tensor(x, reduce_range)


@reduce_ranges
@given(low=st.floats(-0.03125, 0, width=32), high=st.floats(0, 0.03125, width=32))
def test_choose_qparams_of_narrow_ranges_equals_the_oracle(isa, reduce_range, low, high):
    """Around scale 6.1e-5 the range is stretched."""
    x = torch.tensor([low, high])
    assert zeropoint.choose_qparams(x, reduce_range) == torch._choose_qparams_per_tensor(x, reduce_range)


@reduce_ranges
@pytest.mark.parametrize("scale", [0.1, 0.3, 0.7, 0.9, 1.1])
def test_zero_points_between_two_integers_equal_the_oracle(reduce_range, scale):
    """Which way they are rounded depends on the end of the range that they are computed from."""
    highest = 127 if reduce_range else 255
    for below in range(highest):
        x = torch.tensor([-(below + 0.5) * scale, (highest - below - 0.5) * scale])
        assert zeropoint.choose_qparams(x, reduce_range) == torch._choose_qparams_per_tensor(x, reduce_range), below


bit_widths = pytest.mark.parametrize("bit_width", [4, 2])


def assert_optimized_equal(
    x: torch.Tensor, numel: int, *, n_bins: int = 200, ratio: float = 0.16, bit_width: int
) -> None:
    arguments = {"n_bins": n_bins, "ratio": ratio, "bit_width": bit_width}
    found = zeropoint.choose_qparams_optimized(x, numel, **arguments)
    expected = torch.choose_qparams_optimized(x, numel=numel, **arguments)
    # By value: of an all-zero row, PyTorch's range keeps the sign of the first zero.
    assert [v.item() for v in found] == [v.item() for v in expected]
    assert [v.shape for v in found] == [(1,), (1,)]


@bit_widths
@pytest.mark.parametrize("size", [1, 2, 7, 8, 31, 64, 100, 257, 1024])
def test_choose_qparams_optimized_equals_the_oracle(isa, bit_width, size):
    for seed, (n_bins, ratio) in enumerate([(200, 0.16), (200, 0.5), (50, 0.16), (10, 1.0), (1, 0.16), (200, 0.0)]):
        x = torch.randn(size, generator=generator(seed)) * 10.0 ** (seed - 3)
        assert_optimized_equal(x, size, n_bins=n_bins, ratio=ratio, bit_width=bit_width)


@bit_widths
@given(data=st.data())
def test_choose_qparams_optimized_of_any_data_equals_the_oracle(isa, bit_width, data):
    size = data.draw(st.integers(1, 70))
    g = generator(data.draw(seeds))
    x = torch.randn(size, generator=g)
    if data.draw(st.booleans()):
        x = torch.round(x * 4) / 4  # equal values, zeros, plateaus of the loss
    if data.draw(st.booleans()):
        x = x.abs()
    x = x * 10.0 ** data.draw(st.floats(-6, 6)) + data.draw(st.sampled_from([0.0, 0.0, 1.0, -100.0]))
    numel = data.draw(st.integers(1, size))
    n_bins = data.draw(st.integers(2, 60))
    low, high = x[:numel].aminmax()
    # Steps below the resolution of float32 never arrive: PyTorch's search does not end.
    assume(low == high or (high - low) / n_bins > 1e-6 * x.abs().max())
    assert_optimized_equal(x, numel, n_bins=n_bins, ratio=data.draw(st.floats(0, 1)), bit_width=bit_width)


@bit_widths
@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-8, 70000.0])
def test_choose_qparams_optimized_of_equal_values_equals_the_oracle(isa, bit_width, value):
    assert_optimized_equal(torch.full((16,), value), 16, bit_width=bit_width)


def test_choose_qparams_optimized_does_not_leave_the_whole_range_for_an_equal_loss(isa):
    """The search goes down a plateau; a local optimum must be better than where it began."""
    x = (torch.randn(8, generator=generator(786)) * 10.0**-5.924123055600723)[:3]
    assert_optimized_equal(x, 3, n_bins=46, ratio=0.6107916165682467, bit_width=4)


@bit_widths
def test_choose_qparams_optimized_beyond_float16_keeps_the_whole_range(isa, bit_width):
    """A scale that float16 cannot hold has a loss of NaN, which nothing improves on."""
    x = torch.tensor([0.0, 7965.9, 84678.0, 88500.0, 56832.0, 0.0, 82736.0, 248500.0, 125052.7, 83733.0]) * (
        bit_width**2 / 4
    )
    assert_optimized_equal(x, 10, n_bins=60, ratio=1.0, bit_width=bit_width)


@pytest.mark.parametrize("values", [[0.0, 1e-45], [-1e-45, 1e-44]], ids=str)
def test_choose_qparams_optimized_ends_where_a_step_is_lost_in_rounding(isa, values):
    """PyTorch's search never comes back from these."""
    x = torch.tensor(values)
    high, low = zeropoint.choose_qparams_optimized(x, 2)
    assert (low.item(), high.item()) == (x[0].item(), x[1].item())


@given(data=st.data())
def test_saturate_weight_to_fp16_equals_the_oracle(isa, data):
    shape = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    weight = numbers(data.draw(seeds), shape, 10.0 ** data.draw(st.floats(-3, 5)), special=False)
    assert_same(zeropoint.saturate_weight_to_fp16(weight), torch._saturate_weight_to_fp16(weight))


@pytest.mark.parametrize("value", [65504.0, 65505.0, 65519.0, 65520.0, 1e38, float("inf"), 1.0001, 1e-20])
def test_saturate_weight_to_fp16_clamps_and_does_not_round(isa, value):
    weight = torch.tensor([[value, -value]])
    assert_same(zeropoint.saturate_weight_to_fp16(weight), torch._saturate_weight_to_fp16(weight))
    expected = min(torch.tensor(value).item(), 65504.0)
    assert zeropoint.saturate_weight_to_fp16(weight).tolist() == [[expected, -expected]]


# ------------------------------------------------------------------- the function behind observers and weights


@pytest.mark.parametrize("scheme", list(zeropoint.numerics.schemes.SCHEMES))
@given(data=st.data())
def test_qparams_from_range_equals_what_observers_do(scheme, data):
    from torch.ao.quantization.utils import determine_qparams

    count = data.draw(st.integers(1, 9))
    g = generator(data.draw(seeds))
    ends = torch.randn(2, count, generator=g) * 10.0 ** data.draw(st.floats(-8, 6))
    if data.draw(st.booleans()):
        ends = ends.abs()
    low, high = ends.amin(0), ends.amax(0)
    if "tensor" in scheme:
        low, high = low[0], high[0]
    dtype, qmin, qmax = data.draw(
        st.sampled_from(
            [(torch.quint8, 0, 255), (torch.quint8, 0, 127), (torch.qint8, -128, 127), (torch.quint4x2, 0, 15)]
        )
    )
    eps = torch.tensor([torch.finfo(torch.float32).eps])
    middle = 128 if dtype == torch.quint8 else 0
    scale, zero_point = qparams_from_range(low, high, qmin, qmax, eps=eps, scheme=scheme, symmetric_zero_point=middle)
    expected = determine_qparams(
        low, high, qmin, qmax, dtype, eps, has_customized_qrange=False, qscheme=getattr(torch, scheme)
    )
    assert_same(scale.to(torch.float64), expected[0])
    if "float_qparams" in scheme:
        assert_same(zero_point.to(torch.int64), expected[1])  # PyTorch drops the fraction here
    else:
        assert_same(zero_point, expected[1])
