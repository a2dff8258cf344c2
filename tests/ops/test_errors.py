"""Bad input is refused with the operator, the argument, its value and what is allowed."""

from __future__ import annotations

import math
import re

import pytest
import torch

import zeropoint
import zeropoint.ops

ours = torch.ops.zeropoint

NAN, INF = math.nan, math.inf
X = torch.ones(4, 6)
Q = torch.ones(4, 6, dtype=torch.int8)
S4, Z4 = torch.full((4,), 0.5), torch.zeros(4, dtype=torch.int64)
S6, Z6 = torch.full((6,), 0.5), torch.zeros(6, dtype=torch.int64)
S42, Z42 = torch.full((4, 2), 0.5), torch.zeros(4, 2, dtype=torch.int64)
ONE_S, ONE_Z = torch.tensor([0.5]), torch.tensor([0])
INT8 = (-128, 127, torch.int8)
F32 = torch.float32


def refuses(error: type[Exception], *words: object):
    """A context that demands `error` with all of `words` in its message, in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(re.escape(str(word)) for word in words))


# Each takes (quant_min, quant_max, dtype) and is right otherwise.
QUANTIZERS = {
    "quantize_per_tensor": lambda *r: ours.quantize_per_tensor(X, 0.5, 0, *r),
    "quantize_per_tensor.tensor": lambda *r: ours.quantize_per_tensor.tensor(X, ONE_S, ONE_Z, *r),
    "quantize_per_tensor.tensor2": lambda low, high, dtype: ours.quantize_per_tensor.tensor2(
        X, ONE_S, ONE_Z, torch.tensor(low), torch.tensor(high), dtype
    ),
    "quantize_per_channel": lambda *r: ours.quantize_per_channel(X, S6, Z6, 1, *r),
    "quantize_per_token": lambda *r: ours.quantize_per_token(X, S4, Z4, *r),
    "quantize_per_channel_group": lambda *r: ours.quantize_per_channel_group(X, S42, Z42, *r, 3),
    "quantize_per_block": lambda *r: ours.quantize_per_block(X, [1, 3], S42, Z42, *r),
    "dequantize_per_channel": lambda *r: ours.dequantize_per_channel(Q, S6, Z6, 1, *r),
    "dequantize_per_token": lambda *r: ours.dequantize_per_token(Q, S4, Z4, *r, F32),
    "dequantize_per_channel_group": lambda *r: ours.dequantize_per_channel_group(Q, S42, Z42, *r, 3, F32),
    "dequantize_per_block": lambda *r: ours.dequantize_per_block(Q, [1, 3], S42, Z42, *r),
}
every_quantizer = pytest.mark.parametrize(("name", "call"), QUANTIZERS.items(), ids=QUANTIZERS.keys())


def base(name: str) -> str:
    return name.partition(".")[0]


@every_quantizer
def test_range_beyond_the_dtype(name, call):
    with refuses(ValueError, base(name), "quant_min -129", "below -128", "int8"):
        call(-129, 127, torch.int8)
    with refuses(ValueError, base(name), "quant_max 128", "above 127", "int8"):
        call(-128, 128, torch.int8)


@every_quantizer
@pytest.mark.parametrize(("low", "high"), [(5, 5), (7, -7)])
def test_range_upside_down_or_of_one_value(name, call, low, high):
    with refuses(ValueError, base(name), "quant_min must be below quant_max", low, high):
        call(low, high, torch.int8)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (torch.uint8, 0, 255),
        (torch.int16, -32768, 32767),
        (torch.int32, -(2**31), 2**31 - 1),
        (torch.float8_e4m3fn, -448, 448),
    ],
    ids=str,
)
def test_range_beyond_every_dtype(dtype, low, high):
    with refuses(ValueError, "quantize_per_tensor", f"quant_min {low - 1}", low, str(dtype)[6:]):
        ours.quantize_per_tensor(X, 0.5, 0, low - 1, high, dtype)
    with refuses(ValueError, "quantize_per_tensor", f"quant_max {high + 1}", high, str(dtype)[6:]):
        ours.quantize_per_tensor(X, 0.5, 0, low, high + 1, dtype)


@every_quantizer
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool], ids=str)
def test_dtype_that_is_not_quantized(name, call, dtype):
    with refuses(TypeError, base(name), "dtype must be one of", "int8", str(dtype)[6:]):
        call(0, 1, dtype)


DEQUANTIZERS = {
    "dequantize_per_tensor": lambda q: ours.dequantize_per_tensor(q, 0.5, 0, *INT8),
    "dequantize_per_tensor.tensor": lambda q: ours.dequantize_per_tensor.tensor(q, ONE_S, ONE_Z, *INT8),
    "dequantize_per_channel": lambda q: ours.dequantize_per_channel(q, S6, Z6, 1, *INT8),
    "dequantize_per_token": lambda q: ours.dequantize_per_token(q, S4, Z4, *INT8, F32),
    "dequantize_per_channel_group": lambda q: ours.dequantize_per_channel_group(q, S42, Z42, *INT8, 3, F32),
    "dequantize_per_block": lambda q: ours.dequantize_per_block(q, [1, 3], S42, Z42, *INT8),
}


@pytest.mark.parametrize(("name", "call"), DEQUANTIZERS.items(), ids=DEQUANTIZERS.keys())
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_stored_dtype_that_is_not_the_one_announced(name, call, dtype):
    with refuses(TypeError, base(name), str(dtype)[6:], "int8"):
        call(torch.ones(4, 6, dtype=dtype))


FLOAT_INPUTS = {
    "quantize_per_tensor": lambda x: ours.quantize_per_tensor(x, 0.5, 0, *INT8),
    "quantize_per_channel": lambda x: ours.quantize_per_channel(x, S6, Z6, 1, *INT8),
    "quantize_per_token": lambda x: ours.quantize_per_token(x, S4, Z4, *INT8),
    "quantize_per_channel_group": lambda x: ours.quantize_per_channel_group(x, S42, Z42, *INT8, 3),
    "quantize_per_block": lambda x: ours.quantize_per_block(x, [1, 3], S42, Z42, *INT8),
    "choose_qparams": lambda x: ours.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8),
    "choose_qparams_symmetric": lambda x: ours.choose_qparams_symmetric.tensor(x, 0, 255, 1e-5, torch.uint8),
    "choose_qparams_per_token": lambda x: ours.choose_qparams_per_token(x, torch.int8),
    "choose_qparams_per_token_asymmetric": lambda x: ours.choose_qparams_per_token_asymmetric(x, torch.int8),
    "_choose_qparams_per_token_asymmetric_impl": lambda x: ours._choose_qparams_per_token_asymmetric_impl(
        x, torch.int8
    ),
    "fake_quantize_per_tensor_affine": lambda x: zeropoint.fake_quantize_per_tensor_affine(x, 0.5, 0, -8, 7),
    "fake_quantize_per_channel_affine": lambda x: zeropoint.fake_quantize_per_channel_affine(x, S6, Z6, 1, -8, 7),
    "fake_quant_per_channel": lambda x: ours.fake_quant_per_channel(x, S6, Z6, 1, -8, 7),
}


@pytest.mark.parametrize(("name", "call"), FLOAT_INPUTS.items(), ids=FLOAT_INPUTS.keys())
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float8_e5m2], ids=str)
def test_input_that_is_not_float(name, call, dtype):
    with refuses(TypeError, name, "input must be one of", "float32", f"got {str(dtype)[6:]}"):
        call(torch.ones(4, 6, dtype=torch.float32).to(dtype))


@pytest.mark.parametrize("name", ["choose_qparams_per_token", "choose_qparams_per_token_asymmetric"])
def test_parameters_per_token_are_for_int8_only(name):
    with refuses(TypeError, name, "dtype must be one of int8", "uint8"):
        getattr(ours, name)(X, torch.uint8)


# ---------------------------------------------------------------------------------------------- axes and lengths


BY_AXIS = {
    "quantize_per_channel": lambda axis, s, z: ours.quantize_per_channel(X, s, z, axis, *INT8),
    "dequantize_per_channel": lambda axis, s, z: ours.dequantize_per_channel(Q, s, z, axis, *INT8),
    "fake_quantize_per_channel_affine": lambda axis, s, z: zeropoint.fake_quantize_per_channel_affine(
        X, s, z, axis, -8, 7
    ),
    "fake_quant_per_channel": lambda axis, s, z: ours.fake_quant_per_channel(X, s, z, axis, -8, 7),
}
by_axis = pytest.mark.parametrize(("name", "call"), BY_AXIS.items(), ids=BY_AXIS.keys())


@by_axis
@pytest.mark.parametrize("axis", [2, 100, -3])
def test_axis_out_of_range(name, call, axis):
    with refuses(ValueError, name, f"axis {axis}", "2 dimensions"):
        call(axis, S6, Z6)


@by_axis
def test_channels_and_parameters_that_do_not_match(name, call):
    with refuses(ValueError, name, "scale", "has 4 values", "expected 6", "(4, 6)", "axis 1"):
        call(1, S4, Z6)
    with refuses(ValueError, name, "zero_point", "has 4 values", "expected 6", "(4, 6)", "axis 1"):
        call(1, S6, Z4)


def test_no_axis_fits_a_tensor_without_dimensions():
    with refuses(ValueError, "quantize_per_channel", "axis 0", "0 dimensions"):
        ours.quantize_per_channel(torch.tensor(1.0), ONE_S, ONE_Z, 0, *INT8)


def test_tokens_and_parameters_that_do_not_match():
    for s, z, wrong in ((S6, Z4, "scales"), (S4, Z6, "zero_points")):
        with refuses(ValueError, "quantize_per_token", wrong, "has 6 values", "expected 4", "last axis of (4, 6)"):
            ours.quantize_per_token(X, s, z, *INT8)
        with refuses(ValueError, "dequantize_per_token", wrong, "has 6 values", "expected 4", "last axis of (4, 6)"):
            ours.dequantize_per_token(Q, s, z, *INT8, F32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ours.quantize_per_token(torch.tensor(1.0), ONE_S, ONE_Z, *INT8),
        lambda: ours.dequantize_per_token(torch.tensor(1, dtype=torch.int8), ONE_S, ONE_Z, *INT8, F32),
        lambda: ours.choose_qparams_per_token(torch.tensor(1.0), torch.int8),
        lambda: ours.choose_qparams_per_token_asymmetric(torch.tensor(1.0), torch.int8),
        lambda: ours._choose_qparams_per_token_asymmetric_impl(torch.tensor(1.0), torch.int8),
    ],
    ids=["quantize", "dequantize", "choose", "choose-asymmetric", "choose-asymmetric-impl"],
)
def test_a_token_needs_a_dimension(call):
    with refuses(ValueError, "token", "at least 1 dimension", "got shape ()"):
        call()


@pytest.mark.parametrize("name", ["choose_qparams_per_token", "choose_qparams_per_token_asymmetric"])
def test_empty_tokens_have_no_range(name):
    with refuses(ValueError, name, "last axis is empty", "(3, 0)"):
        getattr(ours, name)(torch.zeros(3, 0), torch.int8)


GROUPS = {
    "quantize_per_channel_group": lambda t, s, z, g: ours.quantize_per_channel_group(t.to(F32), s, z, *INT8, g),
    "dequantize_per_channel_group": lambda t, s, z, g: ours.dequantize_per_channel_group(t, s, z, *INT8, g, F32),
}
groups = pytest.mark.parametrize(("name", "call"), GROUPS.items(), ids=GROUPS.keys())


@groups
def test_group_size_that_does_not_divide(name, call):
    with refuses(ValueError, name, "group_size 4", "does not divide", "6 columns"):
        call(Q, S42, Z42, 4)
    with refuses(ValueError, name, "group_size 12", "does not divide", "6 columns"):
        call(Q, S42, Z42, 12)


@groups
@pytest.mark.parametrize("size", [1, 0, -2])
def test_group_size_too_small(name, call, size):
    with refuses(ValueError, name, "group_size must be above 1", size):
        call(Q, S42, Z42, size)


@groups
@pytest.mark.parametrize("shape", [(6,), (2, 4, 6)], ids=str)
def test_groups_need_a_matrix(name, call, shape):
    with refuses(ValueError, name, "2 dimensions", shape):
        call(torch.ones(shape, dtype=torch.int8), S42, Z42, 3)


@groups
def test_groups_and_parameters_that_do_not_match(name, call):
    with refuses(ValueError, name, "scales has 4 values", "expected 8", "group of 3", "(4, 6)"):
        call(Q, S4, Z42, 3)
    with refuses(ValueError, name, "zero_points has 4 values", "expected 8", "group of 3", "(4, 6)"):
        call(Q, S42, Z4, 3)


BLOCKS = {
    "quantize_per_block": lambda b, s=S42, z=Z42: ours.quantize_per_block(X, b, s, z, *INT8),
    "dequantize_per_block": lambda b, s=S42, z=Z42: ours.dequantize_per_block(Q, b, s, z, *INT8),
}


@pytest.mark.parametrize(("name", "call"), BLOCKS.items(), ids=BLOCKS.keys())
def test_blocks_that_do_not_tile_the_input(name, call):
    with refuses(ValueError, name, "block_size [3]", "2 dimensions"):
        call([3])
    with refuses(ValueError, name, "block_size 4", "does not divide", "6 elements", "axis 1"):
        call([1, 4])
    with refuses(ValueError, name, "block_size 0", "axis 0"):
        call([0, 3])
    with refuses(ValueError, name, "block_size -2", "axis 0"):
        call([-2, 3])
    with refuses(ValueError, name, "scales has 4 values", "expected 8", "4 x 2 blocks"):
        call([1, 3], S4)
    with refuses(ValueError, name, "zero_points has 4 values", "expected 8", "4 x 2 blocks"):
        call([1, 3], S42, Z4)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("quantize_per_tensor", lambda s, z: ours.quantize_per_tensor.tensor(X, s, z, *INT8)),
        (
            "quantize_per_tensor",
            lambda s, z: ours.quantize_per_tensor.tensor2(X, s, z, torch.tensor(-128), torch.tensor(127), torch.int8),
        ),
        ("dequantize_per_tensor", lambda s, z: ours.dequantize_per_tensor.tensor(Q, s, z, *INT8)),
        ("fake_quantize_per_tensor_affine", lambda s, z: zeropoint.fake_quantize_per_tensor_affine(X, s, z, -8, 7)),
    ],
    ids=["quantize", "quantize2", "dequantize", "fake"],
)
def test_tensor_parameters_of_more_than_one_element(name, call):
    with refuses(ValueError, name, "scale must have one element", "(4,)"):
        call(S4, ONE_Z)
    with refuses(ValueError, name, "zero_point must have one element", "(4,)"):
        call(ONE_S, Z4)


# -------------------------------------------------------------------------------------------------------- scales


def spoiled(scales: torch.Tensor, value: float) -> torch.Tensor:
    scales = scales.clone()
    scales.view(-1)[2] = value
    return scales


BAD_SCALES = (0.0, -0.0, NAN, INF, -INF)
bad_scales = pytest.mark.parametrize("value", BAD_SCALES, ids=str)


@bad_scales
@pytest.mark.parametrize("input_dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=str)
def test_scale_of_a_tensor_without_an_inverse(isa, dtype, input_dtype, value):
    with refuses(ValueError, "quantize", "scale must be finite and not zero", "got"):
        ours.quantize_per_tensor(X.to(input_dtype), value, 0, -128, 127, dtype)
    with refuses(ValueError, "quantize", "scale must be finite and not zero", "got"):
        ours.quantize_per_tensor.tensor(X.to(input_dtype), torch.tensor(value), ONE_Z, -128, 127, dtype)


@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=["int8", "float8"])
@pytest.mark.parametrize(
    "call",
    [
        lambda v, s, dt: ours.quantize_per_channel(X, spoiled(S6.to(s), v), Z6, 1, -128, 127, dt),
        lambda v, s, dt: ours.quantize_per_channel(X, spoiled(S4.to(s), v), Z4, 0, -128, 127, dt),
        lambda v, s, dt: ours.quantize_per_token(X, spoiled(S4.to(s), v), Z4, -128, 127, dt),
        lambda v, s, dt: ours.quantize_per_channel_group(X, spoiled(S42.to(s), v), Z42, -128, 127, dt, 3),
        lambda v, s, dt: ours.quantize_per_block(X, [1, 3], spoiled(S42.to(s), v), Z42, -128, 127, dt),
    ],
    ids=["channel-1", "channel-0", "token", "group", "block"],
)
def test_scales_without_an_inverse_are_named_by_index(isa, call, scale_dtype, dtype):
    for value in BAD_SCALES:
        with refuses(ValueError, "quantize", "every scale must be finite and not zero", "got", "index 2"):
            call(value, scale_dtype, dtype)


@bad_scales
@pytest.mark.parametrize("input_dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_fake_quantize_scales_without_an_inverse(isa, value, input_dtype):
    x = X.to(input_dtype)
    with refuses(ValueError, "fake_quantize", "scale must be finite and not zero", "got"):
        zeropoint.fake_quantize_per_tensor_affine(x, value, 0, -8, 7)
    with refuses(ValueError, "fake_quantize", "scale must be finite and not zero", "got"):
        zeropoint.fake_quantize_per_tensor_affine(x, torch.tensor([value]), ONE_Z, -8, 7)
    with refuses(ValueError, "fake_quantize", "scale must be finite and not zero", "got", "index 2"):
        zeropoint.fake_quantize_per_channel_affine(x, spoiled(S6, value), Z6.to(torch.int32), 1, -8, 7)


@bad_scales
def test_decomposed_fake_quant_scales_without_an_inverse(isa, value):
    with refuses(ValueError, "fake_quant", "scale must be finite and not zero", "got", "index 2"):
        ours.fake_quant_per_channel(X, spoiled(S6, value), Z6, 1, -8, 7)


# ------------------------------------------------------------------------------------------- parameters from data


@pytest.mark.parametrize("name", ["choose_qparams", "choose_qparams_symmetric"])
def test_a_range_needs_data_without_nan_around_zero(isa, name):
    op = getattr(ours, name).tensor
    with refuses(ValueError, name, "input is empty", "(0, 3)"):
        op(torch.zeros(0, 3), 0, 255, 1e-5, torch.uint8)
    with refuses(ValueError, name, "NaN"):
        op(torch.tensor([1.0, NAN]), 0, 255, 1e-5, torch.uint8)
    with refuses(ValueError, name, "quant_min must be below quant_max", 7, -7):
        op(X, 7, -7, 1e-5, torch.int8)
    with refuses(ValueError, name, "must include 0", 1, 7):
        op(X, 1, 7, 1e-5, torch.int8)
    with refuses(ValueError, name, "must include 0", -7, -1):
        op(X, -7, -1, 1e-5, torch.int8)
    with refuses(TypeError, name, "dtype must be one of", "int64"):
        op(X, 0, 255, 1e-5, torch.int64)


@pytest.mark.parametrize("position", [0, 7, 23])
@pytest.mark.parametrize("input_dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_groups_refuse_nan(isa, position, input_dtype):
    x = X.clone()
    x.view(-1)[position] = NAN
    with refuses(ValueError, "quantize_per_channel_group", "NaN"):
        ours.quantize_per_channel_group(x.to(input_dtype), S42, Z42, *INT8, 3)


def test_choose_qparams_of_what_has_no_finite_range(isa):
    with refuses(ValueError, "choose_qparams", "empty", "(0,)"):
        zeropoint.choose_qparams(torch.zeros(0))
    with refuses(ValueError, "choose_qparams", "finite", "nan"):
        zeropoint.choose_qparams(torch.tensor([1.0, NAN]))
    with refuses(ValueError, "choose_qparams", "finite", "inf"):
        zeropoint.choose_qparams(torch.tensor([1.0, INF]))


def test_choose_qparams_optimized_of_bad_arguments(isa):
    x = torch.randn(10)
    for numel in (0, -1, 11):
        with refuses(ValueError, "choose_qparams_optimized", "numel", 10, numel):
            zeropoint.choose_qparams_optimized(x, numel)
    with refuses(ValueError, "choose_qparams_optimized", "input tensor is empty and has no data", (0,)):
        zeropoint.choose_qparams_optimized(torch.tensor([]), 0)
    with refuses(ValueError, "choose_qparams_optimized", "n_bins", 0):
        zeropoint.choose_qparams_optimized(x, 10, n_bins=0)
    for ratio in (-0.5, 1.5):
        with refuses(ValueError, "choose_qparams_optimized", "ratio must be between 0 and 1", ratio):
            zeropoint.choose_qparams_optimized(x, 10, ratio=ratio)
    for bits in (0, 9):
        with refuses(ValueError, "choose_qparams_optimized", "bit_width", bits):
            zeropoint.choose_qparams_optimized(x, 10, bit_width=bits)
    with refuses(ValueError, "choose_qparams_optimized", "NaN"):
        zeropoint.choose_qparams_optimized(torch.tensor([1.0, NAN]), 2)


def test_range_of_observed_values_upside_down():
    from zeropoint.numerics.qparams import qparams_from_range

    eps = torch.tensor([1e-6])
    with refuses(ValueError, "minimum must not be above the maximum", 2, 1):
        qparams_from_range(torch.tensor(2.0), torch.tensor(1.0), 0, 255, eps=eps)
    with refuses(ValueError, "NaN", "nan"):
        qparams_from_range(torch.tensor(NAN), torch.tensor(1.0), 0, 255, eps=eps)


# ------------------------------------------------------------------------------------------------- fake quantize


@pytest.mark.parametrize("zero_point", [-9, 8, 1000])
def test_zero_point_outside_the_range(isa, zero_point):
    words = (f"zero_point {zero_point}", "between quant_min -8 and quant_max 7")
    with refuses(ValueError, "fake_quantize_per_tensor_affine", *words):
        zeropoint.fake_quantize_per_tensor_affine(X, 0.5, zero_point, -8, 7)
    with refuses(ValueError, "fake_quantize_per_tensor_affine", *words):
        zeropoint.fake_quantize_per_tensor_affine(X, ONE_S, torch.tensor([zero_point]), -8, 7)
    with refuses(ValueError, "fake_quantize_per_channel_affine", *words):
        zero_points = Z6.to(torch.int32)
        zero_points[3] = zero_point
        zeropoint.fake_quantize_per_channel_affine(X, S6, zero_points, 1, -8, 7)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("fake_quantize_per_tensor_affine", lambda a, b: zeropoint.fake_quantize_per_tensor_affine(X, 0.5, 0, a, b)),
        (
            "fake_quantize_per_channel_affine",
            lambda a, b: zeropoint.fake_quantize_per_channel_affine(X, S6, Z6.float(), 1, a, b),
        ),
        ("fake_quant_per_channel", lambda a, b: ours.fake_quant_per_channel(X, S6, Z6, 1, a, b)),
    ],
    ids=["per-tensor", "per-channel", "decomposed"],
)
@pytest.mark.parametrize(("low", "high"), [(3, 3), (7, -8)])
def test_fake_quantize_range_upside_down(name, call, low, high):
    with refuses(ValueError, name, "quant_min must be below quant_max", low, high):
        call(low, high)


def test_decomposed_fake_quant_takes_float32_only():
    with refuses(TypeError, "fake_quant_per_channel", "input must be one of float32", "float16"):
        ours.fake_quant_per_channel(X.half(), S6, Z6, 1, -8, 7)


def test_mask_and_gradient_of_different_shapes():
    with refuses(ValueError, "mask_gradient", "(4, 6)", "(6,)"):
        ours.mask_gradient(X, torch.ones(6, dtype=torch.bool))


# ------------------------------------------------------------------------------------- errors while being traced


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, lambda x: ours.quantize_per_tensor(x, 0.5, 0, -129, 127, torch.int8)),
        (TypeError, lambda x: ours.quantize_per_tensor(x, 0.5, 0, 0, 255, torch.int64)),
        (ValueError, lambda x: ours.quantize_per_channel(x, S6.to("meta"), Z6.to("meta"), 2, *INT8)),
        (ValueError, lambda x: ours.quantize_per_channel_group(x, S42.to("meta"), Z42.to("meta"), *INT8, 4)),
        (ValueError, lambda x: ours.quantize_per_block(x, [1, 4], S42.to("meta"), Z42.to("meta"), *INT8)),
        (TypeError, lambda x: ours.choose_qparams_per_token(x, torch.uint8)),
        (ValueError, lambda x: ours.choose_qparams.tensor(x, 7, -7, 1e-5, torch.int8)),
    ],
    ids=["range", "dtype", "axis", "group", "block", "token", "choose"],
)
def test_fake_kernels_refuse_what_the_real_ones_refuse(error, call):
    with pytest.raises(error):
        call(X.to("meta"))
