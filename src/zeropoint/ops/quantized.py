"""The operators ``torch.ops.zeropoint.linear``, ``conv2d``, ``matmul`` and their relatives, on plain integers.

Each takes its input and its weight with their parameters beside them, and checks and computes in
`zeropoint.ops.layers`, which has the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.ops.geometry import Geometry, known_geometry
from zeropoint.ops.layers import (
    conv_layer,
    linear_layer,
    product_shape,
    run_conv,
    run_conv_dynamic,
    run_linear,
    run_linear_dynamic,
    run_linear_tanh,
    run_matmul,
    run_matmul_dynamic,
)
from zeropoint.ops.library import composite, named, operator
from zeropoint.ops.rounding import OURS
from zeropoint.ops.weight_only import run_linear_fp16

# --------------------------------------------------------------------------------------------------- linear layers

_X = "Tensor input, float input_scale, int input_zero_point"
_W = "Tensor weight, Tensor weight_scale, Tensor weight_zero_point, Tensor? bias"
_ROUNDING = f'str rounding="{OURS}"'  # one of zeropoint.ops.rounding.CODES


def _fake_linear(input: Tensor, input_scale: float, input_zero_point: int, weight: Tensor, *rest: Any) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


def _define_linear(name: str, relu: bool) -> Callable[..., Tensor]:
    @operator(f"{name}({_X}, {_W}, float scale, int zero_point, {_ROUNDING}) -> Tensor", fake=_fake_linear)
    def linear(
        input: Tensor,
        input_scale: float,
        input_zero_point: int,
        weight: Tensor,
        weight_scale: Tensor,
        weight_zero_point: Tensor,
        bias: Tensor | None,
        scale: float,
        zero_point: int,
        rounding: str = OURS,
    ) -> Tensor:
        layer = linear_layer(name, weight, weight_scale, weight_zero_point, bias, rounding)
        return run_linear(name, input, input_scale, input_zero_point, layer, scale, zero_point, relu=relu)

    return named(name, linear, f"A linear layer on integers{' with a ReLU' if relu else ''}; see `run_linear`.")


linear = _define_linear("linear", relu=False)
linear_relu = _define_linear("linear_relu", relu=True)


@operator(
    f"linear_leaky_relu({_X}, {_W}, float scale, int zero_point, float negative_slope, {_ROUNDING}) -> Tensor",
    fake=_fake_linear,
)
def linear_leaky_relu(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    weight: Tensor,
    weight_scale: Tensor,
    weight_zero_point: Tensor,
    bias: Tensor | None,
    scale: float,
    zero_point: int,
    negative_slope: float,
    rounding: str = OURS,
) -> Tensor:
    """A linear layer whose negative results are multiplied by `negative_slope` before rounding."""
    op = "linear_leaky_relu"
    layer = linear_layer(op, weight, weight_scale, weight_zero_point, bias, rounding)
    return run_linear(op, input, input_scale, input_zero_point, layer, scale, zero_point, slope=negative_slope)


@operator(f"linear_tanh({_X}, {_W}, float scale, int zero_point) -> Tensor", fake=_fake_linear)
def linear_tanh(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    weight: Tensor,
    weight_scale: Tensor,
    weight_zero_point: Tensor,
    bias: Tensor | None,
    scale: float,
    zero_point: int,
) -> Tensor:
    """A linear layer with a tanh: taken of the float32 result, which is rounded once."""
    layer = linear_layer("linear_tanh", weight, weight_scale, weight_zero_point, bias)
    return run_linear_tanh(input, input_scale, input_zero_point, layer, scale, zero_point)


def _fake_linear_to_float(input: Tensor, input_scale: float, zero_point: int, weight: Tensor, *rest: Any) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]), dtype=torch.float32)


@operator(f"linear_to_float({_X}, {_W}) -> Tensor", fake=_fake_linear_to_float)
def linear_to_float(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    weight: Tensor,
    weight_scale: Tensor,
    weight_zero_point: Tensor,
    bias: Tensor | None,
) -> Tensor:
    """A linear layer on integers whose result is float32, not rounded."""
    op = "linear_to_float"
    layer = linear_layer(op, weight, weight_scale, weight_zero_point, bias)
    return run_linear(op, input, input_scale, input_zero_point, layer, 1.0, 0, dtype=torch.float32)


# ------------------------------------------------------------------------------------------ dynamic linear layers


def _fake_linear_dynamic(input: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]), dtype=torch.float32)


def _define_linear_dynamic(name: str, relu: bool) -> Callable[..., Tensor]:
    @operator(
        f"{name}(Tensor input, {_W}, bool reduce_range=False, bool per_token=False, {_ROUNDING}) -> Tensor",
        fake=_fake_linear_dynamic,
    )
    def linear_dynamic(
        input: Tensor,
        weight: Tensor,
        weight_scale: Tensor,
        weight_zero_point: Tensor,
        bias: Tensor | None,
        reduce_range: bool = False,
        per_token: bool = False,
        rounding: str = OURS,
    ) -> Tensor:
        layer = linear_layer(name, weight, weight_scale, weight_zero_point, bias, rounding)
        return run_linear_dynamic(name, input, layer, reduce_range, per_token, relu)

    what = f"A linear layer on floats{' with a ReLU' if relu else ''}; see `run_linear_dynamic`."
    return named(name, linear_dynamic, what)


linear_dynamic = _define_linear_dynamic("linear_dynamic", relu=False)
linear_relu_dynamic = _define_linear_dynamic("linear_relu_dynamic", relu=True)


@operator("linear_dynamic_fp16(Tensor input, Tensor weight, Tensor? bias) -> Tensor", fake=_fake_linear_dynamic)
def linear_dynamic_fp16(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``input @ weight.T + bias`` in float32, with weights kept in float16."""
    return run_linear_fp16("linear_dynamic_fp16", input, weight, bias, relu=False)


@operator("linear_relu_dynamic_fp16(Tensor input, Tensor weight, Tensor? bias) -> Tensor", fake=_fake_linear_dynamic)
def linear_relu_dynamic_fp16(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """As `linear_dynamic_fp16`, with a ReLU."""
    return run_linear_fp16("linear_relu_dynamic_fp16", input, weight, bias, relu=True)


# --------------------------------------------------------------------------------------------------- convolutions

_SHAPE = "int[] stride, int[] padding, int[] dilation, int groups"
_TRANSPOSED = "int[] stride, int[] padding, int[] output_padding, int[] dilation, int groups"


def _define_convolutions(dims: int) -> tuple[Callable[..., Tensor], ...]:
    def fake_of(op: str, transposed: bool, dtype: torch.dtype | None) -> Any:
        def fake(input: Tensor, *rest: Any) -> Tensor:
            rest = rest if dtype is not None else rest[2:]
            weight, shape = rest[0], rest[4:]
            if transposed:
                stride, padding, output_padding, dilation, groups = shape[:5]
                geometry = Geometry(op, dims, stride, padding, dilation, groups, output_padding)
            else:
                geometry = Geometry(op, dims, *shape[:4])
            n, c, *spatial = geometry.output_size(input, weight)
            return input.new_empty((n, *spatial, c), dtype=dtype or input.dtype).movedim(-1, 1)

        return fake

    def define(name: str, relu: bool) -> Callable[..., Tensor]:
        @operator(
            f"{name}({_X}, {_W}, {_SHAPE}, float scale, int zero_point, {_ROUNDING}) -> Tensor",
            fake=fake_of(name, False, None),
        )
        def conv(
            input: Tensor,
            input_scale: float,
            input_zero_point: int,
            weight: Tensor,
            weight_scale: Tensor,
            weight_zero_point: Tensor,
            bias: Tensor | None,
            stride: Sequence[int],
            padding: Sequence[int],
            dilation: Sequence[int],
            groups: int,
            scale: float,
            zero_point: int,
            rounding: str = OURS,
        ) -> Tensor:
            geometry = known_geometry(name, dims, stride, padding, dilation, groups)
            layer = conv_layer(geometry, weight, weight_scale, weight_zero_point, bias, rounding)
            return run_conv(geometry, input, input_scale, input_zero_point, weight, layer, scale, zero_point, relu=relu)

        return named(name, conv, f"A convolution on integers{' with a ReLU' if relu else ''}; see `run_conv`.")

    def define_add(name: str, relu: bool) -> Callable[..., Tensor]:
        @operator(
            f"{name}({_X}, {_W}, {_SHAPE}, Tensor other, float other_scale, int other_zero_point, float scale,"
            f" int zero_point, {_ROUNDING}) -> Tensor",
            fake=fake_of(name, False, None),
        )
        def conv_add(
            input: Tensor,
            input_scale: float,
            input_zero_point: int,
            weight: Tensor,
            weight_scale: Tensor,
            weight_zero_point: Tensor,
            bias: Tensor | None,
            stride: Sequence[int],
            padding: Sequence[int],
            dilation: Sequence[int],
            groups: int,
            other: Tensor,
            other_scale: float,
            other_zero_point: int,
            scale: float,
            zero_point: int,
            rounding: str = OURS,
        ) -> Tensor:
            geometry = known_geometry(name, dims, stride, padding, dilation, groups)
            layer = conv_layer(geometry, weight, weight_scale, weight_zero_point, bias, rounding)
            residual = (other, other_scale, other_zero_point)
            return run_conv(
                geometry,
                input,
                input_scale,
                input_zero_point,
                weight,
                layer,
                scale,
                zero_point,
                relu=relu,
                residual=residual,
            )

        what = f"A convolution plus another tensor{', with a ReLU' if relu else ''}, rounded once; see `run_conv`."
        return named(name, conv_add, what)

    def define_transposed(name: str) -> Callable[..., Tensor]:
        @operator(
            f"{name}({_X}, {_W}, {_TRANSPOSED}, float scale, int zero_point, {_ROUNDING}) -> Tensor",
            fake=fake_of(name, True, None),
        )
        def conv_transpose(
            input: Tensor,
            input_scale: float,
            input_zero_point: int,
            weight: Tensor,
            weight_scale: Tensor,
            weight_zero_point: Tensor,
            bias: Tensor | None,
            stride: Sequence[int],
            padding: Sequence[int],
            output_padding: Sequence[int],
            dilation: Sequence[int],
            groups: int,
            scale: float,
            zero_point: int,
            rounding: str = OURS,
        ) -> Tensor:
            geometry = known_geometry(name, dims, stride, padding, dilation, groups, output_padding)
            layer = conv_layer(geometry, weight, weight_scale, weight_zero_point, bias, rounding)
            return run_conv(geometry, input, input_scale, input_zero_point, weight, layer, scale, zero_point)

        return named(name, conv_transpose, "A transposed convolution on integers; see `run_conv`.")

    def define_dynamic(name: str, transposed: bool) -> Callable[..., Tensor]:
        shape = _TRANSPOSED if transposed else _SHAPE

        @operator(
            f"{name}(Tensor input, {_W}, {shape}, bool reduce_range=False) -> Tensor",
            fake=fake_of(name, transposed, torch.float32),
        )
        def conv_dynamic(
            input: Tensor,
            weight: Tensor,
            weight_scale: Tensor,
            weight_zero_point: Tensor,
            bias: Tensor | None,
            stride: Sequence[int],
            padding: Sequence[int],
            *rest: Any,
        ) -> Tensor:
            rest = rest if transposed else (None, *rest)
            output_padding, dilation, groups = rest[:3]
            geometry = known_geometry(name, dims, stride, padding, dilation, groups, output_padding)
            layer = conv_layer(geometry, weight, weight_scale, weight_zero_point, bias)
            return run_conv_dynamic(geometry, input, weight, layer, bool(rest[3]) if len(rest) > 3 else False)

        kind = "transposed convolution" if transposed else "convolution"
        return named(name, conv_dynamic, f"A {kind} on floats, quantized on the way; see `run_conv_dynamic`.")

    return (
        define(f"conv{dims}d", relu=False),
        define(f"conv{dims}d_relu", relu=True),
        define_add(f"conv{dims}d_add", relu=False),
        define_add(f"conv{dims}d_add_relu", relu=True),
        define_dynamic(f"conv{dims}d_dynamic", transposed=False),
        define_transposed(f"conv_transpose{dims}d"),
        define_dynamic(f"conv_transpose{dims}d_dynamic", transposed=True),
    )


conv1d, conv1d_relu, conv1d_add, conv1d_add_relu, conv1d_dynamic, conv_transpose1d, conv_transpose1d_dynamic = (
    _define_convolutions(1)
)
conv2d, conv2d_relu, conv2d_add, conv2d_add_relu, conv2d_dynamic, conv_transpose2d, conv_transpose2d_dynamic = (
    _define_convolutions(2)
)
conv3d, conv3d_relu, conv3d_add, conv3d_add_relu, conv3d_dynamic, conv_transpose3d, conv_transpose3d_dynamic = (
    _define_convolutions(3)
)


# ------------------------------------------------------------------------------------------------ matrix products


def _fake_matmul(a: Tensor, a_scale: float, a_zero_point: int, b: Tensor, *rest: Any) -> Tensor:
    return a.new_empty(product_shape("matmul", a, b))


@operator(
    "matmul(Tensor a, float a_scale, int a_zero_point, Tensor b, float b_scale, int b_zero_point, float scale,"
    " int zero_point) -> Tensor",
    fake=_fake_matmul,
)
def matmul(
    a: Tensor,
    a_scale: float,
    a_zero_point: int,
    b: Tensor,
    b_scale: float,
    b_zero_point: int,
    scale: float,
    zero_point: int,
) -> Tensor:
    """``a @ b`` of two quantized tensors, requantized; batches broadcast.

    Args:
        a: ``(..., M, K)``, uint8 or int8.
        b: ``(..., K, N)``, uint8 or int8.

    Returns:
        ``(..., M, N)`` of the dtype of `a`.
    """
    return run_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, scale, zero_point)


def _fake_matmul_dynamic(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(product_shape("matmul_dynamic", a, b))


@operator("matmul_dynamic(Tensor a, Tensor b) -> Tensor", fake=_fake_matmul_dynamic)
def matmul_dynamic(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` of floats, computed on 8 bits: ``y[m, n] = sum_k(qa[m, k] qb[k, n]) * b_scale[n] * a_scale[m]``.

    Each row of `a` and each column of `b` is rounded symmetrically by its own range, in 127 steps to either side; the
    rows of an `a` that has no negative value, such as the weights of attention, in 255 steps. Batches broadcast.

    Args:
        a: ``(..., M, K)``, float32, finite.
        b: ``(..., K, N)``, float32, finite.

    Returns:
        ``(..., M, N)``, float32.

    Example:
        >>> matmul_dynamic(torch.tensor([[1.0, 0.5]]), torch.tensor([[2.0], [4.0]]))
        tensor([[4.0079]])
    """
    return run_matmul_dynamic(a, b)


@composite(
    "bmm(Tensor a, float a_scale, int a_zero_point, Tensor b, float b_scale, int b_zero_point, float scale,"
    " int zero_point) -> Tensor"
)
def bmm(
    a: Tensor,
    a_scale: float,
    a_zero_point: int,
    b: Tensor,
    b_scale: float,
    b_zero_point: int,
    scale: float,
    zero_point: int,
) -> Tensor:
    """`matmul` of two batches of matrices, ``(B, M, K)`` and ``(B, K, N)``."""
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0]:
        raise ValueError(f"bmm: needs (B, M, K) and (B, K, N), got {tuple(a.shape)} and {tuple(b.shape)}")
    return torch.ops.zeropoint.matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, scale, zero_point)
