"""Every operator as PyTorch's compiler sees it: schema, fake kernel, autograd, compile, export, meta tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from strategies import assert_same, integers, lay_out
from torch.utils._pytree import tree_map_only

import zeropoint.ops
from zeropoint.numerics import scalars
from zeropoint.ops.library import NAMESPACE

ours = torch.ops.zeropoint

INT8 = (-128, 127, torch.int8)
UINT8 = (0, 255, torch.uint8)


def values(*shape: int, dtype: torch.dtype = torch.float32, layout: str = "contiguous") -> torch.Tensor:
    return lay_out(torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype), layout)


def leaf(*shape: int, **options) -> torch.Tensor:
    return values(*shape, **options).requires_grad_()


def codes(*shape: int, dtype: torch.dtype = torch.int8, layout: str = "contiguous") -> torch.Tensor:
    return lay_out(integers(0, shape, dtype), layout)


def scales(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 0.1).to(dtype)


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def one(number: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([number], dtype=dtype)


def running(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A range that was observed before."""
    return torch.full(shape, -0.5), torch.full(shape, 0.75)


ON, OFF = one(1, torch.int64), one(0, torch.int64)
BELL = torch.exp(-torch.linspace(-8, 8, 64).square() / 2) * 1000
ENDS = torch.tensor(-8.0), torch.tensor(8.0)
EPS = one(torch.finfo(torch.float32).eps, torch.float32)
SCALE, ZERO = one(0.1, torch.float32), one(3, torch.int64)
FLOAT32 = torch.float32

# name -> list of (arguments, keyword arguments). A list, because inputs differ in dtype, layout and gradient.
SAMPLES: dict[str, list[tuple[tuple, dict]]] = {
    "quantize_per_tensor": [
        ((values(3, 5), 0.1, 3, *UINT8), {}),
        ((values(2, 3, 4, 5, layout="channels_last"), 0.1, 0, *INT8), {}),
        ((values(4, 6, layout="sliced"), 0.1, 0, *INT8), {}),
        ((values(4, 6, dtype=torch.bfloat16, layout="permuted"), 0.1, 0, -448, 448, torch.float8_e4m3fn), {}),
        ((values(), 0.1, 0, -32768, 32767, torch.int16), {}),
        ((values(0, 3), 0.1, 0, *INT8), {}),
    ],
    "quantize_per_tensor.tensor": [
        ((values(3, 5), SCALE, ZERO, *UINT8), {}),
        ((values(3, 5, dtype=torch.float16), one(0.1, torch.float64), ZERO, *INT8), {}),
    ],
    "quantize_per_tensor.tensor2": [
        ((values(3, 5), SCALE, ZERO, one(0, torch.int64), one(255, torch.int64), torch.uint8), {}),
    ],
    "read_state": [((values(3, 5),), {}), ((codes(2, 3),), {})],
    "update_state": [((values(3, 5), values(3, 5), values(3, 5)), {})],
    "dequantize": [((codes(3, 5), 0.1, 3), {}), ((codes(2, 3, 4, 4, dtype=torch.uint8), 0.1, 128), {})],
    "dequantize_per_tensor": [
        ((codes(3, 5), 0.1, 3, *INT8), {}),
        ((codes(2, 3, 4, 5, layout="channels_last"), 0.1, 3, *INT8), {"out_dtype": torch.bfloat16}),
        ((codes(4, 6, layout="sliced"), 0.1, 3, *INT8), {}),
        ((codes(4, 6, dtype=torch.float8_e5m2), 0.1, 0, -57344, 57344, torch.float8_e5m2), {}),
    ],
    "dequantize_per_tensor.tensor": [((codes(3, 5), SCALE, ZERO, *INT8), {"out_dtype": torch.float16})],
    "dequantize_per_tensor.tensor2": [
        ((codes(3, 5), SCALE, ZERO, one(-128, torch.int64), one(127, torch.int64), torch.int8), {}),
    ],
    "choose_qparams.tensor": [
        ((values(3, 5), 0, 255, 1e-5, torch.uint8), {}),
        ((values(3, 5, dtype=torch.bfloat16), -128, 127, 1e-5, torch.int8), {}),
    ],
    "choose_qparams_symmetric.tensor": [
        ((values(3, 5), -127, 127, 1e-5, torch.int8), {}),
        ((values(3, 5, dtype=torch.float16), 0, 255, 1e-5, torch.uint8), {}),
    ],
    "quantize_per_channel": [
        ((values(3, 5), scales(5), zeros(5), 1, *INT8), {}),
        ((values(2, 3, 4, 5, layout="channels_last"), scales(3, dtype=torch.float64), zeros(3), 1, *UINT8), {}),
        ((values(4, 6, layout="permuted"), scales(6), zeros(6, dtype=torch.float32), -1, *INT8), {}),
        ((values(4, 6, dtype=torch.float16, layout="sliced"), scales(4), zeros(4), 0, *INT8), {}),
        ((values(4, 6, layout="sliced"), scales(4), zeros(4), 0, -448, 448, torch.float8_e4m3fn), {}),
    ],
    "dequantize_per_channel": [
        ((codes(3, 5), scales(5), zeros(5), 1, *INT8), {}),
        ((codes(3, 5), scales(3), None, 0, *INT8), {"out_dtype": torch.bfloat16}),
        ((codes(2, 3, 4, 5, layout="channels_last"), scales(3, dtype=torch.float64), zeros(3), 1, *INT8), {}),
        ((codes(4, 6, layout="permuted"), scales(6), zeros(6, dtype=torch.float32), 1, *INT8), {}),
        (
            (codes(4, 6, layout="sliced"), scales(4, dtype=torch.float64), zeros(4), 0, *INT8),
            {"out_dtype": torch.float16},
        ),
        ((codes(4, 6, dtype=torch.float8_e5m2), scales(4), zeros(4), 0, -448, 448, torch.float8_e5m2), {}),
    ],
    "choose_qparams_per_token": [
        ((values(2, 3, 5), torch.int8), {}),
        ((values(3, 5, dtype=torch.float16), torch.int8), {}),
        ((values(3, 5, dtype=torch.bfloat16), torch.int8), {}),
        ((values(3, 5, layout="permuted"), torch.int8), {}),
    ],
    "choose_qparams_per_token_asymmetric": [
        ((values(2, 3, 5), torch.int8), {}),
        ((values(3, 5, dtype=torch.float16), torch.int8), {}),
        ((values(3, 5, layout="permuted"), torch.int8), {}),
    ],
    "_choose_qparams_per_token_asymmetric_impl": [
        ((leaf(2, 3, 5), torch.int8), {}),
        ((values(3, 5, dtype=torch.bfloat16), torch.int8), {}),
    ],
    "quantize_per_token": [
        ((values(2, 3, 5), scales(2, 3, 1), zeros(2, 3, 1), *INT8), {}),
        ((values(3, 5, dtype=torch.float16), scales(3, 1, dtype=torch.float64), zeros(3, 1), *INT8), {}),
        ((values(3, 5, layout="permuted"), scales(3, 1), zeros(3, 1, dtype=torch.float32), *INT8), {}),
    ],
    "dequantize_per_token": [
        ((codes(2, 3, 5), scales(2, 3, 1), zeros(2, 3, 1), *INT8, FLOAT32), {}),
        ((codes(3, 5, layout="permuted"), scales(3, 1, dtype=torch.float64), zeros(3, 1), *INT8, torch.float16), {}),
    ],
    "quantize_per_channel_group": [
        ((values(4, 12), scales(4, 3), zeros(4, 3), *INT8, 4), {}),
        ((values(4, 12, dtype=torch.bfloat16), scales(12), zeros(12), *INT8, 4), {}),
        ((values(4, 12, layout="permuted"), scales(4, 3), zeros(4, 3), *INT8, 4), {}),
        ((values(4, 3), scales(4, 1), zeros(4, 1), *INT8, 128), {}),
    ],
    "dequantize_per_channel_group": [
        ((codes(4, 12), scales(4, 3), zeros(4, 3), *INT8, 4, FLOAT32), {}),
        ((codes(4, 12, layout="permuted"), scales(4, 3), None, *INT8, 4, torch.bfloat16), {}),
    ],
    "quantize_per_block": [
        ((values(4, 12), [2, 4], scales(2, 3), zeros(2, 3), *INT8), {}),
        ((values(4, 12, layout="permuted"), [-1, 4], scales(3), zeros(3), *INT8), {}),
        ((values(2, 4, 3, 3, layout="channels_last"), [1, 2, -1, -1], scales(4), zeros(4), *INT8), {}),
    ],
    "dequantize_per_block": [
        ((codes(4, 12), [2, 4], scales(2, 3), zeros(2, 3), *INT8), {}),
        ((codes(4, 12, layout="permuted"), [-1, 4], scales(3), None, *INT8), {"out_dtype": torch.float16}),
    ],
    "fake_quantize_per_tensor_affine": [
        ((leaf(3, 5), 0.1, 0, -8, 7), {}),
        ((leaf(2, 3, 4, 5, layout="channels_last"), 0.1, 0, -8, 7), {}),
        ((leaf(3, 5, dtype=torch.float64), 0.1, 0, -8, 7), {}),
        ((leaf(4, 6, dtype=torch.float16, layout="permuted"), 0.1, 0, -8, 7), {}),
        ((values(4, 6, layout="sliced"), 0.1, 0, -8, 7), {}),
    ],
    "fake_quantize_per_tensor_affine.tensor_qparams": [((leaf(3, 5), SCALE, ZERO, -8, 7), {})],
    "fake_quantize_per_tensor_affine_cachemask": [
        ((leaf(3, 5), 0.1, 0, -8, 7), {}),
        ((leaf(3, 5, dtype=torch.bfloat16), 0.1, 0, -8, 7), {}),
        ((values(4, 6, layout="sliced"), 0.1, 0, -8, 7), {}),
    ],
    "fake_quantize_per_tensor_affine_cachemask.tensor_qparams": [((leaf(3, 5), SCALE, ZERO, -8, 7), {})],
    "fake_quantize_per_channel_affine": [
        ((leaf(3, 5), scales(5), zeros(5), 1, -8, 7), {}),
        ((leaf(2, 3, 4, 5, layout="channels_last"), scales(3), zeros(3, dtype=torch.float32), 1, -8, 7), {}),
        ((leaf(3, 5, dtype=torch.float64), scales(3), zeros(3), 0, -8, 7), {}),
        ((values(4, 6, layout="sliced"), scales(4), zeros(4), 0, -8, 7), {}),
    ],
    "fake_quantize_per_channel_affine_cachemask": [
        ((leaf(3, 5), scales(5), zeros(5), 1, -8, 7), {}),
        ((leaf(2, 3, 4, 5, layout="channels_last"), scales(3), zeros(3), 1, -8, 7), {}),
        ((leaf(4, 6, layout="permuted"), scales(6), zeros(6), 1, -8, 7), {}),
        ((values(2, 4, 6, layout="permuted"), scales(2), zeros(2), 0, -8, 7), {}),
    ],
    "fake_quant_per_channel": [((leaf(3, 5), scales(5), zeros(5), 1, -8, 7), {})],
    "fake_quant_per_channel_cachemask": [
        ((leaf(3, 5), scales(5), zeros(5), 1, -8, 7), {}),
        ((leaf(2, 3, 4, 5, layout="channels_last"), scales(3), zeros(3), 1, -8, 7), {}),
    ],
    "observe_range_": [
        ((values(3, 5), *running()), {}),
        ((values(3, 5, dtype=torch.bfloat16), *running(), None, 0.5), {}),
        ((values(2, 3, 4, 5, layout="channels_last"), *running(3), 1), {}),
        ((values(4, 6, layout="permuted"), *running(6), -1, 0.1), {}),
        ((values(0, 3), *running()), {}),
    ],
    "observe_histogram_": [
        ((values(30), torch.ones(8), *running()), {}),
        ((values(4, 6, layout="sliced"), torch.zeros(8), torch.tensor(torch.inf), torch.tensor(-torch.inf), 3), {}),
        ((values(30, dtype=torch.float16), torch.ones(8), *running()), {}),
    ],
    "range_to_qparams": [
        ((*running(), EPS, 0, 255, False, False, 128), {}),
        ((*running(4), EPS, -128, 127, True, False, 0), {}),
        ((*running(4), EPS, 0, 15, False, True, 0), {}),
        ((*(end.to(torch.float64) for end in running()), EPS, 0, 255, False, False, 0), {}),
    ],
    "histogram_l2_range": [((BELL, *ENDS, 256), {}), ((torch.zeros(4), *ENDS, 16), {})],
    "histogram_percentile_range": [((BELL, *ENDS, 99.0), {}), ((BELL, *ENDS, 100.0), {})],
    "histogram_error_range": [((BELL, *ENDS, EPS, 0, 15, False, 0), {}), ((BELL, *ENDS, EPS, -8, 7, True, 0), {})],
    "histogram_divergence_range": [((BELL, *ENDS, 16), {}), ((BELL, torch.tensor(2.0), torch.tensor(2.0), 16), {})],
    "fused_moving_avg_obs_fake_quant": [
        ((values(3, 5), ON, ON, *running(1), scales(1), zeros(1), 0.1, 0, 255, 0), {}),
        ((leaf(3, 5), ON, ON, *running(1), scales(1), zeros(1), 0.1, 0, 255, 0), {}),
        ((leaf(4, 6, layout="permuted"), ON, OFF, *running(), scales(1), zeros(1), 0.1, -8, 7, 0, False, True), {}),
        ((leaf(2, 3, 4, 5, layout="channels_last"), OFF, ON, *running(3), scales(3), zeros(3), 0.1, 0, 9, 1, True), {}),
        ((leaf(4, 6, dtype=torch.float16), ON, ON, *running(4), scales(4), zeros(4), 0.1, 0, 255, 0, True), {}),
    ],
    "fused_moving_avg_obs_fake_quant_cachemask": [
        ((values(3, 5), ON, ON, *running(1), scales(1), zeros(1), 0.1, 0, 255, 0), {}),
        ((values(3, 5, dtype=torch.float64), OFF, OFF, *running(3), scales(3), zeros(3), 0.1, 0, 255, 0, True), {}),
        ((values(4, 6, layout="sliced"), ON, ON, *running(1), scales(1), zeros(1), 0.1, 0, 255, 0, False, True), {}),
    ],
    "fake_quantize_learnable_per_tensor_affine": [
        ((leaf(3, 5), scales(1).requires_grad_(), one(1.2, FLOAT32).requires_grad_(), -8, 7), {}),
        ((leaf(4, 6, layout="permuted"), scales(1), one(0, FLOAT32), 0, 15, 0.1), {}),
        ((values(3, 5, dtype=torch.float16), scales(1), one(0, FLOAT32), 0, 15), {}),
    ],
    "fake_quantize_learnable_per_channel_affine": [
        ((leaf(3, 5), scales(5).requires_grad_(), zeros(5, dtype=FLOAT32).requires_grad_(), 1, -8, 7), {}),
        ((leaf(2, 3, 4, 5, layout="channels_last"), scales(3), zeros(3, dtype=FLOAT32), 1, -8, 7, 0.5), {}),
        ((values(4, 6, layout="sliced"), scales(4), zeros(4, dtype=FLOAT32), -2, -8, 7), {}),
    ],
    "mask_gradient": [
        ((leaf(3, 5), values(3, 5) > 0), {}),
        ((leaf(3, 5, dtype=torch.float16), values(3, 5, layout="permuted") > 0), {}),
        ((leaf(2, 3, 4, 5, layout="channels_last"), values(2, 3, 4, 5, layout="channels_last") > 0), {}),
    ],
}


def bytes_layer(*weight: int, outputs: int) -> tuple:
    """Weight, its scale and zero point for each output channel, and a bias."""
    return codes(*weight), scales(outputs), zeros(outputs, dtype=torch.int64), values(outputs)


def norm_samples() -> dict[str, list[tuple[tuple, dict]]]:
    def image(dims: int, layout: str) -> tuple:
        return codes(2, 6, *(3, 4, 5)[:dims], dtype=torch.uint8, layout=layout), 0.1, 3

    def batch(dims: int) -> list[tuple[tuple, dict]]:
        return [
            ((*image(dims, "contiguous"), values(6), values(6), values(6), scales(6), 1e-5, 0.2, 100), {}),
            ((*image(dims, "permuted"), None, None, values(6), scales(6), 1e-5, 0.2, 100), {}),
            ((*image(dims, "channels_last"), values(6), None, values(6), scales(6), 1e-5, 0.2, 100), {}),
        ]

    dims = {"batch_norm": 2, "batch_norm1d": 1, "batch_norm2d": 2, "batch_norm3d": 3}
    parameters = values(6), values(6), 1e-5, 0.2, 100
    return {
        **{f"{name}{relu}": batch(dims[name]) for name in dims for relu in ("", "_relu")},
        "layer_norm": [
            ((*image(2, "contiguous"), [3, 4], values(3, 4), values(3, 4), 1e-5, 0.2, 100), {}),
            ((*image(2, "channels_last"), [4], None, None, 1e-5, 0.2, 100), {}),
        ],
        "group_norm": [
            ((*image(2, "contiguous"), 3, *parameters), {}),
            ((*image(3, "channels_last"), 2, None, None, 1e-5, 0.2, 100), {}),
            ((*image(1, "sliced"), 2, *parameters), {}),
        ],
        "instance_norm": [
            ((*image(2, "contiguous"), *parameters), {}),
            ((*image(2, "channels_last"), None, None, 1e-5, 0.2, 100), {}),
        ],
        "softmax": [
            ((*image(2, "contiguous"), -1, 1 / 256, 0), {}),
            ((*image(2, "channels_last"), 1, 1 / 256, 0), {}),
            ((*image(2, "permuted"), 2, 1 / 256, 0), {}),
        ],
    }


def convolution_samples(dims: int) -> dict[str, list[tuple[tuple, dict]]]:
    ones, sizes = [1] * dims, [5] * dims
    shape, transposed = (ones, ones, ones, 2), ([2] * dims, ones, ones, ones, 2)
    weight = bytes_layer(6, 2, *[3] * dims, outputs=6)
    backwards = bytes_layer(4, 3, *[3] * dims, outputs=6)
    x, single = codes(2, 4, *sizes, dtype=torch.uint8), codes(1, 4, *sizes, layout="sliced")
    inside = codes(2, 4, *sizes, dtype=torch.uint8, layout="channels_last")
    other = codes(2, 6, *sizes, dtype=torch.uint8)
    name = f"conv{dims}d"
    plain = [
        ((x, 0.1, 3, *weight, *shape, 2.0, 100), {}),
        ((single, 0.1, 3, *weight[:3], None, [2], [0], [1], 2, 2.0, 0), {}),
        ((inside, 0.1, 3, *weight, *shape, 2.0, 100), {}),
    ]
    added = [((x, 0.1, 3, *weight, *shape, other, 0.2, 7, 2.0, 100), {})]
    return {
        name: plain if dims == 2 else plain[:1],
        f"{name}_relu": plain[:1],
        f"{name}_add": added,
        f"{name}_add_relu": added,
        f"{name}_dynamic": [
            ((values(2, 4, *sizes), *weight, *shape), {}),
            ((values(1, 4, *sizes), *weight, *shape, True), {}),
        ],
        f"conv_transpose{dims}d": [((x, 0.1, 3, *backwards, *transposed, 2.0, 100), {})],
        f"conv_transpose{dims}d_dynamic": [((values(2, 4, *sizes), *backwards, *transposed), {})],
    }


LINEAR = bytes_layer(7, 5, outputs=7)
BYTES_IN = (codes(3, 5, dtype=torch.uint8), 0.1, 3)
SAMPLES.update(
    {
        "linear": [
            ((*BYTES_IN, *LINEAR, 2.0, 100), {}),
            ((codes(2, 3, 5, layout="permuted"), 0.1, 3, *LINEAR[:3], None, 2.0, 0), {}),
            ((codes(5), 0.1, 3, codes(7, 5), SCALE, ZERO, None, 2.0, 0), {}),
            ((codes(0, 5), 0.1, 3, *LINEAR, 2.0, 0), {}),
        ],
        "linear_relu": [((*BYTES_IN, *LINEAR, 2.0, 100), {})],
        "linear_leaky_relu": [((*BYTES_IN, *LINEAR, 2.0, 100, 0.1), {})],
        "linear_to_float": [((*BYTES_IN, *LINEAR), {})],
        "linear_tanh": [((*BYTES_IN, *LINEAR, 1 / 128, 128), {})],
        "linear_dynamic": [
            ((values(3, 5), *LINEAR), {}),
            ((values(2, 3, 5, layout="permuted"), *LINEAR[:3], None, True), {}),
            ((values(3, 5), *LINEAR, False, True), {}),
        ],
        "linear_relu_dynamic": [((values(3, 5), *LINEAR), {})],
        "linear_dynamic_fp16": [((values(3, 5), values(7, 5, dtype=torch.float16), values(7)), {})],
        "linear_relu_dynamic_fp16": [((values(3, 5), values(7, 5, dtype=torch.float16), None), {})],
        "weight_only_linear": [
            ((values(3, 16), codes(7, 16), scales(7)), {}),
            ((values(2, 3, 16, layout="permuted"), codes(7, 16), scales(7, 2), zeros(7, 2), values(7)), {}),
            ((values(3, 20, dtype=torch.bfloat16), codes(7, 20, dtype=torch.uint8), scales(7, 3)), {"group_size": 8}),
            ((values(0, 16), codes(7, 16), SCALE), {}),
        ],
        "weight_only_linear_4bit": [
            ((values(3, 16), codes(7, 8, dtype=torch.uint8), scales(7, 2), zeros(7, 2), values(7), 8), {}),
            ((values(2, 3, 15, layout="permuted"), codes(7, 8, dtype=torch.uint8), scales(7), None, None, 0), {}),
            ((values(3, 20), codes(7, 10, dtype=torch.uint8), scales(7, 3), values(7, 3), None, 8), {}),
        ],
        "matmul": [
            ((*BYTES_IN, codes(5, 4), 0.1, 0, 2.0, 100), {}),
            ((codes(2, 1, 3, 5), 0.1, 3, codes(4, 5, 6, layout="permuted"), 0.1, 0, 2.0, 0), {}),
        ],
        "bmm": [((codes(2, 3, 5), 0.1, 3, codes(2, 5, 4), 0.1, 0, 2.0, 0), {})],
        **norm_samples(),
        **convolution_samples(1),
        **convolution_samples(2),
        **convolution_samples(3),
    }
)


def embedding_samples(kind: str) -> dict[str, list[tuple[tuple, dict]]]:
    weight = values(10, 8)
    table = getattr(ours, f"embedding_bag_{kind}_prepack")(weight)
    search = [] if kind == "byte" else [((weight, True, 50, 0.2), {})]
    indices, offsets, ranges = torch.tensor([3, 1, 9, 0]), torch.tensor([0, 0, 3]), torch.tensor([[-4.0, 4.0]] * 10)
    mapping = torch.arange(-1, 9, dtype=torch.int32)
    more = [((weight, ranges, True), {})] if search else []
    return {
        f"embedding_bag_{kind}_prepack": [((weight,), {}), ((values(2, 3, 8, dtype=torch.float16),), {}), *search],
        f"embedding_bag_{kind}_prepack_with_rowwise_min_max": [((weight, ranges), {}), *more],
        f"embedding_bag_{kind}_unpack": [((table,), {}), ((table.reshape(2, 5, -1),), {})],
        f"embedding_bag_{kind}_rowwise_offsets": [
            ((table, indices, offsets), {}),
            ((table, indices.reshape(2, 2)), {"mode": 1}),
            ((table, indices, torch.tensor([0, 4], dtype=torch.int32), False, 0, True, values(4), mapping, True), {}),
        ],
        f"embedding_{kind}": [((table, indices), {}), ((table, indices.reshape(2, 2).int()), {})],
    }


SAMPLES.update({**embedding_samples("byte"), **embedding_samples("4bit"), **embedding_samples("2bit")})
A_BYTE, B_BYTE = (codes(2, 3, 4, dtype=torch.uint8), 0.1, 3), (codes(3, 1, dtype=torch.uint8), 0.2, 5)
IMAGE = (codes(2, 3, 4, 5, layout="channels_last"), 0.1, 3)
WORDS = (codes(2, 5, dtype=torch.int32) % 4001, 0.1, 3)
OUT = (0.3, 7)
SAMPLES |= {
    name: [
        ((*A_BYTE, *B_BYTE, *OUT), {}),
        ((*B_BYTE, *A_BYTE, *OUT), {}),
        ((*IMAGE, *IMAGE, *OUT), {}),
        ((codes(4, 6, layout="sliced"), 0.1, 3, codes(4, 6, layout="permuted"), 0.2, 3, *OUT), {}),
        ((*WORDS, *WORDS, *OUT), {}),
    ]
    for name in ("add", "add_relu", "mul", "mul_relu")
}
SAMPLES |= {
    name: [((*q, number), {}) for q in (A_BYTE, IMAGE, WORDS) for number in (1.5, -40.0)]
    for name in ("add_scalar", "add_scalar_relu", "mul_scalar", "mul_scalar_relu")
}
SAMPLES |= {
    name: [
        (([A_BYTE[0]] * 2, [0.1, 0.2], [3, 4], -1, *OUT), {}),
        (([IMAGE[0]] * 2, [0.1, 0.3], [3, 7], 1, *OUT), {}),
        (([WORDS[0]] * 2, [0.1, 0.3], [3, 7], 0, *OUT), {}),
    ]
    for name in ("cat", "cat_relu")
}
UNARY_ARGUMENTS = {"elu": (1.1, 0.9, 1.2), "gelu": (1.0,), "leaky_relu": (0.1,), "celu": (1.2,)}
SAMPLES |= {
    name: [((*q, *UNARY_ARGUMENTS.get(name, ()), *OUT), {}) for q in (A_BYTE, IMAGE, WORDS)]
    for name in (
        "celu", "elu", "exp", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "mish", "sigmoid", "silu", "tanh",
    )
}  # fmt: skip
SAMPLES |= {
    "unary": [((*q, "clamp", [-0.5, 0.5], *OUT), {}) for q in (A_BYTE, IMAGE, WORDS)],
    "prelu": [((*IMAGE, codes(3), 0.1, 0, *OUT), {}), ((*A_BYTE, codes(1, dtype=torch.uint8), 0.1, 0, *OUT), {})],
    "requantize": [((*A_BYTE, *OUT), {}), ((*IMAGE, *OUT, torch.uint8), {}), ((*WORDS, *OUT, torch.int8), {})],
    "clamp": [((*A_BYTE, -0.5, None), {}), ((*IMAGE, None, 0.5), {}), ((*WORDS, -0.5, 0.5), {})],
    "relu6": [((*A_BYTE,), {}), ((*IMAGE,), {})],
    "threshold": [((*A_BYTE, 0.5, 0.25), {}), ((*IMAGE, 0.5, 0.25), {})],
    "lookup": [((q[0], torch.arange(256, dtype=torch.uint8).view(q[0].dtype)), {}) for q in (A_BYTE, IMAGE)],
}


def registered() -> list[str]:
    names = torch._C._dispatch_get_all_op_names()
    return sorted(name.removeprefix(f"{NAMESPACE}::") for name in names if name.startswith(f"{NAMESPACE}::"))


def overload(name: str):
    base, _, variant = name.partition(".")
    return getattr(getattr(ours, base), variant or "default")


def recurrent_samples() -> dict[str, list[tuple[tuple, dict]]]:
    """Sequences, packed sequences and cells; 8-bit and float weights; one layer, and two in both directions."""
    samples: dict[str, list[tuple[tuple, dict]]] = {}
    hidden, inputs = 3, 5
    for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        rows = gates * hidden

        def states(cells: int, name: str = name) -> Any:
            h = values(cells, 2, hidden)
            return [h, values(cells, 2, hidden)] if name == "lstm" else h

        def matrices(layers: int, half: bool, rows: int = rows) -> tuple[list[torch.Tensor], ...]:
            shapes = [shape for i in range(layers) for shape in ((rows, 6 if i > 1 else inputs), (rows, hidden))]
            biases = [values(rows) for _ in shapes]
            if half:
                return [values(*s, dtype=torch.float16) for s in shapes], [], [], biases
            return [codes(*s) for s in shapes], [SCALE for _ in shapes], [ZERO for _ in shapes], biases

        batch_sizes = torch.tensor([2, 2, 1])
        samples[f"quantized_{name}.input"] = [
            ((values(4, 2, inputs), states(1), *matrices(1, False), 1, 0.0, False, False, False), {}),
            ((values(2, 4, inputs), states(4), *matrices(4, True), 2, 0.0, False, True, True, True), {}),
        ]
        samples[f"quantized_{name}.data"] = [
            ((values(5, inputs), batch_sizes, states(4), *matrices(4, False), 2, 0.0, False, True, True), {}),
            ((values(5, inputs), batch_sizes, states(1), *matrices(1, True)[:3], [], 1, 0.0, False, False), {}),
        ]
        hx = values(2, hidden)
        one = (codes(rows, inputs), SCALE, ZERO, codes(rows, hidden), SCALE, ZERO)
        floats = (values(rows, inputs), None, None, values(rows, hidden), None, None)
        samples[f"quantized_{name}_cell_dynamic"] = [
            ((values(2, inputs), [hx, values(2, hidden)] if name == "lstm" else hx, *one, values(rows), None), {}),
            ((values(2, inputs), [hx, values(2, hidden)] if name == "lstm" else hx, *floats, values(rows), None), {}),
        ]
    return samples


SAMPLES.update(recurrent_samples())
FLOATS = [values(3, 4, 5, layout=layout) for layout in ("contiguous", "permuted", "sliced")]
SAMPLES |= {
    name: [((x,), {}) for x in FLOATS] for name in ("float_tanh", "float_sigmoid", "float_silu", "float_softsign")
}
SAMPLES |= {
    name: [((x, dim), {}) for x in FLOATS for dim in (0, -1)]
    for name in ("float_softmax", "float_safe_softmax", "float_log_softmax")
}
SAMPLES |= {
    "float_gelu": [((x, how), {}) for x in FLOATS for how in ("none", "tanh")],
    "float_layer_norm": [((x, x.shape[-2:], None, x[0].contiguous(), 1e-5), {}) for x in FLOATS],
    "float_matmul": [((x, x.transpose(-1, -2)), {}) for x in FLOATS] + [((values(2, 1, 3, 4), values(5, 4, 6)), {})],
}
LAYER_ARGUMENTS = (values(4, 3, 3, 3), values(4), [2], [1])
SAMPLES |= {
    "float_linear": [((x, values(6, 5), bias), {}) for x in FLOATS for bias in (None, values(6))],
    "float_conv": [
        ((values(2, 3, 6, 7, layout="channels_last"), *LAYER_ARGUMENTS), {}),
        ((values(3, 6, 7), *LAYER_ARGUMENTS), {}),
        ((values(2, 4, 9), values(6, 2, 3), None, [1], [0], [2], 2), {}),
        ((values(2, 4, 3, 4, 5), values(4, 1, 2, 2, 2), None, [1], [0], [1], 4), {}),
    ],
    "float_conv_transpose": [
        ((values(2, 4, 6, 7), values(4, 3, 3, 3), values(3), [2], [1], [1]), {}),
        ((values(4, 9), values(4, 3, 2), None, [1], [0], [0], 2), {}),
    ],
    "float_batch_norm": [
        ((x, values(4), None, values(4), values(4).abs()), {})
        for x in (values(3, 4), values(2, 4, 3, layout="permuted"))
    ],
    "float_group_norm": [((x, 2, values(x.shape[1]), None), {}) for x in (values(3, 4), values(2, 6, 3, 2))],
    "float_instance_norm": [((values(2, 4, 3), values(4), values(4)), {})],
    "float_mean": [
        ((x, dim, keep), {}) for x in FLOATS for dim, keep in (([1], True), (None, False), ([0, -1], False))
    ],
    "float_sum": [((x, dim, keep), {}) for x in FLOATS for dim, keep in (([1], True), (None, False))],
    "float_bilinear": [
        ((values(2, 3, 4, 5, layout=how), size, False, factors), {})
        for how in ("contiguous", "channels_last")
        for size, factors in (([7, 3], None), (None, [2.0, 1.5]))
    ],
    "float_norm": [((x, dim, True), {}) for x in FLOATS for dim in ([1], [-1])],
    "float_product": [((x, dim, True), {}) for x in FLOATS for dim in ([1], None)],
    "float_variance": [((x, dim, 1.0, True), {}) for x in FLOATS for dim in ([1], None)],
    "float_unary": [((x, function), {}) for x in FLOATS for function in ("exp", "erf")],
    "float_binary": [((x.abs(), x[0].abs(), function), {}) for x in FLOATS for function in ("pow", "atan2")],
    "top": [((x, 2, dim, dim > 0), {}) for x in (*FLOATS, codes(3, 4, 5)) for dim in (-1, 0, 1)],
}
for _d, _shape in ((1, (2, 3, 7)), (2, (2, 3, 6, 5)), (3, (2, 3, 4, 4, 4))):
    _layouts = ["contiguous", "channels_last"] if _d == 2 else ["contiguous"]
    SAMPLES[f"float_avg_pool{_d}d"] = [((values(*_shape, layout=how), [3], [2], [1], True), {}) for how in _layouts]
    SAMPLES[f"float_adaptive_avg_pool{_d}d"] = [((values(*_shape, layout=how), [2] * _d), {}) for how in _layouts]


def test_every_operator_has_samples():
    # What QTensors are made of is sampled in tests/tensor/test_stored_ops.py; two others have no tensors at all.
    numbers_only = ("add_scalar_parameters", "mul_scalar_parameters")
    # These take QTensors, which opcheck cannot make copies of: tests/tensor/test_reading.py.
    of_qtensors = ("dequantize.self", "int_repr", "interpolate", "is_quantized", "q_", "qdtype", "qscheme")
    elsewhere = ("stored_", "qtensor", *numbers_only, *of_qtensors)
    own = [name for name in registered() if not name.startswith(elsewhere)]
    assert [name for name in own if name not in SAMPLES] == []


@pytest.mark.parametrize("other", [-300.0, -0.5, 0.0, 2.0, 1000.0])
def test_parameters_of_sums_and_products_in_scripted_code(other):
    @torch.jit.script
    def scripted(scale: float, zero_point: int, other: float, x: torch.Tensor):
        return (
            torch.ops.zeropoint.add_scalar_parameters(scale, zero_point, other, x.dtype),
            torch.ops.zeropoint.mul_scalar_parameters(scale, zero_point, other, x.dtype),
        )

    for dtype in (torch.uint8, torch.int8, torch.int32):
        arguments = 0.5, 10, other
        expected = scalars.sum_parameters(*arguments, dtype), scalars.product_parameters(*arguments, dtype)
        assert scripted(*arguments, torch.ones(1, dtype=dtype)) == expected


def listed(answer) -> list[torch.Tensor]:
    """What an operator answered: nothing, if it changes its arguments instead."""
    return [] if answer is None else [answer] if isinstance(answer, torch.Tensor) else list(answer)


def with_and_without_gradient(samples):
    """The first of each: opcheck takes a second, and layouts and dtypes are compared below."""
    chosen = {any(getattr(a, "requires_grad", False) for a in arguments): i for i, (arguments, _) in
              reversed(list(enumerate(samples)))}  # fmt: skip
    return [samples[i] for i in sorted(chosen.values())]


@pytest.mark.parametrize("chosen", [with_and_without_gradient, pytest.param(list, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_operator_passes_opcheck(name, chosen):
    for arguments, options in chosen(SAMPLES[name]):
        if getattr(arguments[0], "dtype", None) == torch.float8_e5m2:
            continue  # opcheck itself multiplies its inputs, which PyTorch cannot do in float8
        torch.library.opcheck(overload(name), arguments, options)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_fake_kernel_answers_shape_dtype_and_layout_of_the_real_one(name):
    for arguments, options in SAMPLES[name]:
        real = overload(name)(*arguments, **options)
        with torch._subclasses.FakeTensorMode() as mode:
            fake = overload(name)(*tree_map_only(torch.Tensor, mode.from_tensor, arguments), **options)
        for r, f in zip(listed(real), listed(fake)):
            assert (r.shape, r.dtype, r.stride()) == (f.shape, f.dtype, f.stride())


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_meta_tensors_give_meta_tensors(name):
    for arguments, options in SAMPLES[name]:
        real = overload(name)(*arguments, **options)
        meta = overload(name)(*tree_map_only(torch.Tensor, lambda a: a.to("meta"), arguments), **options)
        for r, m in zip(listed(real), listed(meta)):
            assert m.device.type == "meta"
            assert (r.shape, r.dtype) == (m.shape, m.dtype)


@pytest.mark.parametrize("input_dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_fake_parameters_per_token_have_the_right_shape_and_type(input_dtype):
    """The decomposed library of PyTorch answers float64 and int64 for both; one of them is neither."""
    x = torch.empty(2, 3, 5, dtype=input_dtype, device="meta")
    scale, zero_point = ours.choose_qparams_per_token(x, torch.int8)
    kind = torch.float32 if input_dtype == torch.float16 else input_dtype
    assert (scale.shape, scale.dtype) == ((2, 3, 1), kind)
    assert (zero_point.shape, zero_point.dtype) == ((2, 3, 1), kind)
    scale, zero_point = ours.choose_qparams_per_token_asymmetric(x, torch.int8)
    assert (scale.shape, scale.dtype) == ((2, 3, 1), torch.float64)
    assert (zero_point.shape, zero_point.dtype) == ((2, 3, 1), torch.int64)


# ---------------------------------------------------------------------------------------------- compile and export


def per_tensor(x):
    q = ours.quantize_per_tensor(x, 0.05, 3, *UINT8)
    return ours.dequantize_per_tensor(q, 0.05, 3, *UINT8) + 1


def dynamic(x):
    scale, zero_point = ours.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
    q = ours.quantize_per_tensor.tensor(x, scale, zero_point, *UINT8)
    return ours.dequantize_per_tensor.tensor(q, scale, zero_point, *UINT8)


def symmetric(x):
    scale, zero_point = ours.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8)
    limits = torch.tensor(-127), torch.tensor(127)
    q = ours.quantize_per_tensor.tensor2(x, scale, zero_point, *limits, torch.int8)
    return ours.dequantize_per_tensor.tensor2(q, scale, zero_point, *limits, torch.int8, out_dtype=torch.float16)


def per_channel(x):
    parameters = torch.full((x.shape[1],), 0.05), torch.zeros(x.shape[1], dtype=torch.int64)
    q = ours.quantize_per_channel(x, *parameters, 1, *INT8)
    return ours.dequantize_per_channel(q, *parameters, 1, *INT8)


def per_token(x):
    scale, zero_point = ours.choose_qparams_per_token_asymmetric(x, torch.int8)
    q = ours.quantize_per_token(x, scale, zero_point, *INT8)
    y = ours.dequantize_per_token(q, scale, zero_point, *INT8, FLOAT32)
    scale, zero_point = ours.choose_qparams_per_token(y, torch.int8)
    return y, ours.quantize_per_token(y, scale, zero_point, *INT8)


def per_group(x):
    parameters = torch.full((x.shape[0], 2), 0.05), torch.zeros(x.shape[0], 2, dtype=torch.int32)
    q = ours.quantize_per_channel_group(x, *parameters, *INT8, 4)
    return ours.dequantize_per_channel_group(q, *parameters, *INT8, 4, FLOAT32)


def per_block(x):
    parameters = torch.full((x.shape[0], 2), 0.05), torch.zeros(x.shape[0], 2, dtype=torch.int32)
    q = ours.quantize_per_block(x, [1, 4], *parameters, *INT8)
    return ours.dequantize_per_block(q, [1, 4], *parameters, *INT8)


def fake_quantized(x):
    parameters = torch.full((x.shape[1],), 0.1), torch.zeros(x.shape[1], dtype=torch.int32)
    y = zeropoint.fake_quantize_per_tensor_affine(x * 2, 0.1, 0, -8, 7)
    y = zeropoint.fake_quantize_per_channel_affine(y * 2, *parameters, 1, -8, 7)
    return ours.fake_quant_per_channel(y * 2, *parameters, 1, -8, 7)


WEIGHT, OTHER_WEIGHT = bytes_layer(7, 8, outputs=7), bytes_layer(6, 1, 2, 2, outputs=6)


def linear(x):
    q = ours.quantize_per_tensor(x, 0.05, 3, *UINT8)
    return ours.linear(q, 0.05, 3, *WEIGHT, 2.0, 100) + 1


def linear_dynamic(x):
    return ours.linear_dynamic(x * 2, *WEIGHT), ours.linear_dynamic(x * 2, *WEIGHT, False, True)


def conv2d_add_relu(x):
    q = ours.quantize_per_tensor(x.reshape(x.shape[0], 1, 2, 4), 0.05, 3, *UINT8)
    shape = [1, 1], [1, 1], [2, 2], 1
    y = ours.conv2d(q, 0.05, 3, *OTHER_WEIGHT, *shape, 2.0, 100)
    return ours.conv2d_add_relu(q, 0.05, 3, *OTHER_WEIGHT, *shape, y, 2.0, 100, 4.0, 50)


def elementwise(x):
    a = ours.quantize_per_tensor(x, 0.05, 3, *UINT8)
    b = ours.hardswish(a, 0.05, 3, 0.1, 5)
    y = ours.mul(ours.add_relu(a, 0.05, 3, b[:1], 0.1, 5, 0.2, 9), 0.2, 9, b, 0.1, 5, 0.3, 7)
    return ours.cat([y, ours.add_scalar(y, 0.3, 7, 1.5)], [0.3, 0.3], [7, 2], 1, 0.3, 7)


RECURRENT = [codes(12, 8), codes(12, 3)], [SCALE, SCALE], [ZERO, ZERO], [values(12), values(12)]


def recurrent(x):
    h = x.new_zeros(1, x.shape[0], 3)
    y, _, c = ours.quantized_lstm.input(x.unsqueeze(0), [h, h], *RECURRENT, 1, 0.0, False, False, False)
    return y + 1, c


FAMILIES = [
    elementwise,
    linear,
    recurrent,
    linear_dynamic,
    conv2d_add_relu,
    per_tensor,
    dynamic,
    symmetric,
    per_channel,
    per_token,
    per_group,
    per_block,
    fake_quantized,
]
families = pytest.mark.parametrize("function", FAMILIES, ids=lambda f: f.__name__)


def assert_all_same(found, expected) -> None:
    if isinstance(expected, torch.Tensor):
        found, expected = (found,), (expected,)
    for a, b in zip(found, expected):
        assert_same(a, b)


@pytest.fixture
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_compiler")
@families
@pytest.mark.parametrize("dynamic_shapes", [False, True], ids=["static", "dynamic"])
def test_compiled_in_one_graph_gives_what_eager_gives(function, dynamic_shapes):
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic_shapes)
    for rows in (3, 5, 17):
        x = values(rows, 8)
        assert_all_same(compiled(x), function(x))


@pytest.mark.usefixtures("_fresh_compiler")
def test_inductor_gives_what_eager_gives():
    def together(x):  # one call of the C++ compiler for all of them
        return *per_token(x), fake_quantized(x), linear(x), conv2d_add_relu(x)

    x = values(5, 8)
    assert_all_same(torch.compile(together, fullgraph=True, backend="inductor")(x), together(x))


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.thorough)])
def test_compiled_gradients_are_eager_gradients(backend):
    gradients = []
    for function in (fake_quantized, torch.compile(fake_quantized, fullgraph=True, backend=backend)):
        x = leaf(5, 8)
        (function(x) ** 2).sum().backward()
        gradients.append(x.grad)
    assert_same(*gradients)


@pytest.mark.usefixtures("_fresh_compiler")
@families
def test_exported_program_gives_what_eager_gives(function):
    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(Module(), (values(3, 8),), dynamic_shapes=({0: batch},))
    targets = [str(node.target) for node in program.graph.nodes]
    assert any(target.startswith("zeropoint.") for target in targets)
    for rows in (3, 7):
        x = values(rows, 8)
        assert_all_same(program.module()(x), function(x))


def test_exported_program_survives_a_file(tmp_path):
    class Module(torch.nn.Module):
        def forward(self, x):
            return dynamic(x)

    path = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(Module(), (values(3, 8),)), path)
    x = values(3, 8)
    assert_same(torch.export.load(path).module()(x), dynamic(x))


def test_scripted_function_gives_what_eager_gives(tmp_path):
    def layer(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, bias: torch.Tensor):
        return torch.ops.zeropoint.linear(x, 0.1, 3, w, scale, zero_point, bias, 2.0, 100)

    scripted = torch.jit.script(layer)
    expected = ours.linear(*BYTES_IN, *LINEAR, 2.0, 100)
    assert_same(scripted(BYTES_IN[0], *LINEAR), expected)
    scripted.save(str(tmp_path / "layer.pt"))
    assert_same(torch.jit.load(tmp_path / "layer.pt")(BYTES_IN[0], *LINEAR), expected)
