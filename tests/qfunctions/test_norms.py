"""Norms and softmax of quantized tensors, against torch.ops.quantized.

PyTorch rounds what is left after its vectors of 32 (or 64) in another way, which shows at ties: never more than one
step, and equal everywhere in tensors without tails.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import assume, given
from oracle_vectors import VECTORS, assert_same_in_vectors
from strategies import LAYOUTS, assert_laid_out_like, assert_same, examples, integers, lay_out, seeds

import zeropoint
from zeropoint import qfunctions as ours, qint8, quint8
from zeropoint.numerics.dtypes import QuantizedDtype
from zeropoint.tensor import QTensor
from zeropoint.tensor.quantizer import PerTensorQuantizer

theirs = torch.ops.quantized
BYTES = (quint8, qint8)
by_dtype = pytest.mark.parametrize("dtype", BYTES, ids=lambda d: d.name)
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
EPS = 1e-5


def pair(values: torch.Tensor, scale: float, zero_point: int) -> tuple[QTensor, torch.Tensor]:
    """The same integers as ours and as PyTorch's; channels last if `values` are, else PyTorch's are contiguous."""
    dtype = quint8 if values.dtype == torch.uint8 else qint8
    oracle = torch._make_per_tensor_quantized_tensor(values.contiguous(), scale, zero_point)
    form = FORMATS.get(values.dim())
    if form is not None and values.is_contiguous(memory_format=form) and not values.is_contiguous():
        oracle = oracle.contiguous(memory_format=form)
    return QTensor(values, PerTensorQuantizer(scale, zero_point), dtype), oracle


def assert_close(mine: QTensor, oracle: torch.Tensor) -> None:
    """Never more than one step away, and equal in 99.8%, if PyTorch has vectors for this CPU.

    Where inputs have few different values, a tie is there several times.
    """
    assert f"torch.{mine.qdtype.name}" == str(oracle.dtype)
    assert (mine.q_scale(), mine.q_zero_point()) == (oracle.q_scale(), oracle.q_zero_point())
    assert mine.shape == oracle.shape
    differences = (mine.int_repr().to(torch.int32) - oracle.int_repr().to(torch.int32)).abs()
    if differences.numel():
        assert differences.max() <= 1
        assert not VECTORS or differences.sum() <= 2 + differences.numel() // 500


@st.composite
def inputs(draw: st.DrawFn, shape: tuple[int, ...], dtype: QuantizedDtype) -> tuple[QTensor, torch.Tensor]:
    """Integers over the whole range, or only a few different ones, where variances are small."""
    values = integers(draw(seeds), shape, dtype.torch_storage)
    if draw(st.integers(0, 3)) == 0:
        values = values // 64 + (100 if dtype is quint8 else -3)
    zero_point = draw(st.integers(dtype.qmin, dtype.qmax))
    values = lay_out(values, draw(st.sampled_from(LAYOUTS)))
    return pair(values, draw(st.floats(0.001, 0.5)), zero_point)


@st.composite
def image_shapes(draw: st.DrawFn, least: int = 0) -> tuple[int, ...]:
    spatial = draw(st.integers(least, 3))
    channels = draw(st.sampled_from([1, 2, 6, 16, 31, 32, 64, 70]))
    return (draw(st.integers(1, 3)), channels, *draw(st.tuples(*[st.integers(1, 9)] * spatial)))


def parameters(seed: int, shape: tuple[int, ...], count: int) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=g) for _ in range(count)]


def output(dtype: QuantizedDtype, zero_point: int) -> tuple[float, int]:
    return 0.0213, zero_point + (0 if dtype is quint8 else -128)


zero_points = st.integers(0, 255)

# -------------------------------------------------------------------------------------------------------- batch norm


@by_dtype
@pytest.mark.parametrize("relu", ["", "_relu"], ids=["plain", "relu"])
@examples(20)
@given(data=st.data())
def test_batch_norm(dtype, relu, isa, data):
    shape = data.draw(image_shapes())
    q, oracle = data.draw(inputs(shape, dtype))
    weight, bias, mean, var = parameters(data.draw(seeds), (shape[1],), 4)
    arguments = weight, bias, mean, var.abs(), EPS, *output(dtype, data.draw(zero_points))
    dims = max(len(shape) - 2, 1)
    expected = getattr(theirs, f"batch_norm{dims}d{relu}")(oracle, *arguments)
    for name in (f"batch_norm{relu}", f"batch_norm{dims}d{relu}"):
        result = getattr(ours, name)(q, *arguments)
        assert_close(result, expected)
        # Ours is laid out as the input; PyTorch's always with the channels innermost.
        assert_laid_out_like(result.int_repr(), oracle.int_repr())


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["NCHW", "NHWC"])
def test_batch_norm_rounds_ties_as_pytorch(memory_format, isa):
    q, oracle = pair(integers(0, (2, 64, 8, 8), torch.uint8).contiguous(memory_format=memory_format), 0.5, 10)
    weight, bias = torch.arange(64) % 9 * 0.25, torch.arange(64) % 7 * 0.125
    arguments = weight, bias, torch.arange(64) % 5 - 2.0, torch.ones(64), 0.0, 0.25, 101
    expected = theirs.batch_norm2d(oracle, *arguments)
    assert_same_in_vectors(ours.batch_norm2d(q, *arguments).int_repr(), expected.int_repr().contiguous())


def test_batch_norm_without_weight_and_bias(isa):
    q, _ = pair(integers(1, (2, 5, 4, 4), torch.uint8), 0.05, 99)
    mean, var = torch.randn(5), torch.rand(5)
    full = ours.batch_norm(q, torch.ones(5), torch.zeros(5), mean, var, EPS, 0.02, 100)
    assert_same(ours.batch_norm(q, None, None, mean, var, EPS, 0.02, 100).int_repr(), full.int_repr())


@by_dtype
def test_batch_norm_of_extremes_saturates(dtype, isa):
    q, _ = pair(integers(2, (1, 4, 8, 16), dtype.torch_storage), 1.0, 0)
    low, high, last = dtype.qmin, dtype.qmax, dtype.qmax
    weight, bias = torch.tensor([0.0, 0.0, 0.0, math.nan]), torch.tensor([-1e38, 1e38, math.inf, 0.0])
    y = ours.batch_norm2d(q, weight, bias, torch.zeros(4), torch.ones(4), 0.0, 1e-3, 0).int_repr()
    assert [y[0, c].unique().tolist() for c in range(4)] == [[low], [high], [last], [last]]


def test_statistics_of_batch_norm_in_another_dtype():
    q, _ = pair(integers(3, (2, 3, 4), torch.int8), 0.05, 1)
    mean, var = torch.randn(3), torch.rand(3)
    expected = ours.batch_norm1d(q, None, None, mean, var, EPS, 0.02, 3)
    found = ours.batch_norm1d(q, None, None, mean.double(), var.double(), EPS, 0.02, 3)
    assert_same(found.int_repr(), expected.int_repr())


# -------------------------------------------------------------------------------------------- layer, group, instance


@by_dtype
@examples(25)
@given(data=st.data())
def test_layer_norm(dtype, isa, data):
    normalized = data.draw(st.sampled_from([(1,), (7,), (32,), (33,), (64,), (100,), (768,), (5, 13), (3, 4, 32)]))
    shape = (*data.draw(st.tuples(*[st.integers(1, 5)] * data.draw(st.integers(0, 2)))), *normalized)
    q, oracle = data.draw(inputs(shape, dtype))
    weight, bias = parameters(data.draw(seeds), normalized, 2)
    options = EPS, *output(dtype, data.draw(zero_points))
    result = ours.layer_norm(q, list(normalized), weight, bias, *options)
    assert_close(result, theirs.layer_norm(oracle, list(normalized), weight, bias, *options))
    assert result.is_contiguous()
    assert_close(
        ours.layer_norm(q, list(normalized), None, None, *options),
        theirs.layer_norm(oracle, list(normalized), None, None, *options),
    )


@by_dtype
@examples(25)
@given(data=st.data())
def test_group_norm_and_instance_norm(dtype, isa, data):
    shape = data.draw(image_shapes(least=1))  # PyTorch wants three dimensions
    assume(math.prod(shape[2:]) > 1)  # PyTorch's result for a group of one value is not its bias
    q, oracle = data.draw(inputs(shape, dtype))
    channels = shape[1]
    groups = data.draw(st.sampled_from([g for g in (1, 2, 3, 5, 16, 31, 35, 64) if channels % g == 0]))
    weight, bias = parameters(data.draw(seeds), (channels,), 2)
    options = EPS, *output(dtype, data.draw(zero_points))
    result = ours.group_norm(q, groups, weight, bias, *options)
    assert_close(result, theirs.group_norm(oracle, groups, weight, bias, *options))
    assert_laid_out_like(result.int_repr(), oracle.int_repr())
    assert_close(
        ours.group_norm(q, groups, None, None, *options), theirs.group_norm(oracle, groups, None, None, *options)
    )
    result = ours.instance_norm(q, weight, bias, *options)
    assert_close(result, theirs.instance_norm(oracle, weight, bias, *options))
    assert_laid_out_like(result.int_repr(), oracle.int_repr())


def test_a_group_of_one_value_is_its_bias():
    q = zeropoint.quantize_per_tensor(torch.tensor([50.5, 50.0]).view(2, 1, 1, 1), 0.5, 0, zeropoint.quint8)
    for y in (
        ours.group_norm(q, 1, torch.ones(1), torch.full((1,), 0.25), EPS, 0.01, 100),
        ours.instance_norm(q, torch.ones(1), torch.full((1,), 0.25), EPS, 0.01, 100),
    ):
        assert y.int_repr().flatten().tolist() == [125, 125]


def alternating(*shape: int) -> torch.Tensor:
    """Two values of which there are as many, so that mean and variance are exact and results are ties."""
    values = torch.full((math.prod(shape[:-1]), shape[-1]), 60, dtype=torch.uint8)
    values[:, ::2] += 2
    return values.reshape(shape)


def test_layer_norm_rounds_ties_as_pytorch(isa):
    q, oracle = pair(alternating(5, 256), 0.5, 10)
    weight, bias = torch.arange(256) % 9 * 0.25, torch.arange(256) % 7 * 0.125
    arguments = [256], weight, bias, 0.0, 0.25, 101
    assert_same_in_vectors(ours.layer_norm(q, *arguments).int_repr(), theirs.layer_norm(oracle, *arguments).int_repr())


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("groups", [1, 2, 8, 64])
def test_group_norm_rounds_ties_as_pytorch(groups, memory_format, isa):
    q, oracle = pair(alternating(2, 64, 8, 16).contiguous(memory_format=memory_format), 0.5, 10)
    weight, bias = torch.arange(64) % 9 * 0.25, torch.arange(64) % 7 * 0.125
    arguments = groups, weight, bias, 0.0, 0.25, 101
    assert_same_in_vectors(ours.group_norm(q, *arguments).int_repr(), theirs.group_norm(oracle, *arguments).int_repr())


@by_dtype
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["NCHW", "NHWC"])
def test_norms_of_tensors_large_enough_for_two_threads(dtype, memory_format, isa):
    values = integers(4, (2, 64, 40, 40), dtype.torch_storage).contiguous(memory_format=memory_format)
    q, oracle = pair(values, 0.04, 5)
    weight, bias, mean, var = parameters(5, (64,), 4)
    options = EPS, 0.02, 9
    for name, arguments in (
        ("batch_norm2d", (weight, bias, mean, var.abs())),
        ("group_norm", (1, weight, bias)),
        ("group_norm", (16, weight, bias)),
        ("instance_norm", (weight, bias)),
    ):
        result, expected = (
            getattr(ours, name)(q, *arguments, *options),
            getattr(theirs, name)(oracle, *arguments, *options),
        )
        differences = (result.int_repr().to(torch.int32) - expected.int_repr().to(torch.int32)).abs()
        assert differences.max() <= 1
        assert differences.sum() <= differences.numel() // 500  # PyTorch's channels-last sums of squares are float32


@by_dtype
def test_constant_input_becomes_the_bias(dtype, isa):
    q, _ = pair(torch.full((2, 6, 5, 5), 77, dtype=dtype.torch_storage), 0.1, 3)
    bias = torch.arange(6) * 0.5
    for result in (
        ours.group_norm(q, 2, torch.full((6,), 3.0), bias, EPS, 0.5, 1),
        ours.instance_norm(q, None, bias, EPS, 0.5, 1),
    ):
        assert_same(
            result.int_repr(), (torch.arange(6) + 1).to(dtype.torch_storage).view(1, 6, 1, 1).expand(2, 6, 5, 5)
        )


def test_a_constant_without_epsilon_is_what_pytorch_makes_of_nan(isa):
    q, oracle = pair(torch.full((2, 64), 9, dtype=torch.uint8), 0.1, 3)
    arguments = [64], None, None, 0.0, 0.1, 5
    assert_same(ours.layer_norm(q, *arguments).int_repr(), theirs.layer_norm(oracle, *arguments).int_repr())


# ----------------------------------------------------------------------------------------------------------- softmax


@by_dtype
@examples(30)
@given(data=st.data())
def test_softmax(dtype, isa, data):
    shape = data.draw(
        st.one_of(
            st.tuples(st.integers(1, 70), st.integers(1, 140)),
            st.tuples(st.integers(1, 3), st.sampled_from([1, 8, 10, 64, 100]), st.integers(1, 9), st.integers(1, 12)),
        )
    )
    q, oracle = data.draw(inputs(shape, dtype))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    scale, zero_point = data.draw(st.sampled_from([(1 / 256, dtype.qmin), (0.01, 5)]))
    result = ours.softmax(q, dim, scale, zero_point)
    assert_close(result, theirs.softmax(oracle, dim, scale, zero_point))
    assert_laid_out_like(result.int_repr(), oracle.int_repr())


def test_softmax_of_equal_values_is_even(isa):
    for n in (1, 2, 16, 64, 256):
        q, _ = pair(torch.full((3, n), 200, dtype=torch.uint8), 0.3, 7)
        assert ours.softmax(q, -1, 1 / 256, 0).int_repr().unique().tolist() == [min(256 // n, 255)]


def test_softmax_of_one_value(isa):
    q, _ = pair(torch.tensor(5, dtype=torch.uint8), 0.3, 7)
    for dim in (0, -1):
        assert ours.softmax(q, dim, 0.01, 3).int_repr().item() == 103


def test_softmax_of_far_values_is_a_choice(isa):
    q, _ = pair(torch.tensor([[-128, 127, -128]], dtype=torch.int8), 10.0, 0)
    assert ours.softmax(q, 1, 1 / 256, -128).int_repr().tolist() == [[-128, 127, -128]]


def test_softmax_below_any_step_is_the_largest(isa):
    q, _ = pair(torch.zeros(1, 4, dtype=torch.uint8), 1.0, 0)
    assert ours.softmax(q, 1, 1e-30, 0).int_repr().tolist() == [[255] * 4]


# ---------------------------------------------------------------------------------------------------------- refusals

IMAGE = pair(integers(6, (2, 4, 3, 3), torch.uint8), 0.1, 3)[0]
FOUR, THREE = torch.ones(4), torch.ones(3)
REFUSALS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a rank that batch_norm1d has not": (
        lambda: ours.batch_norm1d(IMAGE, None, None, FOUR, FOUR, EPS, 0.1, 0),
        ValueError,
        "batch_norm1d: input must have 2 or 3 dimensions",
    ),
    "a mean for another number of channels": (
        lambda: ours.batch_norm(IMAGE, None, None, THREE, FOUR, EPS, 0.1, 0),
        ValueError,
        r"batch_norm: mean must have shape \(4,\).*got \(3,\)",
    ),
    "a weight for another number of channels": (
        lambda: ours.group_norm(IMAGE, 2, THREE, None, EPS, 0.1, 0),
        ValueError,
        r"group_norm: weight must have shape \(4,\)",
    ),
    "groups that do not divide the channels": (
        lambda: ours.group_norm(IMAGE, 3, None, None, EPS, 0.1, 0),
        ValueError,
        "num_groups 3 does not divide the 4 channels",
    ),
    "no groups": (lambda: ours.group_norm(IMAGE, 0, None, None, EPS, 0.1, 0), ValueError, "num_groups 0"),
    "another normalized shape": (
        lambda: ours.layer_norm(IMAGE, [4], None, None, EPS, 0.1, 0),
        ValueError,
        r"does not end with normalized_shape \(4,\)",
    ),
    "no normalized shape": (
        lambda: ours.layer_norm(IMAGE, [], None, None, EPS, 0.1, 0),
        ValueError,
        "normalized_shape",
    ),
    "an axis that is not there": (lambda: ours.softmax(IMAGE, 4, 0.1, 0), ValueError, "softmax: axis 4"),
    "a scale of zero": (lambda: ours.softmax(IMAGE, 1, 0.0, 0), ValueError, "scale must be positive and finite, got 0"),
    "a scale that is none": (lambda: ours.softmax(IMAGE, 1, math.nan, 0), ValueError, "got nan"),
    "a zero point outside": (lambda: ours.softmax(IMAGE, 1, 0.1, 256), ValueError, "zero_point 256"),
    "floats": (lambda: ours.softmax(torch.ones(3), 0, 0.1, 0), TypeError, "softmax: input must be a quantized tensor"),
    "32 bits": (
        lambda: ours.softmax(zeropoint.quantize_per_tensor(torch.ones(3), 0.1, 0, zeropoint.qint32), 0, 0.1, 0),
        TypeError,
        "softmax: input must be quint8 or qint8, got qint32",
    ),
    "a scale for each channel": (
        lambda: ours.instance_norm(
            zeropoint.quantize_per_channel(torch.ones(1, 2, 3), torch.ones(2), torch.zeros(2), 1, qint8),
            None,
            None,
            EPS,
            0.1,
            0,
        ),
        ValueError,
        "instance_norm: input must be quantized per tensor",
    ),
    "integers of 16 bits": (
        lambda: torch.ops.zeropoint.softmax(torch.ones(3, dtype=torch.int16), 0.1, 0, 0, 0.1, 0),
        TypeError,
        "softmax: input must be one of uint8, int8, got int16",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), REFUSALS.values(), ids=[n.replace(" ", "-") for n in REFUSALS])
def test_refuses(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert re.search(message, str(caught.value))


@pytest.mark.parametrize("shape", [(0, 4, 3, 3), (2, 4, 0, 3)])
def test_empty_input_gives_empty_output(shape, isa):
    q, _ = pair(torch.empty(shape, dtype=torch.uint8), 0.1, 3)
    for result in (
        ours.batch_norm2d(q, None, None, FOUR, FOUR, EPS, 0.1, 0),
        ours.group_norm(q, 2, None, None, EPS, 0.1, 0),
        ours.instance_norm(q, None, None, EPS, 0.1, 0),
        ours.layer_norm(q, [3], None, None, EPS, 0.1, 0),
        *(ours.softmax(q, dim, 0.1, 0) for dim in range(4)),
    ):
        assert result.shape == shape
