"""Linear layers, convolutions and matrix products on plain integers with their parameters beside them.

``y = clamp(rne(acc * m[n] + b[n]) + zero_point)`` with ``acc = sum((x - x_zero_point) * (w - weight_zero_point))``,
exact in 32-bit integers, ``m[n] = x_scale * weight_scale[n] / scale`` and ``b[n] = bias[n] / scale`` in float32. ReLU
is part of the clamp.

Weights are stored plainly, as PyTorch lays them out. What is packed for this CPU is kept for as long as the weight
tensor lives and does not change (`linear_layer`, `conv_layer`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from zeropoint import _native
from zeropoint.numerics.affine import INTEGER_CODES, Spelling, quantize_tensor
from zeropoint.numerics.qparams import choose_qparams, saturate_weight_to_fp16
from zeropoint.ops import checks
from zeropoint.ops.library import composite, operator

BYTES = (torch.uint8, torch.int8)
FLOAT_OUTPUT = 2
_BOUNDS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
_INF = math.inf
NOTHING = (0, 0, 1.0, 0)  # no residual: address, type, scale, zero point


# ------------------------------------------------------------------------------------------------ packed weights


def version(t: Tensor | None) -> int:
    return 0 if t is None or t.is_inference() else t._version


# Not an attribute of the weight, which would be copied and saved with it.
_PACKED: Any = WeakTensorKeyDictionary()


def _packed(weight: Tensor, others: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What `make` gave for this weight and these other arguments, unless one of them changed since."""
    versions = [version(t) for t in (weight, *others) if t is None or isinstance(t, Tensor)]
    isa = _native.isa()
    kept = _PACKED.get(weight)
    if kept is not None:
        old, old_versions, old_isa, layer = kept
        same = len(old) == len(others) and all(
            a is b or (not isinstance(a, Tensor) and a == b) for a, b in zip(old, others)
        )
        if same and old_isa == isa and old_versions == versions:
            return layer
    layer = make()
    _PACKED[weight] = (others, versions, isa, layer)
    return layer


def _parameters(
    op: str, weight: Tensor, scale: Tensor, zero_point: Tensor, bias: Tensor | None, outputs: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scales (float32), zero points (int32) and bias (float32) as the native core wants them, checked."""
    checks.require_dtype(op, "weight", weight.dtype, BYTES)
    scale = scale.detach().reshape(-1).to(torch.float32).contiguous()
    # Clamped, so that what is out of range stays so and the native core refuses it.
    zero_point = zero_point.detach().reshape(-1).clamp(-(2**15), 2**15).to(torch.int32).contiguous()
    for name, t in (("weight_scale", scale), ("weight_zero_point", zero_point)):
        if t.numel() not in (1, outputs):
            raise ValueError(
                f"{op}: {name} has {t.numel()} elements, but weight of shape {tuple(weight.shape)} has {outputs} output"
                " channels: give one, or one for each"
            )
    if bias is not None:
        if bias.dim() != 1 or bias.numel() != outputs:
            raise ValueError(
                f"{op}: bias has shape {tuple(bias.shape)}, but weight of shape {tuple(weight.shape)} has {outputs}"
                " output channels"
            )
        bias = bias.detach().to(torch.float32).contiguous()
    return scale, zero_point, bias


def make_linear_layer(
    op: str, weight: Tensor, scale: Tensor, zero_point: Tensor, bias: Tensor | None
) -> _native.LinearLayer:
    """The weights of a linear layer, packed for this CPU; arguments as for `linear_layer`."""
    if weight.dim() != 2:
        raise ValueError(f"{op}: weight must be (outputs, inputs), got shape {tuple(weight.shape)}")
    outputs, inputs = weight.shape
    s, z, b = _parameters(op, weight, scale, zero_point, bias, outputs)
    stored = weight.detach().contiguous()
    return _native.LinearLayer(
        (stored.data_ptr(), INTEGER_CODES[stored.dtype]),
        (z.data_ptr(), z.numel()),
        outputs,
        inputs,
        (s.data_ptr(), s.numel()),
        0 if b is None else b.data_ptr(),
    )


def linear_layer(
    op: str, weight: Tensor, scale: Tensor, zero_point: Tensor, bias: Tensor | None
) -> _native.LinearLayer:
    """The weights of a linear layer, packed for this CPU; kept with `weight`.

    Args:
        weight: ``(outputs, inputs)``, int8 or uint8.
        scale, zero_point: one element, or ``(outputs,)``.
        bias: ``(outputs,)`` or None.

    Example:
        >>> weight, scale, zero_point = torch.ones(2, 3, dtype=torch.int8), torch.tensor([0.5]), torch.tensor([0])
        >>> layer = linear_layer("linear", weight, scale, zero_point, None)
        >>> layer is linear_layer("linear", weight, scale, zero_point, None)
        True
    """
    others = (scale, zero_point, bias)
    return _packed(weight, others, lambda: make_linear_layer(op, weight, scale, zero_point, bias))


def _three(values: Sequence[int], missing: int, dims: int) -> tuple[int, int, int]:
    """A value for each of three axes; one value counts for all, and axes that are not there get `missing`."""
    values = list(values) * dims if len(values) == 1 else list(values)
    first, second, third = [missing] * (3 - dims) + values
    return first, second, third


class Geometry:
    """The shape of a convolution: what PyTorch's functions take, in three dimensions."""

    def __init__(
        self,
        op: str,
        dims: int,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        output_padding: Sequence[int] | None = None,
    ) -> None:
        self.op, self.dims, self.groups = op, dims, groups
        self.transposed = output_padding is not None
        given = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding or [0]}
        least = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
        for name, values in given.items():
            if len(values) not in (1, dims) or any(v < least[name] for v in values):
                raise ValueError(
                    f"{op}: {name} must have {dims} values (or one) of at least {least[name]}, got {list(values)}"
                )
        self.stride = _three(stride, 1, dims)
        self.padding = _three(padding, 0, dims)
        self.dilation = _three(dilation, 1, dims)
        self.output_padding = _three(given["output_padding"], 0, dims)

    def key(self) -> tuple[Any, ...]:
        return self.dims, self.groups, self.transposed, self.stride, self.padding, self.dilation, self.output_padding

    def channels(self, weight: Tensor) -> tuple[int, int]:
        """(in, out) of a weight: ``(out, in / groups, ...)``, or, transposed, ``(in, out / groups, ...)``."""
        first, second = weight.shape[0], weight.shape[1] * self.groups
        return (first, second) if self.transposed else (second, first)

    def kernel(self, weight: Tensor) -> tuple[int, int, int]:
        return _three(weight.shape[2:], 1, self.dims)

    def check_weight(self, weight: Tensor) -> None:
        if weight.dim() != self.dims + 2:
            raise ValueError(f"{self.op}: weight must have {self.dims + 2} dimensions, got shape {tuple(weight.shape)}")
        if self.groups < 1 or weight.shape[0] % self.groups:
            raise ValueError(
                f"{self.op}: groups {self.groups} must divide the {weight.shape[0]} channels of weight of shape"
                f" {tuple(weight.shape)}"
            )

    def output_size(self, x: Tensor, weight: Tensor) -> tuple[int, ...]:
        """The shape of the output, ``(N, C, ...)``; ValueError if input and weight do not fit."""
        self.check_weight(weight)
        inputs, outputs = self.channels(weight)
        if x.dim() != self.dims + 2 or x.shape[1] != inputs:
            raise ValueError(
                f"{self.op}: input of shape {tuple(x.shape)} does not fit weight of shape {tuple(weight.shape)} with"
                f" groups={self.groups}: it must be (N, {inputs}{', L' if self.dims == 1 else ', ...'})"
            )
        sizes = []
        kernel = self.kernel(weight)
        for axis in range(3 - self.dims, 3):
            n = x.shape[axis - 3]
            reach = self.dilation[axis] * (kernel[axis] - 1)
            if self.transposed:
                size = (n - 1) * self.stride[axis] - 2 * self.padding[axis] + reach + self.output_padding[axis] + 1
            else:
                size = (n + 2 * self.padding[axis] - reach - 1) // self.stride[axis] + 1
            if size < 1:
                raise ValueError(
                    f"{self.op}: input of shape {tuple(x.shape)} is smaller than the kernel of weight of shape"
                    f" {tuple(weight.shape)}"
                )
            if self.output_padding[axis] >= max(self.stride[axis], self.dilation[axis]):
                raise ValueError(
                    f"{self.op}: output_padding {self.output_padding[axis]} must be smaller than stride"
                    f" {self.stride[axis]} or dilation {self.dilation[axis]}"
                )
            sizes.append(size)
        return (x.shape[0], outputs, *sizes)


def make_conv_layer(
    geometry: Geometry, weight: Tensor, scale: Tensor, zero_point: Tensor, bias: Tensor | None
) -> _native.ConvLayer:
    """The weights of a convolution, packed for this CPU; arguments as for `conv_layer`."""
    geometry.check_weight(weight)
    inputs, outputs = geometry.channels(weight)
    s, z, b = _parameters(geometry.op, weight, scale, zero_point, bias, outputs)
    stored = weight.detach()
    groups, spatial = geometry.groups, weight.shape[2:]
    if geometry.transposed:  # (in, out / groups, ...) -> (out, in / groups, ...)
        stored = stored.reshape(groups, inputs // groups, outputs // groups, *spatial)
        stored = stored.transpose(1, 2).reshape(outputs, inputs // groups, *spatial)
    stored = stored.movedim(1, -1).contiguous()
    return _native.ConvLayer(
        (stored.data_ptr(), INTEGER_CODES[stored.dtype]),
        (z.data_ptr(), z.numel()),
        (inputs, outputs, groups),
        geometry.kernel(weight),
        geometry.stride,
        geometry.padding,
        geometry.dilation,
        geometry.transposed,
        geometry.output_padding,
        (s.data_ptr(), s.numel()),
        0 if b is None else b.data_ptr(),
    )


def conv_layer(
    geometry: Geometry, weight: Tensor, scale: Tensor, zero_point: Tensor, bias: Tensor | None
) -> _native.ConvLayer:
    """The weights of a convolution, packed for this CPU; kept with `weight`.

    Args:
        weight: ``(out, in / groups, ...)``, or, transposed, ``(in, out / groups, ...)``; int8 or uint8.
        scale, zero_point: one element, or ``(out,)``.
        bias: ``(out,)`` or None.
    """
    others = (scale, zero_point, bias, geometry.key())
    return _packed(weight, others, lambda: make_conv_layer(geometry, weight, scale, zero_point, bias))


# -------------------------------------------------------------------------------------------------------- running


def _limits(dtype: torch.dtype, zero_point: int, relu: bool) -> tuple[int, int]:
    low, high = _BOUNDS[dtype]
    return (max(low, min(zero_point, high)) if relu else low), high


def _require_fit(op: str, x: Tensor, layer: _native.LinearLayer) -> None:
    if x.dim() == 0 or x.shape[-1] != layer.inputs:
        raise ValueError(
            f"{op}: input of shape {tuple(x.shape)} does not fit weight of shape ({layer.outputs}, {layer.inputs})"
        )


def run_linear(
    op: str,
    x: Tensor,
    x_scale: float,
    x_zero_point: int,
    layer: _native.LinearLayer,
    scale: float,
    zero_point: int,
    *,
    relu: bool = False,
    slope: float = 1.0,
) -> Tensor:
    """A linear layer on integers: ``(..., inputs)`` to ``(..., outputs)``, of the dtype of `x`."""
    checks.require_dtype(op, "input", x.dtype, BYTES)
    _require_fit(op, x, layer)
    x = x.contiguous()
    y = torch.empty((*x.shape[:-1], layer.outputs), dtype=x.dtype)
    low, high = _limits(x.dtype, zero_point, relu)
    code = INTEGER_CODES[x.dtype]
    layer.run(
        (x.data_ptr(), code, x_scale, x_zero_point),
        y.numel() // layer.outputs if layer.outputs else 0,
        (y.data_ptr(), code, scale, zero_point, low, high, -_INF, slope),
        NOTHING,
    )
    return y


def run_linear_to_float(op: str, x: Tensor, x_scale: float, x_zero_point: int, layer: _native.LinearLayer) -> Tensor:
    """A linear layer on integers, with float32 output."""
    checks.require_dtype(op, "input", x.dtype, BYTES)
    _require_fit(op, x, layer)
    x = x.contiguous()
    y = torch.empty((*x.shape[:-1], layer.outputs))
    rows = y.numel() // layer.outputs if layer.outputs else 0
    layer.run(
        (x.data_ptr(), INTEGER_CODES[x.dtype], x_scale, x_zero_point),
        rows,
        (y.data_ptr(), FLOAT_OUTPUT, 1.0, 0, 0, 255, -_INF, 1.0),
        NOTHING,
    )
    return y


def run_linear_tanh(
    x: Tensor, x_scale: float, x_zero_point: int, layer: _native.LinearLayer, scale: float, zero_point: int
) -> Tensor:
    """A linear layer with a tanh on integers: taken of the float32 result, which is rounded once."""
    op = "linear_tanh"
    checks.require_dtype(op, "input", x.dtype, BYTES)
    low, high = _BOUNDS[x.dtype]
    checks.require_zero_point_inside(op, zero_point, low, high)
    y = run_linear_to_float(op, x, x_scale, x_zero_point, layer).tanh_()
    return quantize_tensor(y, scale, zero_point, qmin=low, qmax=high, dtype=x.dtype, spelling=Spelling.fused)


def channels_inside(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An empty tensor of shape ``(N, C, ...)`` with the channels innermost in memory."""
    return torch.empty((shape[0], *shape[2:], shape[1]), dtype=dtype).movedim(-1, 1)


def run_conv(
    geometry: Geometry,
    x: Tensor,
    x_scale: float,
    x_zero_point: int,
    weight: Tensor,
    layer: _native.ConvLayer,
    scale: float,
    zero_point: int,
    *,
    dtype: torch.dtype | None = None,
    relu: bool = False,
    residual: tuple[Tensor, float, int] | None = None,
) -> Tensor:
    """A convolution on integers, ``(N, C, ...)``; the output has its channels innermost in memory."""
    checks.require_dtype(geometry.op, "input", x.dtype, BYTES)
    shape = geometry.output_size(x, weight)
    dtype = dtype or x.dtype
    inner = x.movedim(1, -1)
    channels_first = not inner.is_contiguous() and x.is_contiguous()
    x = x if channels_first else inner.contiguous()
    y = channels_inside(shape, dtype)
    if dtype == torch.float32:
        output = (y.data_ptr(), FLOAT_OUTPUT, 1.0, 0, 0, 255, 0.0 if relu else -_INF, 1.0)
    else:
        output = (
            y.data_ptr(),
            INTEGER_CODES[dtype],
            scale,
            zero_point,
            *_limits(dtype, zero_point, relu),
            -_INF,
            1.0,
        )
    other = NOTHING
    if residual is not None:
        z, z_scale, z_zero_point = residual
        if z.shape != shape or z.dtype not in BYTES:
            raise ValueError(
                f"{geometry.op}: what is added must have the output's shape {shape} and be uint8 or int8, got"
                f" {tuple(z.shape)} and {z.dtype}"
            )
        z = z.movedim(1, -1).contiguous()
        other = (z.data_ptr(), INTEGER_CODES[z.dtype], z_scale, z_zero_point)
    spatial = x.shape[2:] if channels_first else x.shape[1:-1]
    layer.run(
        (x.data_ptr(), INTEGER_CODES[x.dtype], x_scale, x_zero_point),
        shape[0],
        _three(spatial, 1, geometry.dims),
        channels_first,
        output,
        other,
    )
    return y


# ------------------------------------------------------------------------------------------------ linear operators

_X = "Tensor input, float input_scale, int input_zero_point"
_W = "Tensor weight, Tensor weight_scale, Tensor weight_zero_point, Tensor? bias"


def _fake_linear(input: Tensor, input_scale: float, input_zero_point: int, weight: Tensor, *rest: Any) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


def _named(name: str, function: Callable[..., Tensor], what: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = what
    return function


def _define_linear(name: str, relu: bool) -> Callable[..., Tensor]:
    @operator(f"{name}({_X}, {_W}, float scale, int zero_point) -> Tensor", fake=_fake_linear)
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
    ) -> Tensor:
        layer = linear_layer(name, weight, weight_scale, weight_zero_point, bias)
        return run_linear(name, input, input_scale, input_zero_point, layer, scale, zero_point, relu=relu)

    return _named(name, linear, f"A linear layer on integers{' with a ReLU' if relu else ''}; see `run_linear`.")


linear = _define_linear("linear", relu=False)
linear_relu = _define_linear("linear_relu", relu=True)


@operator(
    f"linear_leaky_relu({_X}, {_W}, float scale, int zero_point, float negative_slope) -> Tensor", fake=_fake_linear
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
) -> Tensor:
    """A linear layer whose negative results are multiplied by `negative_slope` before rounding."""
    op = "linear_leaky_relu"
    layer = linear_layer(op, weight, weight_scale, weight_zero_point, bias)
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


# ----------------------------------------------------------------------------------------------- dynamic operators


def _fake_linear_dynamic(input: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]), dtype=torch.float32)


def run_linear_dynamic(
    op: str, x: Tensor, layer: _native.LinearLayer, reduce_range: bool, per_token: bool, relu: bool
) -> Tensor:
    """A linear layer on floats that are quantized on the way, with float32 output."""
    checks.require_dtype(op, "input", x.dtype, (torch.float32,))
    _require_fit(op, x, layer)
    x = x.detach().contiguous()
    y = torch.empty((*x.shape[:-1], layer.outputs))
    rows = y.numel() // layer.outputs if layer.outputs else 0
    layer.run_dynamic(x.data_ptr(), rows, y.data_ptr(), reduce_range, per_token, relu)
    return y


def _define_linear_dynamic(name: str, relu: bool) -> Callable[..., Tensor]:
    @operator(
        f"{name}(Tensor input, {_W}, bool reduce_range=False, bool per_token=False) -> Tensor",
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
    ) -> Tensor:
        layer = linear_layer(name, weight, weight_scale, weight_zero_point, bias)
        return run_linear_dynamic(name, input, layer, reduce_range, per_token, relu)

    what = f"A linear layer on floats{' with a ReLU' if relu else ''}; see `run_linear_dynamic`."
    return _named(name, linear_dynamic, what)


linear_dynamic = _define_linear_dynamic("linear_dynamic", relu=False)
linear_relu_dynamic = _define_linear_dynamic("linear_relu_dynamic", relu=True)


def to_fp16_weight(weight: Tensor) -> Tensor:
    """`weight` in float16, values beyond its range at its largest.

    Example:
        >>> to_fp16_weight(torch.tensor([1.0, 1e9]))
        tensor([1.0000e+00, 6.5504e+04], dtype=torch.float16)
    """
    return saturate_weight_to_fp16(weight.detach()).to(torch.float16)


def run_linear_fp16(op: str, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """A linear layer in float32 with float16 weights."""
    checks.require_dtype(op, "input", x.dtype, (torch.float32,))
    checks.require_dtype(op, "weight", weight.dtype, (torch.float16,))
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"{op}: input of shape {tuple(x.shape)} does not fit weight of shape {tuple(weight.shape)}")
    y = torch.nn.functional.linear(x, weight.to(torch.float32), bias)
    return torch.relu_(y) if relu else y


@composite("linear_dynamic_fp16(Tensor input, Tensor weight, Tensor? bias) -> Tensor")
def linear_dynamic_fp16(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``input @ weight.T + bias`` in float32, with weights kept in float16."""
    return run_linear_fp16("linear_dynamic_fp16", input, weight, bias, relu=False)


@composite("linear_relu_dynamic_fp16(Tensor input, Tensor weight, Tensor? bias) -> Tensor")
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
            f"{name}({_X}, {_W}, {_SHAPE}, float scale, int zero_point) -> Tensor", fake=fake_of(name, False, None)
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
        ) -> Tensor:
            geometry = Geometry(name, dims, stride, padding, dilation, groups)
            layer = conv_layer(geometry, weight, weight_scale, weight_zero_point, bias)
            return run_conv(geometry, input, input_scale, input_zero_point, weight, layer, scale, zero_point, relu=relu)

        return _named(name, conv, f"A convolution on integers{' with a ReLU' if relu else ''}; see `run_conv`.")

    def define_add(name: str, relu: bool) -> Callable[..., Tensor]:
        @operator(
            f"{name}({_X}, {_W}, {_SHAPE}, Tensor other, float other_scale, int other_zero_point, float scale,"
            " int zero_point) -> Tensor",
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
        ) -> Tensor:
            geometry = Geometry(name, dims, stride, padding, dilation, groups)
            layer = conv_layer(geometry, weight, weight_scale, weight_zero_point, bias)
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
        return _named(name, conv_add, what)

    def define_transposed(name: str) -> Callable[..., Tensor]:
        @operator(
            f"{name}({_X}, {_W}, {_TRANSPOSED}, float scale, int zero_point) -> Tensor", fake=fake_of(name, True, None)
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
        ) -> Tensor:
            geometry = Geometry(name, dims, stride, padding, dilation, groups, output_padding)
            layer = conv_layer(geometry, weight, weight_scale, weight_zero_point, bias)
            return run_conv(geometry, input, input_scale, input_zero_point, weight, layer, scale, zero_point)

        return _named(name, conv_transpose, "A transposed convolution on integers; see `run_conv`.")

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
            geometry = Geometry(name, dims, stride, padding, dilation, groups, output_padding)
            layer = conv_layer(geometry, weight, weight_scale, weight_zero_point, bias)
            return run_conv_dynamic(geometry, input, weight, layer, bool(rest[3]) if len(rest) > 3 else False)

        kind = "transposed convolution" if transposed else "convolution"
        return _named(name, conv_dynamic, f"A {kind} on floats, quantized on the way; see `run_conv_dynamic`.")

    return (
        define(f"conv{dims}d", relu=False),
        define(f"conv{dims}d_relu", relu=True),
        define_add(f"conv{dims}d_add", relu=False),
        define_add(f"conv{dims}d_add_relu", relu=True),
        define_dynamic(f"conv{dims}d_dynamic", transposed=False),
        define_transposed(f"conv_transpose{dims}d"),
        define_dynamic(f"conv_transpose{dims}d_dynamic", transposed=True),
    )


def run_conv_dynamic(
    geometry: Geometry, x: Tensor, weight: Tensor, layer: _native.ConvLayer, reduce_range: bool
) -> Tensor:
    """A convolution on floats that are quantized on the way, with float32 output."""
    checks.require_dtype(geometry.op, "input", x.dtype, (torch.float32,))
    scale, zero_point = choose_qparams(x, reduce_range) if x.numel() else (1.0, 0)
    q = quantize_tensor(x, scale, zero_point, qmin=0, qmax=255, dtype=torch.uint8, spelling=Spelling.fused)
    return run_conv(geometry, q, scale, zero_point, weight, layer, 1.0, 0, dtype=torch.float32)


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


def product_shape(op: str, a: Tensor, b: Tensor) -> tuple[int, ...]:
    """The shape of ``a @ b``: matrices, or batches of them that broadcast."""
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"{op}: cannot multiply {tuple(a.shape)} with {tuple(b.shape)}: both need two dimensions or more, and the"
            " last of the first must be the last but one of the second"
        )
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError as error:
        raise ValueError(f"{op}: the batches of {tuple(a.shape)} and {tuple(b.shape)} do not broadcast") from error
    return (*batch, a.shape[-2], b.shape[-1])


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
    op = "matmul"
    for name, t in (("a", a), ("b", b)):
        checks.require_dtype(op, name, t.dtype, BYTES)
    shape = product_shape(op, a, b)
    batch = shape[:-2]
    y = torch.empty(shape, dtype=a.dtype)
    a = a.expand(*batch, *a.shape[-2:]).contiguous()
    columns = b.transpose(-1, -2).expand(*batch, b.shape[-1], b.shape[-2]).contiguous()
    low, high = _BOUNDS[a.dtype]
    _native.matmul(
        (a.data_ptr(), INTEGER_CODES[a.dtype], a_scale, a_zero_point),
        (columns.data_ptr(), INTEGER_CODES[b.dtype], b_scale, b_zero_point),
        (math.prod(batch), shape[-2], shape[-1], a.shape[-1]),
        (y.data_ptr(), INTEGER_CODES[a.dtype], scale, zero_point, low, high, -_INF, 1.0),
    )
    return y


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
