"""The operators ``torch.ops.zeropoint.linear``, ``conv2d``, ``matmul`` and their relatives, on plain integers.

Each takes its input and its weight with their parameters beside them, and checks and computes in
`zeropoint.ops.layers`, which has the formula.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _fake_linear(input: Tensor, weight: Tensor) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


def _define_linear(name: str, relu: bool) -> Callable[..., Tensor]:
    @operator(fake=_fake_linear, name=name)
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


@operator(fake=_fake_linear)
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


@operator(fake=_fake_linear)
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


def _fake_linear_to_float(input: Tensor, weight: Tensor) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]), dtype=torch.float32)


@operator(fake=_fake_linear_to_float)
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


def _fake_linear_dynamic(input: Tensor, weight: Tensor) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]), dtype=torch.float32)


def _define_linear_dynamic(name: str, relu: bool) -> Callable[..., Tensor]:
    @operator(fake=_fake_linear_dynamic, name=name)
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


@operator(fake=_fake_linear_dynamic)
def linear_dynamic_fp16(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``input @ weight.T + bias`` in float32, with weights kept in float16."""
    return run_linear_fp16("linear_dynamic_fp16", input, weight, bias, relu=False)


@operator(fake=_fake_linear_dynamic)
def linear_relu_dynamic_fp16(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """As `linear_dynamic_fp16`, with a ReLU."""
    return run_linear_fp16("linear_relu_dynamic_fp16", input, weight, bias, relu=True)


# --------------------------------------------------------------------------------------------------- convolutions

_SHAPE = "int[] stride, int[] padding, int[] dilation, int groups"
_TRANSPOSED = "int[] stride, int[] padding, int[] output_padding, int[] dilation, int groups"
_OTHER = "Tensor other, float other_scale, int other_zero_point"


def _define_convolution(
    name: str, dims: int, *, transposed: bool = False, dynamic: bool = False, adds: bool = False, relu: bool = False
) -> Callable[..., Tensor]:
    """A convolution on integers, or on floats that are quantized on the way; `adds` adds another tensor to it."""
    shape = _TRANSPOSED if transposed else _SHAPE
    if dynamic:
        parts = ("Tensor input", _W, shape, "bool reduce_range=False")
    else:
        parts = (_X, _W, shape, *((_OTHER,) if adds else ()), "float scale, int zero_point", _ROUNDING)
    text = ", ".join(parts)
    names = [parameter.split()[1].split("=")[0] for parameter in text.split(", ")]

    def geometry_of(a: dict[str, Any]) -> Geometry:
        numbers = a["stride"], a["padding"], a["dilation"], a["groups"], a.get("output_padding")
        return known_geometry(name, dims, *numbers)

    def fake(*given: Any, **more: Any) -> Tensor:
        a = dict(zip(names, given)) | more
        n, c, *spatial = geometry_of(a).output_size(a["input"], a["weight"])
        dtype = torch.float32 if dynamic else a["input"].dtype
        return a["input"].new_empty((n, *spatial, c), dtype=dtype).movedim(-1, 1)

    @operator(f"{name}({text}) -> Tensor", fake=fake)
    def convolution(*given: Any, **more: Any) -> Tensor:
        a = dict(zip(names, given)) | more
        geometry = geometry_of(a)
        weight = a["weight"], a["weight_scale"], a["weight_zero_point"], a["bias"]
        layer = conv_layer(geometry, *weight, a.get("rounding", OURS))
        if dynamic:
            return run_conv_dynamic(geometry, a["input"], a["weight"], layer, a.get("reduce_range", False))
        residual = (a["other"], a["other_scale"], a["other_zero_point"]) if adds else None
        x, out = (a["input"], a["input_scale"], a["input_zero_point"]), (a["scale"], a["zero_point"])
        return run_conv(geometry, *x, a["weight"], layer, *out, relu=relu, residual=residual)

    kind = f"A{' transposed' if transposed else ''} convolution on {'floats' if dynamic else 'integers'}"
    then = f"{' plus another tensor' if adds else ''}{', with a ReLU' if relu else ''}"
    return named(name, convolution, f"{kind}{then}; see `run_conv{'_dynamic' if dynamic else ''}`.")


def _define_convolutions(dims: int) -> tuple[Callable[..., Tensor], ...]:
    name, transposed = f"conv{dims}d", f"conv_transpose{dims}d"
    return (
        _define_convolution(name, dims),
        _define_convolution(f"{name}_relu", dims, relu=True),
        _define_convolution(f"{name}_add", dims, adds=True),
        _define_convolution(f"{name}_add_relu", dims, adds=True, relu=True),
        _define_convolution(f"{name}_dynamic", dims, dynamic=True),
        _define_convolution(transposed, dims, transposed=True),
        _define_convolution(f"{transposed}_dynamic", dims, transposed=True, dynamic=True),
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


def _fake_matmul(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(product_shape("matmul", a, b))


@operator(fake=_fake_matmul)
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


@operator(fake=_fake_matmul_dynamic)
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


@composite()
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
