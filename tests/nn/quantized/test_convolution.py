"""Quantized convolutions: the bytes of the reference under every instruction set, and PyTorch's numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
import torch
import torch.ao.nn.quantized.functional  # the oracle
from hypothesis import assume, given
from layer_strategies import QUANTIZED, activations, biases, filling_scale, outputs, quantized, weights
from reference import Codes, conv_sums, conv_transpose_sums, requantize, to_float
from strategies import assert_same, examples, generator, integers, lay_out, numbers, seeds
from torch_engines import ENGINES, SEVEN_BITS, assert_within_one_step

import zeropoint
from zeropoint.nn.quantized import functional
from zeropoint.qfunctions import packed

ours = torch.ops.zeropoint

# Not x86, which is one of these two by the CPU and by the layer.
dimensions = pytest.mark.parametrize("dims", [1, 2, 3], ids=["1d", "2d", "3d"])

# The most elements along each axis, so that the plain reference stays quick.
SIDES = {1: 40, 2: 12, 3: 6}
KERNELS = {1: 7, 2: 4, 3: 3}


@dataclass(frozen=True)
class Convolution:
    """A convolution with its input."""

    x: Codes
    w: Codes
    bias: torch.Tensor | None
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    scale: float
    zero_point: int
    output_padding: list[int] | None = None

    @property
    def dims(self) -> int:
        return self.x.data.dim() - 2

    def sums(self) -> torch.Tensor:
        if self.output_padding is None:
            return conv_sums(self.x, self.w, self.stride, self.padding, self.dilation, self.groups)
        return conv_transpose_sums(
            self.x, self.w, self.stride, self.padding, self.output_padding, self.dilation, self.groups
        )

    def expected(self, **options) -> torch.Tensor:
        return requantize(
            self.sums(),
            self.x.scale,
            self.w.scale,
            self.scale,
            self.zero_point,
            self.x.data.dtype,
            bias=self.bias,
            **options,
        )

    def graph_arguments(self) -> tuple:
        x, w = self.x, self.w
        more = () if self.output_padding is None else (self.output_padding,)
        shape = self.stride, self.padding, *more, self.dilation, self.groups
        return x.data, x.scale, x.zero_point, w.data, w.scale, w.zero_point, self.bias, *shape

    def quantized_weight(self):
        """As a QTensor: transposed weights have a scale for each output of a group."""
        if self.output_padding is None:
            return quantized(self.w, 0)
        return quantized(self.w, 1)

    def packed(self) -> packed.ConvPackedParams:
        return packed.ConvPackedParams(
            self.quantized_weight(),
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.output_padding,
        )


@st.composite
def shapes(draw: st.DrawFn, dims: int, transposed: bool) -> tuple:
    """(groups, channels in, channels out, sizes, kernel, stride, padding, dilation)."""
    kind = draw(st.sampled_from(["plain", "plain", "grouped", "depthwise", "pointwise"]))
    few = st.one_of(st.integers(1, 6), st.sampled_from([8, 15, 16, 17, 33]))
    if kind == "depthwise":
        groups = c_in = c_out = draw(st.sampled_from([2, 3, 8, 15, 16, 17, 40]))
    elif kind == "grouped":
        groups = draw(st.integers(2, 5))
        c_in, c_out = groups * draw(st.integers(1, 5)), groups * draw(st.integers(1, 9))
    else:
        groups, c_in, c_out = 1, draw(few), draw(few)
    each = lambda low, high: draw(st.lists(st.integers(low, high), min_size=dims, max_size=dims))  # noqa: E731
    if kind == "pointwise":
        kernel, stride, padding, dilation = (
            [1] * dims,
            draw(st.sampled_from([[1] * dims, [2] * dims])),
            [0] * dims,
            [1] * dims,
        )
    else:
        kernel, stride, padding, dilation = each(1, KERNELS[dims]), each(1, 3), each(0, 3), each(1, 2)
    sizes = each(1, SIDES[dims] // (2 if transposed else 1))
    return groups, c_in, c_out, sizes, kernel, stride, padding, dilation


def output_sizes(sizes, kernel, stride, padding, dilation, output_padding=None) -> list[int]:
    if output_padding is None:
        return [
            (s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, t, p, d in zip(sizes, kernel, stride, padding, dilation)
        ]
    return [
        (s - 1) * t - 2 * p + d * (k - 1) + o + 1
        for s, k, t, p, d, o in zip(sizes, kernel, stride, padding, dilation, output_padding)
    ]


@st.composite
def convolutions(draw: st.DrawFn, dims: int, transposed: bool = False) -> Convolution:
    groups, c_in, c_out, sizes, kernel, stride, padding, dilation = draw(shapes(dims, transposed))
    more = None
    if transposed:
        more = [draw(st.integers(0, max(t, d) - 1)) for t, d in zip(stride, dilation)]
        shape, channels = (c_in, c_out // groups, *kernel), c_out // groups
    else:
        shape, channels = (c_out, c_in // groups, *kernel), c_out
    assume(min(output_sizes(sizes, kernel, stride, padding, dilation, more)) >= 1)
    x = draw(activations((draw(st.sampled_from([1, 1, 2, 3])), c_in, *sizes)))
    w = draw(weights(shape, channels))  # transposed: those of one group, which is what a QTensor can say
    scale, zero_point = draw(outputs(x, w.scale, math.prod(kernel) * c_in // groups))
    return Convolution(
        x, w, draw(biases(c_out, scale * 20)), stride, padding, dilation, groups, scale, zero_point, more
    )


def with_all_scales(c: Convolution) -> Convolution:
    """Parameters for every output channel, where a QTensor has those of one group."""
    if c.output_padding is None or c.w.scale.numel() == 1:
        return c
    w = Codes(c.w.data, c.w.scale.repeat(c.groups), c.w.zero_point.repeat(c.groups))
    return Convolution(**{**c.__dict__, "w": w})


LAYOUTS = ("contiguous", "channels_last", "sliced", "permuted")


# ----------------------------------------------------------------------------------------------------- the reference


@dimensions
@given(data=st.data())
@examples(60)
def test_equals_the_reference(isa, dims, data):
    c = data.draw(convolutions(dims))
    want = c.expected()
    x = Codes(lay_out(c.x.data, data.draw(st.sampled_from(LAYOUTS))), c.x.scale, c.x.zero_point)
    qx = quantized(x)
    p = c.packed()
    y = packed.conv(qx, p, c.scale, c.zero_point)
    assert_same(y.int_repr(), want)
    assert (y.q_scale(), y.q_zero_point(), y.qdtype) == (c.scale, c.zero_point, QUANTIZED[want.dtype])
    _, *rest = c.graph_arguments()
    y = getattr(ours, f"conv{dims}d")(x.data, *rest, c.scale, c.zero_point)
    assert_same(y, want)
    assert y.movedim(1, -1).is_contiguous()
    function = getattr(functional, f"conv{dims}d")
    y = function(
        qx,
        c.quantized_weight(),
        c.bias,
        c.stride,
        c.padding,
        c.dilation,
        c.groups,
        scale=c.scale,
        zero_point=c.zero_point,
        dtype=QUANTIZED[want.dtype],
    )
    assert_same(y.int_repr(), want)


@dimensions
@given(data=st.data())
@examples(60)
def test_transposed_equals_the_reference(isa, dims, data):
    c = data.draw(convolutions(dims, transposed=True))
    all_scales = with_all_scales(c)
    want = all_scales.expected()
    x = Codes(lay_out(c.x.data, data.draw(st.sampled_from(LAYOUTS))), c.x.scale, c.x.zero_point)
    assert_same(packed.conv(quantized(x), c.packed(), c.scale, c.zero_point).int_repr(), want)
    _, *rest = all_scales.graph_arguments()
    assert_same(getattr(ours, f"conv_transpose{dims}d")(x.data, *rest, c.scale, c.zero_point), want)
    function = getattr(functional, f"conv_transpose{dims}d")
    y = function(
        quantized(x),
        c.quantized_weight(),
        c.bias,
        c.stride,
        c.padding,
        c.output_padding,
        c.groups,
        c.dilation,
        scale=c.scale,
        zero_point=c.zero_point,
    )
    assert_same(y.int_repr(), want)


@given(seed=seeds, groups=st.sampled_from([1, 2, 3]))
@examples(20)
def test_transposed_graph_form_has_parameters_for_each_channel_of_each_group(isa, seed, groups):
    """More than a QTensor can say, whose scales are those of one group."""
    per_group, g = 3, generator(seed)
    n = per_group * groups
    x = Codes(integers(seed, (2, 2 * groups, 5, 4), torch.int8), 0.1, -5)
    w = Codes(
        integers(seed + 1, (2 * groups, per_group, 3, 2), torch.int8),
        torch.rand(n, generator=g) + 0.1,
        torch.randint(-128, 128, (n,), generator=g),
    )
    bias = torch.randn(n, generator=g)
    c = Convolution(x, w, bias, [2, 1], [1, 0], [1, 2], groups, filling_scale(x, w.scale, 12), 4, [1, 1])
    assert_same(ours.conv_transpose2d(*c.graph_arguments(), c.scale, c.zero_point), c.expected())


@dimensions
@given(data=st.data())
@examples(40)
def test_relu_and_addition_equal_the_reference(isa, dims, data):
    c = data.draw(convolutions(dims))
    p, qx, arguments = c.packed(), quantized(c.x), c.graph_arguments()
    rectified = c.expected(relu=True)
    assert_same(packed.conv_relu(qx, p, c.scale, c.zero_point).int_repr(), rectified)
    assert_same(getattr(ours, f"conv{dims}d_relu")(*arguments, c.scale, c.zero_point), rectified)

    other = data.draw(activations(rectified.shape))
    layout = data.draw(st.sampled_from(LAYOUTS))
    z = Codes(lay_out(other.data, layout), c.scale * data.draw(st.sampled_from([0.3, 1.0, 1.9])), other.zero_point)
    for name, relu in (("conv_add", False), ("conv_add_relu", True)):
        want = c.expected(added=z, relu=relu)
        assert_same(getattr(packed, name)(qx, quantized(z), p, c.scale, c.zero_point).int_repr(), want)
        operator = getattr(ours, name.replace("conv", f"conv{dims}d"))
        assert_same(operator(*arguments, z.data, z.scale, z.zero_point, c.scale, c.zero_point), want)


@dimensions
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@given(data=st.data())
@examples(25)
def test_dynamic_equals_quantizing_by_the_own_range(isa, dims, transposed, data):
    c = data.draw(convolutions(dims, transposed))
    reduce_range = data.draw(st.booleans())
    x = numbers(data.draw(seeds), c.x.data.shape, 0.1, special=False, far=False)
    scale, zero_point = zeropoint.choose_qparams(x, reduce_range)
    q = zeropoint.quantize_per_tensor(x, scale, zero_point, zeropoint.quint8).int_repr()
    full = Convolution(**{**with_all_scales(c).__dict__, "x": Codes(q, scale, zero_point)})
    want = torch.from_numpy(to_float(full.sums(), scale, full.w.scale, full.bias, 1))
    assert_same(packed.conv_dynamic(x, c.packed(), reduce_range), want)
    _, _, _, *rest = full.graph_arguments()
    operator = getattr(ours, f"conv{'_transpose' if transposed else ''}{dims}d_dynamic")
    assert_same(operator(x, *rest, reduce_range), want)


@dimensions
@given(data=st.data())
@examples(15)
def test_reflected_padding_is_that_of_the_integers(dims, data):
    x = data.draw(activations((2, 3, *[data.draw(st.integers(4, 7))] * dims)))
    w = data.draw(weights((4, 3, *[3] * dims), 4))
    pads = data.draw(st.lists(st.integers(0, 3), min_size=dims, max_size=dims))
    both = [p for size in reversed(pads) for p in (size, size)]
    mirrored = torch.nn.functional.pad(x.data.double(), both, mode="reflect").to(x.data.dtype)
    scale = filling_scale(x, w.scale, 3 * 3**dims)
    c = Convolution(Codes(mirrored, x.scale, x.zero_point), w, None, [1] * dims, [0] * dims, [1] * dims, 1, scale, 3)
    y = getattr(functional, f"conv{dims}d")(
        quantized(x),
        quantized(w, 0),
        None,
        padding=pads,
        padding_mode="reflect",
        scale=scale,
        zero_point=3,
        dtype=QUANTIZED[x.data.dtype],
    )
    assert_same(y.int_repr(), c.expected())


EXTREMES = {
    "255 x 127": (torch.uint8, 255, torch.int8, 127),
    "255 x -128": (torch.uint8, 255, torch.int8, -128),
    "-128 x -128": (torch.int8, -128, torch.int8, -128),
    "255 x 255": (torch.uint8, 255, torch.uint8, 255),
}


@pytest.mark.parametrize(("x_dtype", "x_value", "w_dtype", "w_value"), EXTREMES.values(), ids=EXTREMES)
@pytest.mark.parametrize("groups", [1, 2, 40], ids=["plain", "grouped", "depthwise"])
@pytest.mark.parametrize("end", ["lowest", "highest"])
def test_extreme_products_do_not_saturate(isa, x_dtype, x_value, w_dtype, w_value, groups, end):
    ends = {"lowest": lambda d: torch.iinfo(d).min, "highest": lambda d: torch.iinfo(d).max}[end]
    x = Codes(torch.full((1, 40, 6, 5), x_value, dtype=x_dtype), 0.1, ends(x_dtype))
    w = Codes(
        torch.full((40, 40 // groups, 3, 3), w_value, dtype=w_dtype), torch.tensor([0.1]), torch.tensor([ends(w_dtype)])
    )
    scale = 0.01 * 9 * 40 / groups * 300
    c = Convolution(x, w, None, [1, 1], [1, 1], [1, 1], groups, scale, 5)
    assert_same(packed.conv(quantized(x), c.packed(), scale, 5).int_repr(), c.expected())


USUAL = {
    "3x3": ((1, 64, 14, 14), 64, 3, 1, 1, 1),
    "stem": ((1, 3, 40, 40), 64, 7, 2, 3, 1),
    "1x1 stride 2": ((2, 64, 14, 14), 40, 1, 2, 0, 1),
    "1x1": ((2, 48, 13, 13), 65, 1, 1, 0, 1),
    "depthwise": ((2, 72, 15, 15), 72, 3, 1, 1, 72),
    "depthwise stride 2": ((1, 72, 15, 15), 72, 5, 2, 2, 72),
    "resnext": ((1, 64, 9, 9), 64, 3, 1, 1, 16),
    "wide": ((1, 8, 3, 300), 16, 3, 1, 1, 1),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("shape", "outputs_", "kernel", "stride", "padding", "groups"), USUAL.values(), ids=USUAL)
def test_layers_of_image_networks_equal_the_reference(isa, threads, shape, outputs_, kernel, stride, padding, groups):
    zeropoint.set_num_threads(threads)
    x = Codes(integers(1, shape, torch.uint8), 0.02, 117)
    data = integers(2, (outputs_, shape[1] // groups, kernel, kernel), torch.int8)
    w = Codes(data, torch.rand(outputs_, generator=generator(3)) + 0.01, torch.zeros(outputs_, dtype=torch.int64))
    bias, scale = torch.randn(outputs_, generator=generator(4)), filling_scale(x, w.scale, data[0].numel())
    c = Convolution(x, w, bias, [stride] * 2, [padding] * 2, [1, 1], groups, scale, 100)
    want, p = c.expected(relu=True), c.packed()
    for layout in ("contiguous", "channels_last"):
        q = quantized(Codes(lay_out(x.data, layout), x.scale, x.zero_point))
        assert_same(packed.conv_relu(q, p, scale, 100).int_repr(), want)


@dimensions
@pytest.mark.parametrize("groups", [1, 4], ids=["plain", "depthwise"])
def test_empty_batch_gives_an_empty_batch(isa, dims, groups):
    x = Codes(torch.zeros((0, 4, *[5] * dims), dtype=torch.uint8), 0.1, 3)
    w = Codes(integers(0, (4, 4 // groups, *[3] * dims), torch.int8), torch.tensor([0.1]), torch.tensor([0]))
    ones = [1] * dims
    c = Convolution(x, w, None, ones, [0] * dims, ones, groups, 0.1, 0)
    q = quantized(x)
    assert packed.conv(q, c.packed(), 0.1, 0).shape == (0, 4, *[3] * dims)
    other = quantized(Codes(torch.zeros((0, 4, *[3] * dims), dtype=torch.uint8), 0.1, 0))
    assert packed.conv_add(q, other, c.packed(), 0.1, 0).shape == (0, 4, *[3] * dims)
    assert packed.conv_dynamic(torch.zeros(x.data.shape), c.packed()).shape == (0, 4, *[3] * dims)
    transposed = packed.ConvPackedParams(quantized(w), None, ones, [0] * dims, ones, groups, [0] * dims)
    assert packed.conv(q, transposed, 0.1, 0).shape == (0, 4, *[7] * dims)


def test_one_value_counts_for_every_axis():
    x, w = integers(0, (1, 2, 9, 9), torch.uint8), integers(1, (3, 2, 3, 3), torch.int8)
    parameters = (w, torch.tensor([0.1]), torch.tensor([0]), None)
    one = ours.conv2d(x, 0.1, 3, *parameters, [2], [1], [2], 1, 1.0, 0)
    assert_same(one, ours.conv2d(x, 0.1, 3, *parameters, [2, 2], [1, 1], [2, 2], 1, 1.0, 0))


# --------------------------------------------------------------------------------------------------------- PyTorch


SHAPES = {
    "conv1d": ((4, 12, 301), (24, 12, 5), [2], [2], [1], 1),
    "conv2d": ((2, 16, 33, 31), (24, 16, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    "conv2d grouped": ((2, 16, 33, 31), (24, 8, 3, 3), [1, 2], [1, 0], [2, 1], 2),
    "conv2d depthwise": ((2, 24, 33, 31), (24, 1, 3, 3), [1, 1], [1, 1], [1, 1], 24),
    "conv3d": ((1, 8, 9, 17, 16), (16, 8, 3, 3, 3), [1, 1, 1], [1, 1, 1], [1, 1, 1], 1),
}


def torch_pair(name: str, per_channel: bool):
    shape, weight_shape, *geometry = SHAPES[name]
    g = generator(len(name))
    x = Codes(torch.randint(0, SEVEN_BITS, shape, dtype=torch.uint8, generator=g), 0.0213, 53)
    data = torch.randint(-128, 128, weight_shape, generator=g).to(torch.int8)
    n = weight_shape[0]
    scale = torch.rand(n, generator=g) * 0.02 + 0.001 if per_channel else torch.tensor([0.0137])
    w = Codes(data, scale, torch.zeros(len(scale), dtype=torch.int64))
    tx = torch._make_per_tensor_quantized_tensor(x.data, x.scale, x.zero_point)
    if per_channel:
        tw = torch._make_per_channel_quantized_tensor(data, scale.double(), w.zero_point, 0)
    else:
        tw = torch._make_per_tensor_quantized_tensor(data, float(scale), 0)
    y_scale = filling_scale(x, scale, data[0].numel()) / 2
    return Convolution(x, w, torch.randn(n, generator=g) * 3, *geometry, y_scale, 101), tx, tw


@pytest.mark.parametrize("per_channel", [False, True], ids=["per-tensor", "per-channel"])
@pytest.mark.parametrize("name", SHAPES)
def test_is_within_one_step_of_pytorch(engine, name, per_channel):
    c, tx, tw = torch_pair(name, per_channel)
    operator = name.split()[0]
    prepack = getattr(torch.ops.quantized, f"{operator}_prepack")
    for suffix, function in (("", packed.conv), ("_relu", packed.conv_relu)):
        # Packed for each: the onednn engine runs conv_relu as conv, if conv ran first with the same packed weight.
        tp = prepack(tw, c.bias, c.stride, c.padding, c.dilation, c.groups)
        theirs = getattr(torch.ops.quantized, operator + suffix)(tx, tp, c.scale, c.zero_point)
        assert_within_one_step(
            function(quantized(c.x), c.packed(), c.scale, c.zero_point).int_repr(), theirs.int_repr()
        )


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect"])
def test_functional_is_within_one_step_of_pytorchs(engine, padding_mode):
    c, tx, tw = torch_pair("conv2d", True)
    parameters = {"scale": c.scale, "zero_point": 101}
    padding = 2
    if padding_mode == "reflect":  # PyTorch's function has none, its module pads before
        tx, padding = torch.nn.functional.pad(tx, [2] * 4, mode="reflect"), 0
    theirs = torch.ao.nn.quantized.functional.conv2d(tx, tw, c.bias, padding=padding, **parameters)
    mine = functional.conv2d(
        quantized(c.x), c.quantized_weight(), c.bias, padding=2, padding_mode=padding_mode, **parameters
    )
    assert_within_one_step(mine.int_repr(), theirs.int_repr())


@pytest.mark.parametrize("name", ["conv2d_add", "conv2d_add_relu"])
def test_addition_is_within_one_step_of_pytorchs(name):
    if "onednn" not in ENGINES:
        pytest.skip("PyTorch was built without oneDNN, and no other engine adds")
    before, torch.backends.quantized.engine = torch.backends.quantized.engine, "onednn"
    try:
        c, tx, tw = torch_pair("conv2d", False)
        tp = torch.ops.quantized.conv2d_prepack(tw, c.bias, c.stride, c.padding, c.dilation, c.groups)
        z = Codes(integers(9, (2, 24, 33, 31), torch.uint8), c.scale * 0.6, 77)
        tz = torch._make_per_tensor_quantized_tensor(z.data, z.scale, z.zero_point)
        tz = tz.contiguous(memory_format=torch.channels_last)
        theirs = getattr(torch.ops.quantized, name)(tx, tz, tp, c.scale, c.zero_point)
        mine = getattr(packed, name.replace("2d", ""))(quantized(c.x), quantized(z), c.packed(), c.scale, c.zero_point)
        assert_within_one_step(mine.int_repr(), theirs.int_repr())
    finally:
        torch.backends.quantized.engine = before


# Not onednn, and so not x86 on CPUs with VNNI: its transposed convolutions are tens of steps off the exact ones, more
# than a hundred without AVX512. See docs/numerics.md.
EXACT_ENGINES = [e for e in ("fbgemm", "qnnpack") if e in torch.backends.quantized.supported_engines]


@pytest.mark.parametrize("engine", EXACT_ENGINES, indirect=True)
def test_transposed_is_within_half_a_step_of_float64_as_pytorchs_exact_engines_are(engine):
    g = generator(1)
    x = Codes(torch.randint(0, SEVEN_BITS, (2, 12, 17, 19), dtype=torch.uint8, generator=g), 0.02, 53)
    w = Codes(torch.randint(-128, 128, (12, 16, 3, 3), generator=g).to(torch.int8), 0.01, 0)
    bias, each = torch.randn(16, generator=g), ([2, 2], [1, 1], [0, 0], [1, 1], 1)
    floats = (x.data.double() - 53) * x.scale, w.data.double() * w.scale
    exact = torch.nn.functional.conv_transpose2d(*floats, bias.double(), 2, 1)
    scale = float(exact.abs().max()) / 120
    tp = torch.ops.quantized.conv_transpose2d_prepack(
        torch._make_per_tensor_quantized_tensor(w.data, w.scale, 0), bias, *each
    )
    theirs = torch.ops.quantized.conv_transpose2d(
        torch._make_per_tensor_quantized_tensor(x.data, x.scale, 53), tp, scale, 128
    )
    mine = packed.conv(quantized(x), packed.conv_transpose_prepack(quantized(w), bias, *each), scale, 128)
    for result in (mine, theirs):
        # 1e-3: the bias is rounded to the steps of the sums by qnnpack, the multiplier to float32 by all
        assert ((result.int_repr().double() - 128) - exact / scale).abs().max() <= 0.5 + 1e-3


@pytest.mark.parametrize("engine", [e for e in ENGINES if e != "onednn"], indirect=True)
@dimensions
def test_transposed_is_within_one_step_of_pytorchs(engine, dims):
    sizes = {1: (700,), 2: (17, 19), 3: (6, 7, 8)}[dims]
    g = generator(dims)
    x = Codes(torch.randint(0, SEVEN_BITS, (2, 12, *sizes), dtype=torch.uint8, generator=g), 0.02, 53)
    w = Codes(torch.randint(-128, 128, (12, 16, *[3] * dims), generator=g).to(torch.int8), 0.01, 0)
    bias, scale = torch.randn(16, generator=g), filling_scale(x, 0.01, 12 * 3**dims) / 3
    each = [2] * dims, [1] * dims, [1] * dims, [1] * dims, 1
    tw = torch._make_per_tensor_quantized_tensor(w.data, w.scale, 0)
    tx = torch._make_per_tensor_quantized_tensor(x.data, x.scale, x.zero_point)
    tp = getattr(torch.ops.quantized, f"conv_transpose{dims}d_prepack")(tw, bias, *each)
    theirs = getattr(torch.ops.quantized, f"conv_transpose{dims}d")(tx, tp, scale, 101)
    mine = packed.conv(quantized(x), packed.conv_transpose_prepack(quantized(w), bias, *each), scale, 101)
    assert_within_one_step(mine.int_repr(), theirs.int_repr())


def test_dynamic_is_that_of_pytorch_before_it_rounds_the_result_to_the_steps_of_the_input(engine):
    """PyTorch's result is quantized with the qparams of the input, and so cut off at its range; ours is not."""
    c, _, tw = torch_pair("conv2d", True)
    x = torch.randn(c.x.data.shape, generator=generator(5))
    tp = torch.ops.quantized.conv2d_prepack(tw, c.bias, c.stride, c.padding, c.dilation, c.groups)
    theirs = torch.ops.quantized.conv2d_dynamic(x, tp, True)
    mine = packed.conv_dynamic(x, c.packed(), True)
    scale, zero_point = zeropoint.choose_qparams(x, True)
    assert theirs.abs().max() < mine.abs().max() / 3
    steps = [torch.round(y / scale).clamp(-zero_point, 255 - zero_point) for y in (mine, theirs)]
    assert_within_one_step(*steps)


# ---------------------------------------------------------------------------------------------------------- errors


def byte_layer() -> dict:
    """Arguments of ``torch.ops.zeropoint.conv2d``."""
    return {
        "input": integers(0, (1, 4, 6, 6), torch.uint8),
        "input_scale": 0.1,
        "input_zero_point": 3,
        "weight": integers(1, (6, 2, 3, 3), torch.int8),
        "weight_scale": torch.tensor([0.1]),
        "weight_zero_point": torch.tensor([0]),
        "bias": torch.zeros(6),
        "stride": [1, 1],
        "padding": [0, 0],
        "dilation": [1, 1],
        "groups": 2,
        "scale": 0.2,
        "zero_point": 5,
    }


BAD = {
    "channels": ({"input": integers(0, (1, 5, 6, 6), torch.uint8)}, ValueError, r"\(1, 5, 6, 6\).*\(6, 2, 3, 3\)"),
    "input rank": ({"input": integers(0, (4, 6, 6), torch.uint8)}, ValueError, r"\(4, 6, 6\).*\(6, 2, 3, 3\)"),
    "float input": ({"input": torch.zeros(1, 4, 6, 6)}, TypeError, "uint8, int8, got float32"),
    "kernel larger than input": (
        {"input": integers(0, (1, 4, 2, 6), torch.uint8)},
        ValueError,
        r"\(1, 4, 2, 6\) is smaller than the kernel.*\(6, 2, 3, 3\)",
    ),
    "dilated kernel larger than input": ({"dilation": [1, 3]}, ValueError, "smaller than the kernel"),
    "weight rank": ({"weight": integers(1, (6, 2, 3), torch.int8)}, ValueError, r"4 dimensions.*\(6, 2, 3\)"),
    "float weight": ({"weight": torch.zeros(6, 2, 3, 3)}, TypeError, "weight must be.*got float32"),
    "groups": ({"groups": 4}, ValueError, "groups 4 must divide the 6 channels"),
    "no groups": ({"groups": 0}, ValueError, "groups 0"),
    "stride 0": ({"stride": [1, 0]}, ValueError, r"stride.*at least 1, got \[1, 0\]"),
    "strides": ({"stride": [1, 1, 1]}, ValueError, "stride must have 2 values"),
    "padding": ({"padding": [-1, 0]}, ValueError, r"padding.*at least 0, got \[-1, 0\]"),
    "dilation": ({"dilation": [0]}, ValueError, r"dilation.*at least 1, got \[0\]"),
    "input scale": ({"input_scale": -1.0}, ValueError, "input's scale.*-1"),
    "input scale nan": ({"input_scale": math.nan}, ValueError, "input's scale.*nan"),
    "input zero point": ({"input_zero_point": 256}, ValueError, "zero_point of the input is 256"),
    "weight scales": ({"weight_scale": torch.ones(4)}, ValueError, r"4 elements.*\(6, 2, 3, 3\) has 6"),
    "weight scale 0": ({"weight_scale": torch.zeros(1)}, ValueError, "every weight scale.*got 0"),
    "weight zero point": ({"weight_zero_point": torch.tensor([-129])}, ValueError, "zero_point of the weights is -129"),
    "bias": ({"bias": torch.zeros(2)}, ValueError, r"\(2,\).*\(6, 2, 3, 3\) has 6"),
    "output scale": ({"scale": 0.0}, ValueError, "output's scale.*got 0"),
    "output zero point": ({"zero_point": -1}, ValueError, "zero_point of the output is -1"),
}
ADDED = {
    "shape": ({"other": integers(2, (1, 6, 4, 5), torch.uint8)}, ValueError, r"\(1, 6, 4, 4\).*\(1, 6, 4, 5\)"),
    "dtype": ({"other": torch.zeros(1, 6, 4, 4)}, (TypeError, ValueError), "float32"),
    "scale": ({"other_scale": math.nan}, ValueError, "scale of what is added.*nan"),
    "scale 0": ({"other_scale": 0.0}, ValueError, "scale of what is added.*got 0"),
    "zero point": ({"other_zero_point": 300}, ValueError, "zero_point of the residual is 300"),
}


@pytest.mark.parametrize("name", ["conv2d", "conv2d_relu"])
@pytest.mark.parametrize(("change", "error", "message"), BAD.values(), ids=BAD)
def test_wrong_arguments_are_refused_naming_both_sides(name, change, error, message):
    with pytest.raises(error, match=message):
        getattr(ours, name)(**{**byte_layer(), **change})


@pytest.mark.parametrize("name", ["conv2d_add", "conv2d_add_relu"])
@pytest.mark.parametrize(("change", "error", "message"), ADDED.values(), ids=ADDED)
def test_what_is_added_must_fit(name, change, error, message):
    added = {"other": integers(2, (1, 6, 4, 4), torch.uint8), "other_scale": 0.1, "other_zero_point": 3}
    with pytest.raises(error, match=message):
        getattr(ours, name)(**{**byte_layer(), **added, **change})


TRANSPOSED = {
    "output padding": ({"output_padding": [1, 1]}, ValueError, "output_padding 1 must be smaller than stride"),
    "negative": ({"output_padding": [-1, 0]}, ValueError, r"output_padding.*at least 0, got \[-1, 0\]"),
    "channels": ({"groups": 4}, ValueError, "groups 4 must divide the 6 channels"),
    "nothing left": ({"padding": [9, 0]}, ValueError, r"\(1, 6, 6, 6\)"),
}


@pytest.mark.parametrize(("change", "error", "message"), TRANSPOSED.values(), ids=TRANSPOSED)
def test_wrong_transposed_arguments_are_refused(change, error, message):
    arguments = {
        **byte_layer(),
        "output_padding": [0, 0],
        "bias": None,
        "input": integers(0, (1, 6, 6, 6), torch.uint8),
    }
    with pytest.raises(error, match=message):
        ours.conv_transpose2d(**{**arguments, **change})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_dynamic_refuses_what_has_no_range(value):
    p = packed.ConvPackedParams(quantized(Codes(integers(0, (2, 1, 3, 3), torch.int8), 0.1, 0)))
    with pytest.raises(ValueError, match="finite"):
        packed.conv_dynamic(torch.full((1, 1, 4, 4), value), p)
    with pytest.raises(TypeError, match="float64"):
        packed.conv_dynamic(torch.zeros(1, 1, 4, 4, dtype=torch.float64), p)


def test_quantized_tensors_of_the_wrong_kind_are_refused():
    x = quantized(Codes(integers(0, (1, 4, 6, 6), torch.uint8), 0.1, 3))
    w = Codes(integers(1, (6, 4, 3, 3), torch.int8), 0.1, 0)
    qw = quantized(w)
    p = packed.ConvPackedParams(qw)
    with pytest.raises(TypeError, match="input must be a quantized tensor"):
        packed.conv(torch.zeros(1, 4, 6, 6), p, 0.1, 0)
    with pytest.raises(TypeError, match="weight must be a quantized tensor"):
        packed.ConvPackedParams(torch.zeros(6, 4, 3, 3))
    with pytest.raises(TypeError, match="what is added must be a quantized tensor"):
        packed.conv_add(x, torch.zeros(1, 6, 4, 4), p, 0.1, 0)
    with pytest.raises(TypeError, match="bias must be float32"):
        packed.ConvPackedParams(qw, torch.zeros(6, dtype=torch.int64))
    with pytest.raises(ValueError, match="3 to 5 dimensions"):
        packed.ConvPackedParams(quantized(Codes(w.data[:, :, 0, 0], 0.1, 0)))
    along_inputs = Codes(w.data, torch.ones(4), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="along axis 0, got axis 1"):
        packed.ConvPackedParams(quantized(along_inputs, 1))
    along_outputs = Codes(w.data, torch.ones(6), torch.zeros(6, dtype=torch.int64))
    with pytest.raises(ValueError, match="along axis 1, got axis 0"):
        packed.ConvPackedParams(quantized(along_outputs, 0), output_padding=[0])
    with pytest.raises(ValueError, match="conv1d: weight must have 3 dimensions"):
        functional.conv1d(x, qw, None)
    with pytest.raises(NotImplementedError, match="'zeros' or 'reflect', got 'circular'"):
        functional.conv2d(x, qw, None, padding=1, padding_mode="circular")
    with pytest.raises(NotImplementedError, match="quint8"):
        functional.conv2d(x, qw, None, dtype=zeropoint.qint8)
    with pytest.raises(ValueError, match="256"):
        packed.conv(x, p, 0.1, 256)


@pytest.mark.parametrize("padding", [6, [0, 9], -1, [1, 1, 1]], ids=str)
def test_reflected_padding_that_does_not_fit_is_refused(padding):
    x = quantized(Codes(integers(0, (1, 1, 6, 6), torch.uint8), 0.1, 3))
    w = quantized(Codes(integers(1, (1, 1, 3, 3), torch.int8), 0.1, 0))
    with pytest.raises(ValueError, match="padding"):
        functional.conv2d(x, w, None, padding=padding, padding_mode="reflect")
