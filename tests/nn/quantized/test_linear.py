"""Quantized linear layers: the bytes of the reference under every instruction set, and PyTorch's numbers."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch.ao.nn.quantized.functional  # the oracle
from hypothesis import given
from layer_strategies import QUANTIZED, activations, biases, filling_scale, outputs, quantized, weights
from reference import Codes, f32, linear_sums, quantize_rows, requantize, to_float
from strategies import assert_same, examples, generator, integers, numbers, seeds
from torch_engines import ENGINES, SEVEN_BITS, assert_within_one_step

import zeropoint
from zeropoint.nn.quantized import functional
from zeropoint.qfunctions import packed

ours = torch.ops.zeropoint

# Not x86, which is one of these two by the CPU and by the layer.

# Sides around the tiles of the kernels: 6 and 12 rows, 16 channels, 4 to 64 inputs side by side.
rows = st.one_of(st.integers(1, 9), st.sampled_from([11, 12, 13, 15, 16, 17, 31, 33, 241]))
columns = st.one_of(st.integers(1, 20), st.sampled_from([31, 32, 33, 48, 63, 64, 65]))
depths = st.one_of(st.integers(1, 20), st.sampled_from([31, 32, 33, 63, 64, 65, 127, 128, 129, 256, 300]))


@st.composite
def layers(
    draw: st.DrawFn, shape: tuple[int, ...] | None = None
) -> tuple[Codes, Codes, torch.Tensor | None, float, int]:
    """(input, weight, bias, output scale, output zero point)."""
    shape = shape or (draw(rows), draw(depths))
    n, k = draw(columns), shape[-1]
    x, w = draw(activations(shape)), draw(weights((n, k), n))
    scale, zero_point = draw(outputs(x, w.scale, k))
    return x, w, draw(biases(n, scale * 20)), scale, zero_point


def expected(x: Codes, w: Codes, bias: torch.Tensor | None, scale: float, zero_point: int, **options) -> torch.Tensor:
    acc = linear_sums(x, w)
    return requantize(acc, x.scale, w.scale, scale, zero_point, x.data.dtype, bias=bias, axis=-1, **options)


def graph_arguments(x: Codes, w: Codes, bias: torch.Tensor | None) -> tuple:
    return x.data, x.scale, x.zero_point, w.data, w.scale, w.zero_point, bias


def check_every_form(x: Codes, w: Codes, bias: torch.Tensor | None, scale: float, zero_point: int) -> None:
    """Packed, functional and graph form."""
    want = expected(x, w, bias, scale, zero_point)
    qx, qw = quantized(x), quantized(w, 0)
    for y in (
        packed.linear(qx, packed.linear_prepack(qw, bias), scale, zero_point),
        functional.linear(qx, qw, bias, scale, zero_point),
    ):
        assert_same(y.int_repr(), want)
        assert (y.q_scale(), y.q_zero_point(), y.qdtype) == (scale, zero_point, QUANTIZED[x.data.dtype])
    assert_same(ours.linear(*graph_arguments(x, w, bias), scale, zero_point), want)


# ----------------------------------------------------------------------------------------------------- the reference


@given(layer=layers())
def test_equals_the_reference(isa, layer):
    check_every_form(*layer)


@given(data=st.data())
@examples(20)
@pytest.mark.parametrize("shape", [(64,), (1, 64), (2, 3, 37), (2, 1, 3, 16), (0, 16), (2, 0, 16)], ids=str)
def test_input_of_any_rank_equals_the_reference(isa, shape, data):
    check_every_form(*data.draw(layers(shape)))


@given(layer=layers(), slope=st.sampled_from([0.0, 0.01, 0.3, 1.0, 1.7]))
@examples(50)
def test_activations_fused_into_the_layer_equal_the_reference(isa, layer, slope):
    x, w, bias, scale, zero_point = layer
    p, qx = packed.linear_prepack(quantized(w, 0), bias), quantized(x)
    arguments = graph_arguments(x, w, bias)

    rectified = expected(*layer, relu=True)
    assert_same(packed.linear_relu(qx, p, scale, zero_point).int_repr(), rectified)
    assert_same(ours.linear_relu(*arguments, scale, zero_point), rectified)

    leaky = expected(*layer, slope=slope)
    assert_same(packed.linear_leaky_relu(qx, p, scale, zero_point, slope).int_repr(), leaky)
    assert_same(ours.linear_leaky_relu(*arguments, scale, zero_point, slope), leaky)


@given(layer=layers())
@examples(50)
def test_tanh_is_within_one_step_of_the_reference(isa, layer):
    x, w, bias, _, zero_point = layer
    scale = 2.0 / 256
    v = to_float(linear_sums(x, w), x.scale, w.scale, bias, -1).astype(np.float64)
    low, high = (0, 255) if x.data.dtype == torch.uint8 else (-128, 127)
    want = np.clip(np.rint(np.tanh(v) / scale) + zero_point, low, high)
    y = packed.linear_tanh(quantized(x), packed.linear_prepack(quantized(w, 0), bias), scale, zero_point).int_repr()
    assert np.abs(y.to(torch.int64).numpy() - want).max(initial=0) <= 1
    assert_same(ours.linear_tanh(*graph_arguments(x, w, bias), scale, zero_point), y)


EXTREMES = {
    "255 x 127": (torch.uint8, 255, torch.int8, 127),
    "255 x -128": (torch.uint8, 255, torch.int8, -128),
    "-128 x -128": (torch.int8, -128, torch.int8, -128),
    "127 x 127": (torch.int8, 127, torch.int8, 127),
    "255 x 255": (torch.uint8, 255, torch.uint8, 255),
}


@pytest.mark.parametrize(("x_dtype", "x_value", "w_dtype", "w_value"), EXTREMES.values(), ids=EXTREMES)
@pytest.mark.parametrize("ends", ["zero", "lowest", "highest"])
def test_extreme_products_do_not_saturate(isa, x_dtype, x_value, w_dtype, w_value, ends):
    def zero_point(dtype: torch.dtype) -> int:
        info = torch.iinfo(dtype)
        return {"zero": 0, "lowest": info.min, "highest": info.max}[ends]

    k = 515
    x = Codes(torch.full((7, k), x_value, dtype=x_dtype), 0.1, zero_point(x_dtype))
    w = Codes(torch.full((17, k), w_value, dtype=w_dtype), torch.tensor([0.1]), torch.tensor([zero_point(w_dtype)]))
    check_every_form(x, w, None, 0.01 * k * 255, 3)


@pytest.mark.parametrize("m", [1, 3])
def test_depth_of_65536_is_exact(isa, m):
    k = 2**16
    for x_dtype, x_value, w_dtype, w_value in (
        (torch.uint8, 255, torch.int8, 127),
        (torch.int8, -128, torch.int8, -128),
    ):
        data = torch.full((m, k), x_value, dtype=x_dtype)
        data[:, ::1013] = 1
        x = Codes(data, 0.5, 0)
        w = Codes(torch.full((18, k), w_value, dtype=w_dtype), torch.tensor([0.5]), torch.tensor([0]))
        check_every_form(x, w, None, 0.25 * k * 300, 0)


@given(layer=layers((6, 40)), layout=st.sampled_from(["sliced", "transposed", "offset"]))
@examples(20)
def test_input_and_weight_in_any_layout_equal_the_reference(isa, layer, layout):
    x, w, bias, scale, zero_point = layer

    def lay(q: Codes) -> Codes:
        if layout == "sliced":
            data = q.data.repeat_interleave(2, -1)[..., ::2]
        elif layout == "transposed":
            data = q.data.t().contiguous().t()
        else:
            data = torch.cat([q.data.new_zeros(1), q.data.reshape(-1)])[1:].view(q.data.shape)
        return Codes(data, q.scale, q.zero_point)

    want = expected(*layer)
    assert_same(ours.linear(*graph_arguments(lay(x), lay(w), bias), scale, zero_point), want)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_large_layer_equals_the_reference_on_any_number_of_threads(isa, threads):
    x = Codes(integers(1, (515, 192), torch.uint8), 0.02, 117)
    w = Codes(
        integers(2, (197, 192), torch.int8), torch.rand(197, generator=generator(3)) + 0.01, torch.zeros(197).long()
    )
    zeropoint.set_num_threads(threads)
    check_every_form(x, w, torch.randn(197, generator=generator(4)), filling_scale(x, w.scale, 192), 100)


def test_layer_without_inputs_is_its_bias(isa):
    x = Codes(torch.zeros(3, 0, dtype=torch.uint8), 0.1, 0)
    w = Codes(torch.zeros(4, 0, dtype=torch.int8), torch.tensor([0.1]), torch.tensor([0]))
    check_every_form(x, w, torch.tensor([0.0, 1.0, 2.0, -1.0]), 0.5, 3)


def test_default_output_parameters_are_those_of_the_input():
    x, w = Codes(integers(0, (2, 5), torch.uint8), 0.25, 7), Codes(integers(1, (3, 5), torch.int8), 0.5, 0)
    y = functional.linear(quantized(x), quantized(w))
    assert (y.q_scale(), y.q_zero_point()) == (0.25, 7)


# --------------------------------------------------------------------------------------------------------- dynamic


@st.composite
def float_layers(draw: st.DrawFn) -> tuple[torch.Tensor, Codes, torch.Tensor | None]:
    m, k, n = draw(rows), draw(depths), draw(columns)
    x = numbers(draw(seeds), (m, k), draw(st.sampled_from([1e-3, 0.1, 3.0])), special=False, far=False)
    return x, draw(weights((n, k), n)), draw(biases(n, 1.0))


def dynamic_reference(x: torch.Tensor, w: Codes, bias: torch.Tensor | None, reduce_range: bool) -> torch.Tensor:
    scale, zero_point = zeropoint.choose_qparams(x, reduce_range)
    q = zeropoint.quantize_per_tensor(x, scale, zero_point, zeropoint.quint8).int_repr()
    codes = Codes(q, scale, zero_point)
    return torch.from_numpy(to_float(linear_sums(codes, w), scale, w.scale, bias, -1))


@given(layer=float_layers(), reduce_range=st.booleans())
def test_dynamic_equals_quantizing_by_the_own_range(isa, layer, reduce_range):
    x, w, bias = layer
    want = dynamic_reference(x, w, bias, reduce_range)
    p = packed.linear_prepack(quantized(w, 0), bias)
    assert_same(packed.linear_dynamic(x, p, reduce_range), want)
    assert_same(ours.linear_dynamic(x, w.data, w.scale, w.zero_point, bias, reduce_range), want)
    assert torch.equal(packed.linear_relu_dynamic(x, p, reduce_range), want.clamp(min=0))
    assert torch.equal(
        ours.linear_relu_dynamic(x, w.data, w.scale, w.zero_point, bias, reduce_range), want.clamp(min=0)
    )


@given(layer=float_layers())
@examples(50)
def test_dynamic_per_token_equals_quantizing_each_row(isa, layer):
    x, w, bias = layer
    q, scale = quantize_rows(x)
    want = to_float(linear_sums(Codes(q, 1.0, 0), w), 1.0, w.scale, None, -1) * scale
    want = torch.from_numpy(want if bias is None else want + f32(bias))
    p = packed.linear_prepack(quantized(w, 0), bias)
    assert torch.equal(packed.linear_dynamic(x, p, per_token=True), want)
    assert torch.equal(packed.linear_relu_dynamic(x, p, per_token=True), want.clamp(min=0))
    assert torch.equal(ours.linear_dynamic(x, w.data, w.scale, w.zero_point, bias, False, True), want)


@pytest.mark.parametrize("per_token", [False, True], ids=["per-tensor", "per-token"])
@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8), (8,), (2, 3, 8)], ids=str)
def test_dynamic_input_of_any_rank_keeps_its_outer_shape(isa, shape, per_token):
    p = packed.linear_prepack(quantized(Codes(integers(0, (5, 8), torch.int8), 0.1, 0)))
    x = torch.randn(shape, generator=generator(0))
    y = packed.linear_dynamic(x, p, per_token=per_token)
    assert (y.shape, y.dtype) == ((*shape[:-1], 5), torch.float32)
    assert torch.equal(y.reshape(-1, 5), packed.linear_dynamic(x.reshape(-1, 8), p, per_token=per_token))


@pytest.mark.parametrize("per_token", [False, True], ids=["per-tensor", "per-token"])
def test_dynamic_row_of_zeros_gives_the_bias(isa, per_token):
    bias = torch.tensor([1.5, -2.0, 0.0])
    p = packed.linear_prepack(quantized(Codes(integers(0, (3, 8), torch.int8), 0.1, 0)), bias)
    assert torch.equal(packed.linear_dynamic(torch.zeros(2, 8), p, per_token=per_token), bias.expand(2, 3))


@given(seed=seeds, m=rows, k=depths, n=columns, has_bias=st.booleans())
@examples(20)
def test_float16_weights_saturate_and_give_the_float32_product(seed, m, k, n, has_bias):
    x = torch.randn(m, k, generator=generator(seed))
    weight = numbers(seed, (n, k), special=False, far=False)
    weight[0, 0] = 1e9
    bias = torch.randn(n, generator=generator(seed)) if has_bias else None
    half = weight.clamp(-65504, 65504).half()
    exact = torch.nn.functional.linear(x.double(), half.double(), None if bias is None else bias.double())
    size = torch.nn.functional.linear(x.double().abs(), half.double().abs()) + (0 if bias is None else bias.abs())
    p = packed.linear_prepack_fp16(weight, bias)
    y = packed.linear_dynamic_fp16(x, p)
    # Sums of at most 128 products, and the sum of those.
    assert ((y - exact).abs() <= 2.0**-24 * (128 + k / 128 + 2) * size).all()
    assert torch.equal(packed.linear_relu_dynamic_fp16(x, p), y.relu())
    assert torch.equal(ours.linear_dynamic_fp16(x, half, bias), y)
    assert torch.equal(ours.linear_relu_dynamic_fp16(x, half, bias), y.relu())


# --------------------------------------------------------------------------------------------------------- PyTorch


def torch_pair(seed: int, m: int, k: int, n: int, per_channel: bool):
    g = generator(seed)
    x = Codes(torch.randint(0, SEVEN_BITS, (m, k), dtype=torch.uint8, generator=g), 0.0213, 53)
    w_data = torch.randint(-128, 128, (n, k), generator=g).to(torch.int8)
    scale = torch.rand(n, generator=g) * 0.02 + 0.001 if per_channel else torch.tensor([0.0137])
    w = Codes(w_data, scale, torch.zeros(len(scale), dtype=torch.int64))
    tx = torch._make_per_tensor_quantized_tensor(x.data, x.scale, x.zero_point)
    if per_channel:
        tw = torch._make_per_channel_quantized_tensor(w_data, scale.double(), w.zero_point, 0)
    else:
        tw = torch._make_per_tensor_quantized_tensor(w_data, float(scale), 0)
    return x, w, tx, tw, torch.randn(n, generator=g) * 3, filling_scale(x, scale, k) / 2


@pytest.mark.parametrize("per_channel", [False, True], ids=["per-tensor", "per-channel"])
@pytest.mark.parametrize("relu", [False, True], ids=["linear", "relu"])
def test_is_within_one_step_of_pytorch(engine, per_channel, relu):
    for m, k, n in ((61, 64, 345), (1, 130, 20_001)):
        x, w, tx, tw, bias, scale = torch_pair(m, m, k, n, per_channel)
        name = "linear_relu" if relu else "linear"
        theirs = getattr(torch.ops.quantized, name)(tx, torch.ops.quantized.linear_prepack(tw, bias), scale, 101)
        mine = getattr(packed, name)(quantized(x), packed.linear_prepack(quantized(w, 0), bias), scale, 101)
        assert_within_one_step(mine.int_repr(), theirs.int_repr())


def test_functional_is_within_one_step_of_pytorchs(engine):
    x, w, tx, tw, bias, scale = torch_pair(0, 61, 64, 345, False)
    theirs = torch.ao.nn.quantized.functional.linear(tx, tw, bias, scale, 101)
    assert_within_one_step(
        functional.linear(quantized(x), quantized(w), bias, scale, 101).int_repr(), theirs.int_repr()
    )


def test_leaky_relu_and_tanh_are_within_one_step_of_pytorchs():
    if "onednn" not in ENGINES:
        pytest.skip("PyTorch was built without oneDNN")
    before, torch.backends.quantized.engine = torch.backends.quantized.engine, "onednn"
    try:
        x, w, tx, tw, bias, scale = torch_pair(1, 61, 64, 345, True)
        p, tp = packed.linear_prepack(quantized(w, 0), bias), torch.ops.quantized.linear_prepack(tw, bias)
        theirs = torch.ops.quantized.linear_leaky_relu(tx, tp, scale, 101, 0.1).int_repr()
        assert_within_one_step(packed.linear_leaky_relu(quantized(x), p, scale, 101, 0.1).int_repr(), theirs)
        theirs = torch.ops.quantized.linear_tanh(tx, tp, 1 / 128, 128).int_repr()
        assert_within_one_step(packed.linear_tanh(quantized(x), p, 1 / 128, 128).int_repr(), theirs)
    finally:
        torch.backends.quantized.engine = before


@pytest.mark.parametrize("relu", [False, True], ids=["linear", "relu"])
def test_dynamic_with_reduced_range_is_that_of_pytorch(engine, relu):
    _, w, _, tw, bias, _ = torch_pair(2, 61, 64, 345, True)
    x = torch.randn(61, 64, generator=generator(5))
    name = "linear_relu_dynamic" if relu else "linear_dynamic"
    theirs = getattr(torch.ops.quantized, name)(x, torch.ops.quantized.linear_prepack(tw, bias), True)
    mine = getattr(packed, name)(x, packed.linear_prepack(quantized(w, 0), bias), True)
    # A step of the activations moves a result by a scale times a weight; float32 alone moves it far less than this.
    assert (mine - theirs).abs().max() <= 1e-5 * theirs.abs().max() * math.sqrt(64)


def test_float16_layer_is_close_to_pytorchs():
    weight, x = torch.randn(33, 64, generator=generator(6)), torch.randn(5, 64, generator=generator(7))
    bias = torch.randn(33, generator=generator(8))
    theirs = torch.ops.quantized.linear_dynamic_fp16(x, torch.ops.quantized.linear_prepack_fp16(weight, bias))
    torch.testing.assert_close(packed.linear_dynamic_fp16(x, packed.linear_prepack_fp16(weight, bias)), theirs)


# ---------------------------------------------------------------------------------------------------------- errors


def byte_layer() -> list:
    """Arguments of ``torch.ops.zeropoint.linear``."""
    x, w = integers(0, (2, 5), torch.uint8), integers(1, (3, 5), torch.int8)
    return [x, 0.1, 3, w, torch.tensor([0.1]), torch.tensor([0]), torch.zeros(3), 0.2, 5]


BAD = {
    "depth": (0, integers(0, (2, 6), torch.uint8), ValueError, r"\(2, 6\).*\(3, 5\)"),
    "no dimension": (0, torch.tensor(1, dtype=torch.uint8), ValueError, r"\(\).*\(3, 5\)"),
    "float input": (0, torch.randn(2, 5), TypeError, "uint8, int8, got float32"),
    "input scale 0": (1, 0.0, ValueError, "input's scale.*got 0"),
    "input scale negative": (1, -0.5, ValueError, "input's scale.*got -0.5"),
    "input scale nan": (1, math.nan, ValueError, "input's scale.*nan"),
    "input scale inf": (1, math.inf, ValueError, "input's scale.*inf"),
    "input zero point below": (2, -1, ValueError, "zero_point of the input is -1"),
    "input zero point above": (2, 256, ValueError, "zero_point of the input is 256"),
    "input zero point far beyond": (2, 2**32, ValueError, "zero_point"),
    "weight of three dimensions": (
        3,
        integers(1, (3, 5, 1), torch.int8),
        ValueError,
        r"\(outputs, inputs\).*\(3, 5, 1\)",
    ),
    "float weight": (3, torch.randn(3, 5), TypeError, "weight must be.*got float32"),
    "weight scales": (4, torch.full((2,), 0.1), ValueError, r"2 elements.*\(3, 5\) has 3"),
    "weight scale 0": (4, torch.tensor([0.1, 0.0, 0.1]), ValueError, "every weight scale.*got 0"),
    "weight scale nan": (4, torch.tensor([math.nan]), ValueError, "every weight scale.*nan"),
    "weight zero points": (5, torch.zeros(4, dtype=torch.int64), ValueError, r"4 elements.*\(3, 5\) has 3"),
    "weight zero point beyond": (5, torch.tensor([128]), ValueError, "zero_point of the weights is 128"),
    "weight zero point far beyond": (5, torch.tensor([2**32]), ValueError, "zero_point"),
    "bias": (6, torch.zeros(4), ValueError, r"\(4,\).*\(3, 5\) has 3"),
    "output scale 0": (7, 0.0, ValueError, "output's scale.*got 0"),
    "output scale nan": (7, math.nan, ValueError, "output's scale.*nan"),
    "output zero point": (8, 256, ValueError, "256"),
    "output zero point far beyond": (8, -(2**32), ValueError, "zero_point"),
}


@pytest.mark.parametrize("name", ["linear", "linear_relu", "linear_leaky_relu", "linear_tanh"])
@pytest.mark.parametrize(("place", "value", "error", "message"), BAD.values(), ids=BAD)
def test_wrong_arguments_are_refused_naming_both_sides(name, place, value, error, message):
    arguments = byte_layer()
    arguments[place] = value
    more = (0.1,) if name == "linear_leaky_relu" else ()
    if name == "linear_tanh" and place in (7, 8):
        message = "scale|zero_point"
    with pytest.raises(error, match=message):
        getattr(ours, name)(*arguments, *more)


@pytest.mark.parametrize("name", ["linear_dynamic", "linear_relu_dynamic"])
@pytest.mark.parametrize("per_token", [False, True], ids=["per-tensor", "per-token"])
def test_dynamic_refuses_what_has_no_range(name, per_token):
    _, _, _, w, scale, zero_point, bias, *_ = byte_layer()
    for value in (math.nan, math.inf, -math.inf):
        x = torch.zeros(2, 5)
        x[1, 2] = value
        with pytest.raises(ValueError, match="finite"):
            getattr(ours, name)(x, w, scale, zero_point, bias, False, per_token)
    with pytest.raises(ValueError, match=r"\(2, 6\).*\(3, 5\)"):
        getattr(ours, name)(torch.zeros(2, 6), w, scale, zero_point, bias, False, per_token)
    with pytest.raises(TypeError, match="float64"):
        getattr(ours, name)(torch.zeros(2, 5, dtype=torch.float64), w, scale, zero_point, bias, False, per_token)


def test_float16_refuses_what_does_not_fit():
    with pytest.raises(TypeError, match="float16"):
        ours.linear_dynamic_fp16(torch.zeros(2, 5), torch.zeros(3, 5), None)
    with pytest.raises(ValueError, match=r"\(2, 5\).*\(3, 6\)"):
        ours.linear_dynamic_fp16(torch.zeros(2, 5), torch.zeros(3, 6).half(), None)
    with pytest.raises(TypeError, match="float"):
        packed.linear_prepack_fp16(torch.zeros(3, 5, dtype=torch.int8))


def test_quantized_tensors_of_the_wrong_kind_are_refused():
    x, w = (
        quantized(Codes(integers(0, (2, 5), torch.uint8), 0.1, 3)),
        quantized(Codes(integers(1, (3, 5), torch.int8), 0.1, 0)),
    )
    p = packed.linear_prepack(w)
    with pytest.raises(TypeError, match=r"input must be a quantized tensor, got Tensor of torch\.float32"):
        packed.linear(torch.zeros(2, 5), p, 0.1, 0)
    with pytest.raises(TypeError, match="input must be a quantized tensor"):
        functional.linear(torch.zeros(2, 5), w)
    with pytest.raises(TypeError, match="weight must be a quantized tensor"):
        functional.linear(x, torch.zeros(3, 5))
    with pytest.raises(TypeError, match="got qint32"):
        packed.linear_prepack(zeropoint.quantize_per_tensor(torch.zeros(3, 5), 0.1, 0, zeropoint.qint32))
    with pytest.raises(TypeError, match="bias must be float32"):
        packed.linear_prepack(w, torch.zeros(3, dtype=torch.int32))
    with pytest.raises(ValueError, match="along axis 0, got axis 1"):
        packed.linear_prepack(
            quantized(Codes(integers(1, (3, 5), torch.int8), torch.ones(5), torch.zeros(5).long()), 1)
        )
    per_channel = Codes(integers(0, (2, 5), torch.uint8), torch.ones(2), torch.zeros(2).long())
    with pytest.raises(ValueError, match="per tensor"):
        packed.linear(quantized(per_channel, 0), p, 0.1, 0)
    with pytest.raises(ValueError, match="256"):
        packed.linear(x, p, 0.1, 256)
