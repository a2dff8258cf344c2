"""Calls of the operators that quantize, dequantize, choose parameters, and simulate it all in training."""

from __future__ import annotations

import torch
from sample_tensors import (
    BELL,
    ENDS,
    EPS,
    FLOAT32,
    INT8,
    OFF,
    ON,
    SCALE,
    UINT8,
    ZERO,
    Samples,
    codes,
    leaf,
    one,
    running,
    scales,
    values,
    zeros,
)

AFFINE_SAMPLES: Samples = {
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
