"""Functions on packed weights in torch.jit.trace: what is recorded computes what was called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import zeropoint
from zeropoint import qfunctions
from zeropoint.qfunctions import packed

SCALE, ZERO_POINT = 0.1, 7


def quantized(x: Tensor) -> Any:
    return zeropoint.quantize_per_tensor(x, 0.05, 10, zeropoint.quint8)


def weight(*shape: int, axis: int = 0) -> Any:
    generator = torch.Generator().manual_seed(0)
    w, scales = torch.randn(shape, generator=generator), torch.linspace(0.01, 0.02, shape[axis])
    zeros = torch.zeros(shape[axis], dtype=torch.int64)
    return zeropoint.quantize_per_channel(w, scales, zeros, axis, zeropoint.qint8)


LINEAR = qfunctions.linear_prepack(weight(5, 4), torch.randn(5))
HALF = qfunctions.linear_prepack_fp16(torch.randn(5, 4), torch.randn(5))
CONV = qfunctions.conv_prepack(weight(6, 2, 3, 3), torch.randn(6), [2, 1], [1, 0], [1, 2], 2)
TRANSPOSED = packed.ConvPackedParams(weight(4, 3, 3, 3, axis=1), torch.randn(6), [2, 2], [1, 0], [1, 1], 2, [1, 0])

STATIC: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "linear": (lambda q: qfunctions.linear(q, LINEAR, SCALE, ZERO_POINT), (3, 4)),
    "linear_relu": (lambda q: qfunctions.linear_relu(q, LINEAR, SCALE, ZERO_POINT), (3, 4)),
    "linear_leaky_relu": (lambda q: qfunctions.linear_leaky_relu(q, LINEAR, SCALE, ZERO_POINT, 0.1), (3, 4)),
    "linear_tanh": (lambda q: qfunctions.linear_tanh(q, LINEAR, SCALE, ZERO_POINT), (3, 4)),
    "conv": (lambda q: packed.conv(q, CONV, SCALE, ZERO_POINT), (2, 4, 6, 7)),
    "conv_relu": (lambda q: packed.conv_relu(q, CONV, SCALE, ZERO_POINT), (2, 4, 6, 7)),
    "conv_transpose": (lambda q: packed.conv(q, TRANSPOSED, SCALE, ZERO_POINT), (2, 4, 5, 5)),
    "conv_add": (
        lambda q: packed.conv_add(q, packed.conv(q, CONV, SCALE, ZERO_POINT), CONV, SCALE, ZERO_POINT),
        (2, 4, 6, 7),
    ),
    "conv_add_relu": (
        lambda q: packed.conv_add_relu(q, packed.conv(q, CONV, SCALE, ZERO_POINT), CONV, SCALE, ZERO_POINT),
        (2, 4, 6, 7),
    ),
}
DYNAMIC: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "linear_dynamic": (lambda x: qfunctions.linear_dynamic(x, LINEAR), (3, 4)),
    "linear_relu_dynamic": (lambda x: qfunctions.linear_relu_dynamic(x, LINEAR, True), (3, 4)),
    "linear_dynamic_fp16": (lambda x: qfunctions.linear_dynamic_fp16(x, HALF), (3, 4)),
    "linear_relu_dynamic_fp16": (lambda x: qfunctions.linear_relu_dynamic_fp16(x, HALF), (3, 4)),
    "conv_dynamic": (lambda x: packed.conv_dynamic(x, CONV), (2, 4, 6, 7)),
    "conv_transpose_dynamic": (lambda x: packed.conv_dynamic(x, TRANSPOSED), (2, 4, 5, 5)),
}


@pytest.mark.parametrize("name", [*STATIC, *DYNAMIC])
def test_a_trace_computes_what_the_function_does(name: str) -> None:
    def called(x: Tensor) -> Tensor:
        if name in STATIC:
            return zeropoint.dequantize(STATIC[name][0](quantized(x)))
        return DYNAMIC[name][0](x)

    _, shape = {**STATIC, **DYNAMIC}[name]
    first, other = torch.randn(shape), torch.randn(shape)
    traced = torch.jit.trace(called, first)
    assert torch.equal(traced(other), called(other))


def cell(x: Tensor) -> Tensor:
    params = qfunctions.make_quantized_cell_params_dynamic(CELL, CELL, None, None)
    state = [torch.zeros(1, 3, 4), torch.zeros(1, 3, 4)]
    return qfunctions.quantized_lstm(x, state, [params], True, 1, 0.0, False, False, False)[0]


CELL = qfunctions.linear_prepack(weight(16, 4), torch.zeros(16))
TABLE = qfunctions.embedding_bag_byte_prepack(torch.randn(10, 8))
REFUSED: dict[str, tuple[Callable[..., Any], Tensor]] = {
    "quantized_lstm": (cell, torch.randn(2, 3, 4)),
    "embedding_bag_byte": (
        lambda i: qfunctions.embedding_bag_byte_rowwise_offsets(TABLE, i, torch.tensor([0, 2])),
        torch.tensor([1, 2, 3]),
    ),
    "weight_only": (
        lambda x: qfunctions.weight_only_linear(x, qfunctions.weight_only_prepack(torch.ones(4, 32))),
        torch.randn(2, 32),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_trace_would_lose_is_refused(name: str) -> None:
    called, x = REFUSED[name]
    with pytest.raises(NotImplementedError, match=r"torch\.jit\.trace cannot record"):
        torch.jit.trace(called, x)
