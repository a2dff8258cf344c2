"""Linear layers with weights of 8, 4 and 16 bits: against sums in float64 and against PyTorch's operators."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from strategies import assert_same, examples, generator, lay_out

import zeropoint
import zeropoint.ops  # registers torch.ops.zeropoint
from zeropoint.numerics.packing import pack

ours = torch.ops.zeropoint
BLOCK = 128  # kWeightBlock: inputs that are summed before they are scaled
AVAILABLE = zeropoint.cpu_info().available

seeds = st.integers(0, 2**31)
rows = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 12, 19])
depths = st.sampled_from([1, 2, 7, 8, 31, 64, 127, 128, 129, 255, 300])
columns = st.sampled_from([1, 5, 31, 32, 33, 64, 70])
granularities = st.sampled_from(["tensor", "channel", 8, 32, 64, 128, 136])
zero_points = st.sampled_from(["none", "integer", "float"])


class Layer:
    """A random layer: what the operators take, and the weight in float64."""

    def __init__(self, seed: int, n: int, k: int, dtype: torch.dtype, bits: int, granularity, zero_point: str) -> None:
        g = generator(seed)
        low, high = (0, 15) if bits == 4 else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
        q = torch.randint(low, high + 1, (n, k), generator=g)
        self.weight = pack(q.to(torch.uint8), 4) if bits == 4 else q.to(dtype)
        self.group_size = granularity if isinstance(granularity, int) else 0
        groups = -(-k // granularity) if self.group_size else 1
        shape = (1,) if granularity == "tensor" else (n,) if granularity == "channel" else (n, groups)
        self.scale = torch.rand(shape, generator=g) * 0.1 + 0.001
        middle = (low + high + 1) // 2
        integers = torch.randint(low, high + 1, shape, generator=g)
        floats = torch.randn(shape, generator=g)
        self.zero_point = {"none": None, "integer": integers, "float": floats}[zero_point]
        self.bias = torch.randn(n, generator=g) if seed % 2 else None
        self.bits = bits

        def along(t: torch.Tensor) -> torch.Tensor:
            t = t.double().reshape(1 if t.numel() == 1 else n, -1)
            return t.repeat_interleave(granularity, 1)[:, :k] if self.group_size and t.shape[1] == groups else t

        zero = along(integers) if zero_point == "integer" else torch.tensor(float(middle)).double()
        shift = along(floats) if zero_point == "float" else torch.zeros(1, 1).double()
        self.exact = (q.double() - zero) * along(self.scale) + shift
        # Float zero points come after the sum, so its size counts for itself.
        self.size = ((q.double() - zero) * along(self.scale)).abs() + shift.abs()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        arguments = self.weight, self.scale, self.zero_point, self.bias, self.group_size
        return (ours.weight_only_linear_4bit if self.bits == 4 else ours.weight_only_linear)(x, *arguments)

    def assert_close(self, y: torch.Tensor, x: torch.Tensor) -> None:
        bias = torch.zeros(1) if self.bias is None else self.bias
        want = x.double() @ self.exact.t() + bias.double()
        size = x.double().abs() @ self.size.t() + bias.double().abs()
        blocks = x.shape[-1] / BLOCK + x.shape[-1] / (self.group_size or x.shape[-1]) + 3
        bound = 2.0**-24 * (BLOCK + blocks) * size
        if y.dtype == torch.bfloat16:
            bound = bound + 2.0**-8 * want.abs() + 1e-30
        assert y.dtype == x.dtype
        assert ((y.double() - want).abs() <= bound).all()


FORMATS = {"int8": (torch.int8, 8), "uint8": (torch.uint8, 8), "4bit": (torch.uint8, 4)}
formats = pytest.mark.parametrize("format", FORMATS)
floats = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


def inputs(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=generator(seed)).to(dtype)


# ------------------------------------------------------------------------------------------------------- numbers


@formats
@floats
@given(seed=seeds, m=rows, k=depths, n=columns, granularity=granularities, zero_point=zero_points)
@examples(25)
def test_is_the_sum_in_float64_but_for_rounding(format, dtype, isa, seed, m, k, n, granularity, zero_point):
    layer = Layer(seed, n, k, *FORMATS[format], granularity, zero_point)
    x = inputs(seed, m, k, dtype=dtype)
    y = layer(x)
    assert y.shape == (m, n)
    layer.assert_close(y, x)


@pytest.mark.isa
@formats
@floats
@given(seed=seeds, m=rows, k=depths, n=columns, granularity=granularities, zero_point=zero_points)
@examples(15)
def test_same_bytes_on_every_cpu_for_any_threads_and_rows(format, dtype, seed, m, k, n, granularity, zero_point):
    layer = Layer(seed, n, k, *FORMATS[format], granularity, zero_point)
    x = inputs(seed, m, k, dtype=dtype)
    with zeropoint.use_isa("reference"):
        want = layer(x)
    threads = zeropoint.get_num_threads()
    try:
        for isa in AVAILABLE:
            for count in (1, 3):
                zeropoint.set_num_threads(count)
                with zeropoint.use_isa(isa):
                    assert_same(layer(x), want)
                    for row in range(min(m, 3)):
                        assert_same(layer(x[row]), want[row])
    finally:
        zeropoint.set_num_threads(threads)


def test_float16_gives_the_same_bytes_on_every_cpu():
    x, weight = inputs(0, 7, 300), inputs(1, 70, 300).half()
    weight[0, :6] = torch.tensor([0.0, -0.0, 6e-8, -5e-5, 65504.0, 1.0]).half()
    with zeropoint.use_isa("reference"):
        want = ours.linear_dynamic_fp16(x, weight, None)
    for isa in AVAILABLE:
        with zeropoint.use_isa(isa):
            assert_same(ours.linear_dynamic_fp16(x, weight, None), want)
            assert_same(ours.linear_dynamic_fp16(x[2], weight, None), want[2])


def test_all_float16_values_are_converted_exactly(isa):
    weight = torch.arange(2**16).to(torch.int32).to(torch.uint16).view(torch.float16).reshape(-1, 1)
    y = ours.linear_dynamic_fp16(torch.ones(1, 1), weight, None)
    finite = weight.isfinite().reshape(-1)
    # -0 is lost: a sum starts from 0.
    assert torch.equal(y[0, finite], weight.float()[finite, 0])
    assert torch.equal(y[0, ~finite].isnan(), weight[~finite, 0].isnan())


@formats
@pytest.mark.parametrize("layout", ["contiguous", "sliced", "permuted", "expanded", "offset"])
def test_input_of_any_layout(format, layout):
    layer = Layer(3, 33, 24, *FORMATS[format], "channel", "integer")
    x = lay_out(inputs(4, 6, 24), layout)
    assert_same(layer(x), layer(x.contiguous()))


@formats
def test_input_of_any_rank(format):
    layer = Layer(5, 9, 16, *FORMATS[format], 8, "float")
    x = inputs(6, 2, 3, 4, 16)
    y = layer(x)
    assert y.shape == (2, 3, 4, 9)
    assert_same(y.reshape(-1, 9), layer(x.reshape(-1, 16)))
    assert_same(layer(x[0, 0, 0]), y[0, 0, 0])
    assert layer(x[:0]).shape == (0, 3, 4, 9)


@formats
def test_weight_of_any_layout(format):
    layer = Layer(7, 9, 16, *FORMATS[format], 8, "integer")
    x = inputs(8, 2, 16)
    want = layer(x)
    layer.weight = layer.weight.t().contiguous().t()
    layer.scale = layer.scale.t().contiguous().t()
    assert_same(layer(x), want)


@floats
def test_more_rows_than_are_copied_at_once(dtype):
    layer = Layer(20, 3, 256, torch.int8, 8, "channel", "float")
    x = inputs(21, 20_000, 256, dtype=dtype)
    assert_same(layer(x), torch.cat([layer(part) for part in x.split(7_777)]))


def test_no_outputs_and_no_inputs():
    weight, scale = torch.zeros(0, 5, dtype=torch.int8), torch.ones(1)
    assert ours.weight_only_linear(torch.ones(3, 5), weight, scale).shape == (3, 0)
    bias = torch.tensor([1.0, -2.0])
    y = ours.weight_only_linear(torch.ones(3, 0), torch.zeros(2, 0, dtype=torch.int8), scale, None, bias)
    assert torch.equal(y, bias.expand(3, 2))


def test_infinities_and_nan_go_where_they_belong(isa):
    weight = torch.tensor([[1, 0], [0, 1], [-1, 2]], dtype=torch.int8)
    y = ours.weight_only_linear(torch.tensor([[float("inf"), 1.0]]), weight, torch.ones(1))
    assert y[0, 0] == float("inf")
    assert y[0, 1].isnan()
    assert y[0, 2] == -float("inf")
    assert ours.weight_only_linear(torch.tensor([[float("nan"), 1.0]]), weight, torch.ones(1)).isnan().all()


def test_changed_weight_or_scale_is_seen():
    layer = Layer(10, 4, 8, torch.int8, 8, "channel", "none")
    x = inputs(10, 2, 8)
    first = layer(x)
    layer.scale.mul_(2)
    assert_same(layer(x), 2 * first)
    layer.weight.zero_()
    assert torch.equal(layer(x), torch.zeros(2, 4))


# ------------------------------------------------------------------------------------------------------ PyTorch's


@floats
@pytest.mark.parametrize("m", [1, 4, 33])
def test_int8_is_close_to_pytorchs(dtype, m):
    x = inputs(11, m, 256, dtype=dtype)
    weight = torch.randint(-128, 128, (64, 256), generator=generator(12)).to(torch.int8)
    scale = (torch.rand(64, generator=generator(13)) * 0.01).to(dtype)
    theirs = torch._weight_int8pack_mm(x, weight, scale)
    mine = ours.weight_only_linear(x, weight, scale)
    size = x.double().abs() @ (weight.double() * scale.double()[:, None]).abs().t()
    steps = 2.0**-7 if dtype == torch.bfloat16 else 2.0**-17
    assert ((mine.double() - theirs.double()).abs() <= steps * size).all()


@floats
@pytest.mark.parametrize("group_size", [32, 64, 128, 256])
@pytest.mark.parametrize("m", [1, 33])
def test_4bit_is_close_to_pytorchs(dtype, group_size, m):
    x = inputs(14, m, 256, dtype=dtype)
    q = torch.randint(0, 16, (64, 256), generator=generator(15))
    groups = 256 // group_size
    scale = (torch.rand(64, groups, generator=generator(16)) * 0.1).to(dtype)
    zero = torch.randn(64, groups, generator=generator(17)).to(dtype)
    packed = torch._convert_weight_to_int4pack_for_cpu(q.to(torch.int32), 1)
    both = torch.stack([scale.t(), zero.t()], -1).contiguous()
    theirs = torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, group_size, both)
    mine = ours.weight_only_linear_4bit(x, pack(q.to(torch.uint8), 4), scale, zero, None, group_size)
    size = x.double().abs() @ ((8 * scale + zero.abs()).double().repeat_interleave(group_size, 1)).t()
    steps = 2.0**-7 if dtype == torch.bfloat16 else 2.0**-17
    assert ((mine.double() - theirs.double()).abs() <= steps * size).all()


# --------------------------------------------------------------------------------------------------------- errors


X, W, S = torch.zeros(2, 16), torch.zeros(3, 16, dtype=torch.int8), torch.ones(1)
W4 = torch.zeros(3, 8, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X.double(), W, S), TypeError, "input must be one of float32, bfloat16, got float64"),
        ((X.half(), W, S), TypeError, "got float16"),
        ((X, W.to(torch.int16), S), TypeError, "weight must be one of"),
        ((X[:, :15], W, S), ValueError, r"for 15 inputs must have shape \(outputs, 15\)"),
        ((X[0, 0], W, S), ValueError, "at least 1 dimension"),
        ((X, W[0], S), ValueError, "must have shape"),
        ((X, W, torch.ones(2)), ValueError, r"scale has shape \(2,\).*3 outputs"),
        ((X, W, torch.ones(3, 3)), ValueError, "are not equal"),
        ((X, W, torch.ones(3, 4)), ValueError, "multiple of 8, or all 16 inputs, got 4"),
        ((X, W, torch.ones(3, 2), torch.zeros(2, dtype=torch.int64)), ValueError, "zero_point has shape"),
        ((X, W, torch.tensor([float("nan")])), ValueError, "weight_only_linear: every scale must be finite"),
        ((X, W, S, torch.tensor([128])), ValueError, "integer from -128 to 127, got 128"),
        ((X, W, S, torch.tensor([float("inf")])), ValueError, "zero point must be finite"),
        ((X, W, S, None, torch.zeros(2)), ValueError, "bias must be 3 floats"),
        ((X, W, S, None, torch.zeros(3, dtype=torch.int64)), ValueError, "bias must be 3 floats"),
        ((X, W, S, None, None, -8), ValueError, "must not be negative"),
        ((X, W, S, None, None, 12), ValueError, "multiple of 8"),
        ((X, W, torch.ones(3, 3), None, None, 8), ValueError, r"3 outputs of 2 group\(s\)"),
    ],
)
def test_refuses_what_does_not_fit(arguments, error, message):
    with pytest.raises(error, match=message):
        ours.weight_only_linear(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X, W4.to(torch.int8), S, None, None, 0), TypeError, "weight must be one of uint8, got int8"),
        ((X, W4[:, :7], S, None, None, 0), ValueError, r"4 bits for 16 inputs must have shape \(outputs, 8\)"),
        ((X, W4, S, torch.tensor([16]), None, 0), ValueError, "weight_only_linear_4bit: .* from 0 to 15, got 16"),
        ((X, W4, S, None, None, 4), ValueError, "multiple of 8"),
    ],
)
def test_4bit_refuses_what_does_not_fit(arguments, error, message):
    with pytest.raises(error, match=message):
        ours.weight_only_linear_4bit(*arguments)
