"""zeropoint.qfunctions's sums, products, cat and functions with a table, against torch.ops.quantized."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from oracle_vectors import VECTORS, assert_same_in_vectors
from strategies import LAYOUTS, assert_same, generator, integers, lay_out, scales, seeds

import zeropoint
from zeropoint import qfunctions as ours, qint8, qint32, quint4x2, quint8
from zeropoint.numerics.dtypes import QuantizedDtype
from zeropoint.tensor import QTensor
from zeropoint.tensor.quantizer import PerTensorQuantizer

oracle = torch.ops.quantized
BYTES = (quint8, qint8)
by_bytes = pytest.mark.parametrize("dtype", BYTES, ids=lambda d: d.name)
by_dtype = pytest.mark.parametrize("dtype", [*BYTES, qint32], ids=lambda d: d.name)
BINARY = ("add", "add_relu", "mul", "mul_relu")
SCALAR = ("add_scalar", "add_scalar_relu", "mul_scalar", "mul_scalar_relu")
ordinary = st.one_of(st.integers(-6, 1).map(lambda e: 2.0**e), st.floats(1e-3, 1.0))


def mine(values: torch.Tensor, scale: float, zero_point: int) -> QTensor:
    """A QTensor over these very integers, in their layout."""
    dtype = {torch.uint8: quint8, torch.int8: qint8, torch.int32: qint32}[values.dtype]
    return QTensor(values, PerTensorQuantizer(scale, zero_point), dtype)


def theirs(values: torch.Tensor, scale: float, zero_point: int) -> torch.Tensor:
    return torch._make_per_tensor_quantized_tensor(values.contiguous(), scale, zero_point)


def every(dtype: QuantizedDtype) -> torch.Tensor:
    """All 256 integers."""
    return torch.arange(dtype.qmin, dtype.qmax + 1, dtype=dtype.torch_storage)


def every_pair(dtype: QuantizedDtype) -> tuple[torch.Tensor, torch.Tensor]:
    a = every(dtype)
    return a.repeat_interleave(256), a.repeat(256)


def zero_points(dtype: QuantizedDtype) -> st.SearchStrategy[int]:
    if dtype == qint32:
        return st.integers(-300, 300)
    return st.one_of(st.sampled_from([dtype.qmin, dtype.qmax]), st.integers(dtype.qmin, dtype.qmax))


def assert_twins(q: QTensor, expected: torch.Tensor) -> None:
    assert isinstance(q, QTensor)
    assert f"torch.{q.qdtype.name}" == str(expected.dtype)
    assert (q.q_scale(), q.q_zero_point()) == (expected.q_scale(), expected.q_zero_point())
    assert_same_in_vectors(q.int_repr(), expected.int_repr())


def assert_one_step(q: QTensor, expected: torch.Tensor) -> None:
    assert (q.q_scale(), q.q_zero_point()) == (expected.q_scale(), expected.q_zero_point())
    steps = (q.int_repr().to(torch.int64) - expected.int_repr().to(torch.int64)).abs()
    assert not (steps > 1).any()


# ------------------------------------------------------------------------------------------------ sums and products


@by_bytes
@pytest.mark.parametrize("name", BINARY)
@given(data=st.data())
def test_every_pair_of_integers_gives_the_bytes_of_the_oracle(dtype, name, data):
    a, b = every_pair(dtype)  # a multiple of 64: no tail in the oracle
    a_scale, b_scale = data.draw(ordinary), data.draw(ordinary)
    scale = data.draw(ordinary) * (a_scale * b_scale * 64 if name.startswith("mul") else 2)
    a_zero, b_zero, zero = (data.draw(zero_points(dtype)) for _ in range(3))
    y = getattr(ours, name)(mine(a, a_scale, a_zero), mine(b, b_scale, b_zero), scale, zero)
    assert_twins(y, getattr(oracle, name)(theirs(a, a_scale, a_zero), theirs(b, b_scale, b_zero), scale, zero))


SHAPES = (
    ((), ()),
    ((1,), (1,)),
    ((130,), (130,)),
    ((3, 0, 2), (1, 1, 2)),
    ((7, 200), (200,)),
    ((7, 200), (7, 1)),
    ((7, 200), ()),
    ((200,), (7, 1)),
    ((2, 5, 6, 7), (5, 1, 1)),
    ((2, 64, 3, 5), (1, 64, 1, 1)),
    ((1, 64, 1, 1), (2, 64, 3, 5)),
    ((2, 8, 9, 10), (2, 8, 9, 10)),
    ((4, 1, 3), (1, 5, 1)),
    ((3, 41_003 // 3), (3, 41_003 // 3)),
)


@pytest.mark.parametrize("name", BINARY)
@given(data=st.data())
def test_every_shape_and_layout_gives_what_contiguous_tensors_give(isa, name, data):
    a_shape, b_shape = data.draw(st.sampled_from(SHAPES))
    dtype = data.draw(st.sampled_from(BYTES))
    layouts = [s for s in LAYOUTS if s != "expanded"]
    values = [integers(data.draw(seeds), shape, dtype.torch_storage) for shape in (a_shape, b_shape)]
    laid_out = [lay_out(v, data.draw(st.sampled_from(layouts))) for v in values]
    y = getattr(ours, name)(mine(laid_out[0], 0.25, 3), mine(laid_out[1], 0.5, 5), 4.0, 100)
    shape = torch.broadcast_shapes(a_shape, b_shape)
    whole = [v.expand(shape).contiguous() for v in values]
    with zeropoint.use_isa("reference"):
        expected = getattr(ours, name)(mine(whole[0], 0.25, 3), mine(whole[1], 0.5, 5), 4.0, 100)
    assert y.shape == shape
    assert_same(y.int_repr(), expected.int_repr())


@pytest.mark.parametrize("name", BINARY)
def test_a_tensor_with_itself_expanded(name):
    row = integers(1, (1, 70), torch.uint8)
    function = getattr(ours, name)
    y = function(mine(row.expand(9, 70), 0.1, 3), mine(row.expand(9, 70), 0.2, 7), 0.3, 5)
    one = function(mine(row, 0.1, 3), mine(row, 0.2, 7), 0.3, 5)
    assert_same(y.int_repr(), one.int_repr().expand(9, 70))


@by_bytes
@pytest.mark.parametrize("name", BINARY)
@given(data=st.data())
def test_one_step_at_most_from_the_tails_of_the_oracle(dtype, name, data):
    n = data.draw(st.integers(1, 200))
    a, b = (integers(data.draw(seeds), (n,), dtype.torch_storage) for _ in range(2))
    y = getattr(ours, name)(mine(a, 0.5, 3), mine(b, 0.25, 5), 1.0, 7)
    assert_one_step(y, getattr(oracle, name)(theirs(a, 0.5, 3), theirs(b, 0.25, 5), 1.0, 7))


@pytest.mark.parametrize("name", ["add", "add_relu"])
@given(data=st.data())
def test_sums_of_32_bits(name, data):
    g = generator(data.draw(seeds))
    most = data.draw(st.sampled_from([1000, 2**31 - 1]))
    a, b = (torch.randint(-most, most, (640,), generator=g, dtype=torch.int64).to(torch.int32) for _ in range(2))
    step = [data.draw(ordinary) for _ in range(3)]
    y = getattr(ours, name)(mine(a, step[0], 3), mine(b, step[1], -200), step[2], 77)
    expected = getattr(oracle, name)(theirs(a, step[0], 3), theirs(b, step[1], -200), step[2], 77)
    if VECTORS:
        assert_twins(y, expected)
    else:  # both sides round an operand, the sum, the scale's inverse, the product and the sum with the zero point
        sizes = a.double().abs() * step[0] + b.double().abs() * step[1] + 300
        apart = (y.int_repr().double() - expected.int_repr().double()).abs()
        assert (apart <= 1 + 2 * 5 * 2.0**-24 * sizes / step[2]).all()


@pytest.mark.parametrize("name", ["mul", "mul_relu"])
def test_products_of_32_bits(name):
    # Products below 2^24, which float32 holds: the oracle's wrap around beyond 2^31.
    a, b = (integers(i, (640,), torch.int32) % 4001 - 2000 for i in (1, 2))
    y = getattr(ours, name)(mine(a, 0.25, 3), mine(b, 0.5, -20), 2.0, 77)
    assert_twins(y, getattr(oracle, name)(theirs(a, 0.25, 3), theirs(b, 0.5, -20), 2.0, 77))


@pytest.mark.parametrize("name", BINARY)
def test_results_beyond_every_integer_saturate(isa, name):
    a = torch.tensor([0, 255] * 40, dtype=torch.uint8)
    low = 10 if name.endswith("relu") else 0
    y = getattr(ours, name)(mine(a, 1e30, 128), mine(a, 1e30, 128), 1e-30, 10).int_repr()
    assert y.tolist() == ([255] * 80 if name.startswith("mul") else [low, 255] * 40)
    y = getattr(ours, name)(mine(a, 3e38, 0), mine(a, 3e38, 255), 1.0, 10).int_repr()
    assert set(y.tolist()) <= {low, 10, 255}


def test_channels_last_stays_channels_last():
    a = integers(0, (2, 8, 5, 6), torch.uint8).contiguous(memory_format=torch.channels_last)
    y = ours.add(mine(a, 0.1, 3), mine(a[:1, :, :1, :1], 0.1, 3), 0.2, 3)
    assert y.is_contiguous(memory_format=torch.channels_last)


@by_dtype
@pytest.mark.parametrize("name", ["add", "mul"])
def test_out_gives_its_parameters_and_takes_the_integers(dtype, name):
    a, b = (mine(integers(i, (3, 64), dtype.torch_storage) % 100, 0.1, 3) for i in (1, 2))
    out = zeropoint.empty_affine_quantized([3, 64], scale=0.3, zero_point=9, dtype=dtype)
    assert getattr(ours, f"{name}_out")(a, b, out) is out
    assert torch.equal(out, getattr(ours, name)(a, b, 0.3, 9))
    relu = getattr(ours, f"{name}_relu_out")(a, b, out)
    assert torch.equal(relu, getattr(ours, f"{name}_relu")(a, b, 0.3, 9))


# ---------------------------------------------------------------------------------------------------- with a number


@by_bytes
@pytest.mark.parametrize("name", SCALAR)
@given(data=st.data())
def test_with_any_number(dtype, name, data):
    scale, zero_point = data.draw(ordinary), data.draw(zero_points(dtype))
    halves = st.integers(-1200, 1200).map(lambda n: n / 2 * scale)
    number = data.draw(st.one_of(halves, st.floats(-300 * scale, 300 * scale), st.just(0.0), st.integers(-9, 9)))
    q, expected = mine(every(dtype), scale, zero_point), theirs(every(dtype), scale, zero_point)
    assert_twins(getattr(ours, name)(q, number), getattr(oracle, name)(expected, number))


@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize("number", [0.3, -0.5, 0.0, 1e8, -6.4e8])
def test_32_bits_with_a_number(name, number):
    values = torch.tensor([-(2**31), -5, 0, 9, 2**31 - 1] * 64, dtype=torch.int32)
    expected = getattr(oracle, name)(theirs(values, 0.3, 20), number)
    assert_twins(getattr(ours, name)(mine(values, 0.3, 20), number), expected)


@pytest.mark.parametrize("number", [2.0, -200.0])
def test_every_spelling_of_a_number(number):
    q, expected = mine(every(quint8), 0.3, 20), theirs(every(quint8), 0.3, 20)
    for name in ("add", "mul", "add_relu", "mul_relu"):
        base, relu = name[:3], name[3:]
        wanted = getattr(oracle, f"{base}_scalar{relu}")(expected, number)
        function = getattr(ours, f"{base}_scalar{relu}")
        out = zeropoint.empty_affine_quantized([256], scale=1.0, zero_point=0, dtype=quint8)
        spelled = [
            getattr(ours, name)(q, number),
            getattr(ours, name)(number, q),
            function(q, torch.tensor(number)),
            function(q, torch.tensor([number])),
            getattr(ours, f"{base}_scalar{relu}_out")(q, number, out),
            getattr(ours, f"{name}_out")(q, number, out),
        ]
        assert spelled[-1] is out
        for y in spelled:
            assert_twins(y, wanted)


# ----------------------------------------------------------------------------------------------------------- joining


@by_bytes
@pytest.mark.parametrize("name", ["cat", "cat_relu"])
@given(data=st.data())
def test_cat_in_every_layout_along_every_axis(isa, dtype, name, data):
    layout = data.draw(st.sampled_from(["contiguous", "channels_last", "permuted", "sliced"]))
    dim = data.draw(st.integers(-4, 3))
    first, rest = [], []
    parameters = [(data.draw(ordinary), data.draw(zero_points(dtype))) for _ in range(2)]
    for size in data.draw(st.lists(st.sampled_from([0, 1, 3, 64]), min_size=1, max_size=4)):
        shape = [2, 8, 3, 4]
        shape[dim] = size
        values = lay_out(integers(data.draw(seeds), shape, dtype.torch_storage), layout)
        scale, zero_point = data.draw(st.sampled_from(parameters))
        first.append(mine(values, scale, zero_point))
        memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        rest.append(theirs(values, scale, zero_point).contiguous(memory_format=memory_format))
    given_out = data.draw(st.sampled_from([(None, None), parameters[0], (0.5, None)]))
    y, expected = getattr(ours, name)(first, dim, *given_out), getattr(oracle, name)(rest, dim, *given_out)
    assert (y.shape, y.q_scale(), y.q_zero_point()) == (expected.shape, expected.q_scale(), expected.q_zero_point())
    assert_one_step(y, expected)  # the oracle's tails
    if layout != "channels_last" or dim % 4 != 1:
        assert_same(y.int_repr(), expected.int_repr())
    assert y.is_contiguous(memory_format=memory_format) or y.is_contiguous()


@by_bytes
@pytest.mark.parametrize("name", ["cat", "cat_relu"])
def test_cat_of_channels_rounds_as_the_oracle(dtype, name):
    for scale, zero_point in ((0.25, 0), (0.5, 77), (0.11, 3)):
        values = every(dtype).reshape(1, 256, 1, 1).repeat(2, 1, 3, 3).contiguous(memory_format=torch.channels_last)
        pieces = [(values, 0.25, 9), (values, 0.125, 100)]
        y = getattr(ours, name)([mine(*p) for p in pieces], 1, scale, zero_point)
        last = [theirs(*p).contiguous(memory_format=torch.channels_last) for p in pieces]
        assert_twins(y, getattr(oracle, name)(last, 1, scale, zero_point))
        assert y.is_contiguous(memory_format=torch.channels_last)


def test_cat_of_32_bits():
    values = integers(3, (4, 16), torch.int32) % 5000
    pieces = [(values, 0.25, 9), (values, 0.125, 100)]
    y = ours.cat([mine(*p) for p in pieces], 0, 0.5, 7)
    assert_twins(y, oracle.cat([theirs(*p) for p in pieces], 0, 0.5, 7))
    relu = ours.cat_relu([mine(*p) for p in pieces], 0, 0.25, 1000)
    assert_twins(relu, oracle.cat_relu([theirs(*p) for p in pieces], 0, 0.25, 1000))


def test_cat_out_and_empty_pieces():
    q = mine(every(quint8), 0.1, 3)
    out = zeropoint.empty_affine_quantized([512], scale=0.3, zero_point=9, dtype=quint8)
    assert ours.cat_out([q, q], 0, out) is out
    assert torch.equal(out, ours.cat([q, q], 0, 0.3, 9))
    assert torch.equal(ours.cat_relu_out([q, q], 0, out), ours.cat_relu([q, q], 0, 0.3, 9))
    nothing = mine(torch.empty(0, dtype=torch.uint8), 0.7, 1)
    assert torch.equal(ours.cat([nothing, q.view(2, 128)], 0, 0.1, 3), q.view(2, 128))


# --------------------------------------------------------------------------------------------- functions with a table

# name -> (ours, the oracle, both on (q, scale, zero_point), and the function itself on real numbers)
FUNCTIONS = {
    "sigmoid": (ours.sigmoid, oracle.sigmoid, torch.sigmoid),
    "hardswish": (ours.hardswish, oracle.hardswish, F.hardswish),
    "elu": (
        lambda q, *out: ours.elu(q, *out, 1.3),
        lambda q, *out: oracle.elu(q, *out, 1.3),
        lambda x: F.elu(x, 1.3),
    ),
    "elu scaled": (
        lambda q, *out: ours.elu(q, *out, 1.3, 0.9, 1.1),
        lambda q, *out: oracle.elu(q, *out, 1.3, 0.9, 1.1),
        lambda x: torch.where(x > 0, 0.9 * x, 0.9 * 1.3 * torch.expm1(1.1 * x)),
    ),
    "celu": (
        lambda q, *out: ours.celu(q, *out, 0.7),
        lambda q, *out: oracle.celu(q, *out, 0.7),
        lambda x: F.celu(x, 0.7),
    ),
    "leaky_relu": (
        lambda q, *out: ours.leaky_relu(q, 0.3, False, *out),
        lambda q, *out: oracle.leaky_relu(q, 0.3, False, *out),
        lambda x: F.leaky_relu(x, 0.3),
    ),
}
FLOAT_FUNCTIONS = {
    "tanh": torch.tanh,
    "hardsigmoid": F.hardsigmoid,
    "silu": F.silu,
    "mish": F.mish,
    "exp": torch.exp,
    "gelu": F.gelu,
}


def in_steps(q: QTensor, function, scale: float, zero_point: int) -> torch.Tensor:
    """Where `function` of each value lies on the grid of the output, before it is rounded and clamped."""
    return function(q.dequantize().to(torch.float64)) / torch.tensor(scale).to(torch.float64) + zero_point


@by_bytes
@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
def test_functions_with_any_parameters(dtype, name, data):
    function, theirs_of, real = FUNCTIONS[name]
    scale, zero_point = data.draw(ordinary), data.draw(zero_points(dtype))
    out = data.draw(ordinary), data.draw(zero_points(dtype))
    q = mine(every(dtype), scale, zero_point)
    y, expected = function(q, *out), theirs_of(theirs(every(dtype), scale, zero_point), *out)
    halfway = (in_steps(q, real, *out).frac().abs() - 0.5).abs() < 1e-3  # one bit of a float32 decides
    assert_one_step(y, expected)
    assert_same(y.int_repr()[~halfway], expected.int_repr()[~halfway])


@by_bytes
@pytest.mark.parametrize("name", FLOAT_FUNCTIONS)
@given(data=st.data())
def test_functions_pytorch_has_on_floats_only(dtype, name, data):
    scale, zero_point = data.draw(ordinary), data.draw(zero_points(dtype))
    out = data.draw(ordinary), data.draw(zero_points(dtype))
    q = mine(every(dtype), scale, zero_point)
    y = getattr(ours, name)(q, *out)
    exact = in_steps(q, FLOAT_FUNCTIONS[name], *out).clamp(dtype.qmin, dtype.qmax)
    distance = (y.int_repr().to(torch.float64) - exact).abs()
    assert distance.max() <= 0.501


@by_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_functions_keep_the_layout(dtype, layout):
    x = lay_out(integers(1, (2, 3, 4, 5), dtype.torch_storage) % 100, layout)
    y = ours.hardswish(mine(x, 0.1, 3), 0.2, 7)
    assert_same(y.int_repr(), ours.hardswish(mine(x.contiguous(), 0.1, 3), 0.2, 7).int_repr())
    assert y.stride() == torch.empty_like(x).stride()


def test_gelu_can_be_approximated():
    q = mine(every(quint8), 0.02, 128)
    assert not torch.equal(ours.gelu(q, 0.0002, 128), ours.gelu(q, 0.0002, 128, "tanh"))


@by_bytes
@pytest.mark.parametrize("shape", [(2, 3, 256), (2, 64, 4, 64), (256, 1), (1, 70, 8, 8)], ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "sliced"])
def test_prelu_is_the_oracles_where_its_weight_can_be_one(dtype, shape, layout):
    weight = torch.randint(0, 64, (shape[1],), generator=generator(0)).to(dtype.torch_storage)
    x = lay_out(integers(1, shape, dtype.torch_storage), layout)
    for scale, zero_point, out in (
        (0.25, 5, (0.5, 9)),
        (0.1, 100, (0.03, 77)),
        (0.3, -1 if dtype == qint8 else 0, (0.2, 3)),
    ):
        y = ours.prelu(mine(x, scale, zero_point), mine(weight, 1 / 64, 0), *out)
        expected = oracle.prelu(theirs(x, scale, zero_point), theirs(weight, 1 / 64, 0), *out)
        assert_one_step(y, expected)
        assert (y.int_repr() == expected.int_repr()).double().mean() > 0.999


@pytest.mark.parametrize("shape", [(2, 3, 40, 20), (4, 3, 300), (1, 3, 256, 1)], ids=str)
@pytest.mark.parametrize("slopes", [1, 3])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8], ids=str)
def test_prelu_by_tables_is_that_of_few_values(dtype, slopes, shape):
    """Many values of a channel are looked up; the same values one by one are computed."""
    generator = torch.Generator().manual_seed(0)
    low = torch.iinfo(dtype).min
    q = torch.randint(low, low + 256, shape, generator=generator).to(dtype)
    weight = torch.randint(low, low + 256, (slopes,), generator=generator).to(dtype)
    rest = weight, 0.01, low + 30, 0.05, low + 77
    at_once = torch.ops.zeropoint.prelu(q, 0.04, low + 99, *rest)
    few = [torch.ops.zeropoint.prelu(part.contiguous(), 0.04, low + 99, *rest) for part in q.split(9, 2)]
    assert torch.equal(at_once, torch.cat(few, 2))
    if q.dim() == 4:
        last = q.contiguous(memory_format=torch.channels_last)
        assert torch.equal(torch.ops.zeropoint.prelu(last, 0.04, low + 99, *rest), at_once)


def test_prelu_leaves_positive_values_alone_whatever_the_weight():
    # The oracle multiplies them by the largest value of the weight's parameters, 0.25 here.
    q = mine(every(quint8).view(1, -1), 0.1, 0)
    weight = mine(torch.tensor([255], dtype=torch.uint8), 0.25 / 255, 0)
    assert torch.equal(ours.prelu(q, weight, 0.1, 0), q)


@by_dtype
@pytest.mark.parametrize("target", [quint8, qint8, qint32], ids=lambda d: d.name)
@given(data=st.data())
def test_requantize_is_dequantize_and_quantize(dtype, target, data):
    scale, zero_point = data.draw(ordinary), data.draw(zero_points(dtype))
    out = data.draw(scales()), data.draw(zero_points(target))
    q = mine(integers(data.draw(seeds), (3, 64), dtype.torch_storage), scale, zero_point)
    if dtype == qint32:
        q = mine(q.int_repr() % 5000, scale, zero_point)
    expected = zeropoint.quantize_per_tensor(q.dequantize(), *out, target)
    assert torch.equal(ours.requantize(q, *out, target), expected)
    if target == dtype:
        assert torch.equal(ours.requantize(q, *out), expected)


# ------------------------------------------------------------------------------------------------ bounds on integers


@by_bytes
@given(data=st.data())
def test_bounds(dtype, data):
    scale, zero_point = data.draw(ordinary), data.draw(zero_points(dtype))
    q, expected = mine(every(dtype), scale, zero_point), theirs(every(dtype), scale, zero_point)
    low, high = sorted(data.draw(st.floats(-50, 50)) for _ in range(2))
    assert_twins(ours.clamp(q, low, high), oracle.clamp(expected, low, high))
    assert_twins(ours.relu6(q), oracle.relu6(expected))
    # Whether a value on the threshold is above it depends on how it was dequantized, with FMA or without.
    away = (q.dequantize() - low).abs() > 1e-3 * scale
    kept, theirs_kept = (r.int_repr() for r in (ours.threshold(q, low, high), oracle.threshold(expected, low, high)))
    assert_same_in_vectors(kept[away], theirs_kept[away])


def test_relu6_in_place_changes_its_input():
    q = mine(every(quint8), 0.1, 3)
    assert ours.relu6(q, True) is q
    assert q.int_repr().max() == 63


def test_dropout_is_the_tensor_itself():
    q = mine(every(quint8), 0.1, 3)
    assert ours.dropout(q, 0.1, 3) is q
    with pytest.raises(NotImplementedError, match="training=False"):
        ours.dropout(q, 0.1, 3, training=True)


# ---------------------------------------------------------------------------------------------------------- refused


Q = mine(every(quint8), 0.1, 3)
REFUSED = {
    "different dtypes": (lambda: ours.add(Q, mine(every(qint8), 0.1, 3), 0.1, 0), TypeError, "add: both .* one dtype"),
    "shapes": (lambda: ours.mul(Q, mine(every(quint8)[:5], 0.1, 3), 0.1, 0), ValueError, r"mul: shapes \(256,\)"),
    "zero point": (lambda: ours.add(Q, Q, 0.1, 300), ValueError, "add: zero_point 300"),
    "scale": (lambda: ours.add(Q, Q, 0.0, 0), ValueError, "add: scale must be positive"),
    "nan scale": (lambda: ours.hardswish(Q, math.nan, 0), ValueError, "hardswish: scale must be positive"),
    "no parameters": (lambda: ours.add(Q, Q), TypeError, "need the scale and zero_point"),
    "float": (lambda: ours.add(Q, torch.ones(256), 0.1, 0), TypeError, "add: the second must be a quantized tensor"),
    "several numbers": (lambda: ours.add_scalar(Q, torch.ones(2)), ValueError, "the number must be one"),
    "a word": (lambda: ours.add_scalar(Q, "2"), TypeError, "add_scalar: expected a number, got str"),
    "infinite number": (lambda: ours.mul_scalar(Q, math.inf), ValueError, "must be finite"),
    "nan": (lambda: ours.add_scalar(Q, math.nan), ValueError, "must be finite"),
    "far": (lambda: ours.add_scalar(Q, 1e12), ValueError, r"more than 2\^31 steps"),
    "vanishing": (lambda: ours.mul_scalar(Q, 5e-324), ValueError, "is not a valid scale"),
    "sub-byte": (
        lambda: ours.add_scalar(zeropoint.quantize_per_tensor(torch.ones(4), 0.1, 0, quint4x2), 1.0),
        TypeError,
        "quint4x2",
    ),
    "per channel": (
        lambda: ours.add_scalar(
            zeropoint.quantize_per_channel(torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, quint8), 1.0
        ),
        ValueError,
        "quantized per tensor",
    ),
    "cat of nothing": (lambda: ours.cat([], 0), ValueError, "at least one tensor"),
    "cat of dtypes": (lambda: ours.cat([Q, mine(every(qint8), 0.1, 3)], 0), TypeError, "cat: all tensors"),
    "cat of shapes": (lambda: ours.cat([Q.view(2, 128), Q.view(4, 64)], 0), ValueError, "dimension 0 only"),
    "cat beyond": (lambda: ours.cat([Q], 3), ValueError, "axis 3 is out of range"),
    "cat of floats": (lambda: ours.cat([Q, torch.ones(2)], 0), TypeError, "tensor 1 must be a quantized tensor"),
    "out of another shape": (
        lambda: ours.add_out(Q, Q, zeropoint.empty_affine_quantized([3], scale=1.0, zero_point=0, dtype=quint8)),
        ValueError,
        "out must be quint8 of shape",
    ),
    "slopes": (lambda: ours.prelu(Q.view(2, 128), Q[:3], 0.1, 0), ValueError, "each of 128 channels"),
    "slopes of another dtype": (lambda: ours.prelu(Q, mine(every(qint8)[:1], 0.1, 0), 0.1, 0), TypeError, "weight"),
    "celu": (lambda: ours.celu(Q, 0.1, 0, 0.0), ValueError, "celu: alpha"),
    "gelu": (lambda: ours.gelu(Q, 0.1, 0, "erf"), ValueError, "gelu: approximate"),
    "clamp": (lambda: ours.clamp(Q), ValueError, "at least one of min and max"),
    "requantize": (lambda: ours.requantize(Q, 0.1, 0, quint4x2), TypeError, "requantize: dtype"),
    "unary": (
        lambda: torch.ops.zeropoint.unary(Q.int_repr(), 0.1, 3, "sine", [], 0.1, 3),
        ValueError,
        "no function 'sine'",
    ),
    "unary arguments": (
        lambda: torch.ops.zeropoint.unary(Q.int_repr(), 0.1, 3, "elu", [1.0], 0.1, 3),
        ValueError,
        "elu takes 3 arguments",
    ),
    "scales of cat": (
        lambda: torch.ops.zeropoint.cat([Q.int_repr()] * 2, [0.1], [3, 3], 0, 0.1, 3),
        ValueError,
        "as many scales",
    ),
    "16 bits": (
        lambda: torch.ops.zeropoint.add(*[torch.ones(3, dtype=torch.int16), 0.1, 0] * 2, 0.1, 0),
        TypeError,
        "add: a must be one of uint8, int8, int32",
    ),
}


@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_mistakes_are_explained(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_leaky_relu_in_place_warns():
    with pytest.warns(UserWarning, match="inplace=True returns a new tensor"):
        ours.leaky_relu(Q, 0.1, True, 0.1, 3)
