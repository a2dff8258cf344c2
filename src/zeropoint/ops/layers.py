"""Linear layers, convolutions and matrix products on plain integers, with their parameters as arguments.

``y = clamp(rne(acc * m[n] + b[n]) + zero_point)`` with ``acc = sum((x - x_zero_point) * (w - weight_zero_point))``,
exact in 32-bit integers, ``m[n] = x_scale * weight_scale[n] / scale`` and ``b[n] = bias[n] / scale`` in float32. ReLU
is part of the clamp. `zeropoint.ops.rounding` has other orders of these operations.

Weights are stored plainly, as PyTorch lays them out. What is packed for this CPU is kept for as long as the weight
tensor lives and does not change (`linear_layer`, `conv_layer`).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.affine import INTEGER_CODES, RoundingVariant, quantize_tensor
from zeropoint.numerics.qparams import choose_qparams, saturate_weight_to_fp16
from zeropoint.ops import checks, rounding
from zeropoint.ops.geometry import Geometry, three

BYTES = (torch.uint8, torch.int8)
FLOAT_OUTPUT = 2
_BYTE_KINDS = {dtype: (INTEGER_CODES[dtype], *checks.bounds(dtype)) for dtype in BYTES}  # code, least and largest value
_UNBOUNDED = -math.inf
_CHANNELS_LAST = torch.channels_last
NOTHING = (0, 0, 1.0, 0)  # no residual: address, type, scale, zero point


# ------------------------------------------------------------------------------------------------ packed weights


def _state(t: Tensor) -> int | Tensor:
    """What tells later whether `t` was written to: a count; of inference tensors, which have none, a copy."""
    return t.clone() if t.is_inference() else t._version


def _unchanged(t: Tensor, state: int | Tensor) -> bool:
    if isinstance(state, Tensor):
        return t.is_inference() and torch.equal(t, state)
    return not t.is_inference() and t._version == state


# By the identity of the weight; not an attribute of it, which would be copied and saved with it.
_PACKED: dict[int, _Kept] = {}


class _Kept:
    """What was packed, and from what: another object may have the same identity once the weight is gone."""

    __slots__ = ("counted", "isa", "layer", "others", "states", "version", "weight")

    def __init__(self, weight: Tensor, others: tuple[Any, ...], layer: Any) -> None:
        place = id(weight)
        self.weight: Any = weakref.ref(weight, lambda gone: _forget(place, gone))
        self.others, self.isa, self.layer = others, _native.isa(), layer
        self.version = _state(weight)
        self.states = [(t, _state(t)) for t in others if isinstance(t, Tensor)]
        # Whether all of them count who writes to them: tensors of inference mode do not.
        self.counted = not any(isinstance(state, Tensor) for state in (self.version, *(s for _, s in self.states)))

    def serves(self, weight: Tensor, others: tuple[Any, ...]) -> bool:
        """Whether the layer is that of these arguments, as they are now."""
        if self.weight() is not weight or self.isa != _native.isa() or not _same(self.others, others):
            return False
        if not self.counted:
            return _unchanged(weight, self.version) and all(_unchanged(t, state) for t, state in self.states)
        try:
            if weight._version != self.version:
                return False
            for t, state in self.states:
                if t._version != state:
                    return False
        except RuntimeError:  # one of them got the memory of an inference tensor, which has no count
            return False
        return True


def kept(weight: Tensor, others: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What `make` gave for this weight and these other arguments, unless one of them changed since."""
    found = _PACKED.get(id(weight))
    if found is not None and found.serves(weight, others):
        return found.layer
    made = _Kept(weight, others, make())
    _PACKED[id(weight)] = made
    return made.layer


def _same(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    if len(old) != len(new):
        return False
    for a, b in zip(old, new):
        if a is not b and (isinstance(a, Tensor) or isinstance(b, Tensor) or a != b):
            return False
    return True


def _forget(place: int, gone: Any) -> None:
    found = _PACKED.get(place)
    if found is not None and found.weight is gone:
        del _PACKED[place]


def layer_parameters(
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
                f"{op}: {name} has {t.numel()} elements, but weight of shape {tuple(weight.shape)} has {outputs} "
                "output channels: pass one, or one for each"
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
    op: str,
    weight: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    bias: Tensor | None,
    rounds: str = rounding.OURS,
) -> _native.LinearLayer:
    """The weights of a linear layer, packed for this CPU; arguments as for `linear_layer`."""
    if weight.dim() != 2:
        raise ValueError(f"{op}: weight must be (outputs, inputs), got shape {tuple(weight.shape)}")
    outputs, inputs = weight.shape
    s, z, b = layer_parameters(op, weight, scale, zero_point, bias, outputs)
    stored = weight.detach().contiguous()
    return _native.LinearLayer(
        (stored.data_ptr(), INTEGER_CODES[stored.dtype]),
        (z.data_ptr(), z.numel()),
        outputs,
        inputs,
        (s.data_ptr(), s.numel()),
        0 if b is None else b.data_ptr(),
        rounding.code(op, rounds),
    )


def linear_layer(
    op: str,
    weight: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    bias: Tensor | None,
    rounds: str = rounding.OURS,
) -> _native.LinearLayer:
    """The weights of a linear layer, packed for this CPU; kept with `weight`.

    Args:
        weight: ``(outputs, inputs)``, int8 or uint8.
        scale, zero_point: one element, or ``(outputs,)``.
        bias: ``(outputs,)`` or None.
        rounds: one of `zeropoint.ops.rounding.CODES`.

    Example:
        >>> weight, scale, zero_point = torch.ones(2, 3, dtype=torch.int8), torch.tensor([0.5]), torch.tensor([0])
        >>> layer = linear_layer("linear", weight, scale, zero_point, None)
        >>> layer is linear_layer("linear", weight, scale, zero_point, None)
        True
    """
    others = (scale, zero_point, bias, rounds)
    return kept(weight, others, lambda: make_linear_layer(op, weight, scale, zero_point, bias, rounds))


def make_conv_layer(
    geometry: Geometry,
    weight: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    bias: Tensor | None,
    rounds: str = rounding.OURS,
) -> _native.ConvLayer:
    """The weights of a convolution, packed for this CPU; arguments as for `conv_layer`."""
    geometry.check_weight(weight)
    inputs, outputs = geometry.channels(weight)
    groups, spatial = geometry.groups, weight.shape[2:]
    if geometry.transposed and groups > 1:  # scales lie along axis 1, which has the outputs of one group
        scale, zero_point = (
            t.reshape(-1).repeat(groups) if t.numel() * groups == outputs else t for t in (scale, zero_point)
        )
    s, z, b = layer_parameters(geometry.op, weight, scale, zero_point, bias, outputs)
    stored = weight.detach()
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
        rounding.code(geometry.op, rounds),
    )


def conv_layer(
    geometry: Geometry,
    weight: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    bias: Tensor | None,
    rounds: str = rounding.OURS,
) -> _native.ConvLayer:
    """The weights of a convolution, packed for this CPU; kept with `weight`.

    Args:
        weight: ``(out, in / groups, ...)``, or, transposed, ``(in, out / groups, ...)``; int8 or uint8.
        scale, zero_point: one element, or ``(out,)``.
        bias: ``(out,)`` or None.
        rounds: one of `zeropoint.ops.rounding.CODES`.
    """
    others = (scale, zero_point, bias, geometry.key(), rounds)
    return kept(weight, others, lambda: make_conv_layer(geometry, weight, scale, zero_point, bias, rounds))


# -------------------------------------------------------------------------------------------------------- running


def _require_fit(op: str, shape: torch.Size, layer: _native.LinearLayer) -> None:
    if not shape or shape[-1] != layer.inputs:
        raise ValueError(
            f"{op}: input of shape {tuple(shape)} does not fit weight of shape ({layer.outputs}, {layer.inputs})"
        )


def _output(
    y: Tensor, scale: float, zero_point: int, relu: bool = False, slope: float = 1.0
) -> tuple[int, int, float, int, int, int, float, float]:
    """What the native core wants to know about `y`: integers, or float32, whose scale is 1."""
    if y.dtype == torch.float32:
        return y.data_ptr(), FLOAT_OUTPUT, 1.0, 0, 0, 255, 0.0 if relu else -math.inf, slope
    code, low, high = _BYTE_KINDS[y.dtype]
    if relu:
        low = max(low, min(zero_point, high))
    return y.data_ptr(), code, scale, zero_point, low, high, _UNBOUNDED, slope


def _rows(shape: torch.Size, outputs: int, dtype: torch.dtype) -> Tensor:
    """An empty tensor ``(..., outputs)`` for an input of this shape."""
    if len(shape) == 2:
        return torch.empty_strided((shape[0], outputs), (max(outputs, 1), 1), dtype=dtype)  # half of torch.empty's time
    return torch.empty((*shape[:-1], outputs), dtype=dtype)


def run_linear(
    op: str,
    x: Tensor,
    x_scale: float,
    x_zero_point: int,
    layer: _native.LinearLayer,
    scale: float,
    zero_point: int,
    *,
    dtype: torch.dtype | None = None,
    relu: bool = False,
    slope: float = 1.0,
) -> Tensor:
    """A linear layer on integers: ``(..., inputs)`` to ``(..., outputs)``, of the dtype of `x` or of `dtype`."""
    kind, shape, outputs = x.dtype, x.shape, layer.outputs
    checks.require_dtype(op, "input", kind, BYTES)
    _require_fit(op, shape, layer)
    x = x.contiguous()
    y = _rows(shape, outputs, dtype or kind)
    layer.run(
        (x.data_ptr(), _BYTE_KINDS[kind][0], x_scale, x_zero_point),
        y.numel() // outputs if outputs else 0,
        _output(y, scale, zero_point, relu, slope),
        NOTHING,
    )
    return y


def run_linear_tanh(
    x: Tensor, x_scale: float, x_zero_point: int, layer: _native.LinearLayer, scale: float, zero_point: int
) -> Tensor:
    """A linear layer with a tanh on integers: taken of the float32 result, which is rounded once."""
    op = "linear_tanh"
    checks.require_dtype(op, "input", x.dtype, BYTES)
    _, low, high = _BYTE_KINDS[x.dtype]
    checks.require_zero_point_inside(op, zero_point, low, high)
    y = run_linear(op, x, x_scale, x_zero_point, layer, 1.0, 0, dtype=torch.float32).tanh_()
    return quantize_tensor(y, scale, zero_point, qmin=low, qmax=high, dtype=x.dtype, variant=RoundingVariant.fused)


def channels_inside(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An empty tensor of shape ``(N, C, ...)`` with the channels innermost in memory."""
    if len(shape) == 4:
        _, c, h, w = shape
        return torch.empty_strided(shape, (h * w * c, 1, w * c, c), dtype=dtype)  # torch.empty takes twice as long
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
    kind, size = x.dtype, x.shape
    checks.require_dtype(geometry.op, "input", kind, BYTES)
    shape = geometry.known_output_size(x, weight)
    if len(size) == 4 and x.is_contiguous(memory_format=_CHANNELS_LAST):
        channels_first, spatial = False, (1, size[2], size[3])
    else:
        inner = x.movedim(1, -1)
        channels_first, spatial = not inner.is_contiguous() and x.is_contiguous(), three(size[2:], 1, geometry.dims)
        x = x if channels_first else inner.contiguous()
    y = channels_inside(shape, dtype or kind)
    other = NOTHING
    if residual is not None:
        z, z_scale, z_zero_point = residual
        if z.shape != shape or z.dtype not in BYTES:
            raise ValueError(
                f"{geometry.op}: the added tensor must have the output's shape {shape} and be uint8 or int8, got "
                f"{tuple(z.shape)} and {z.dtype}"
            )
        z = z.movedim(1, -1).contiguous()
        other = (z.data_ptr(), INTEGER_CODES[z.dtype], z_scale, z_zero_point)
    layer.run(
        (x.data_ptr(), _BYTE_KINDS[kind][0], x_scale, x_zero_point),
        shape[0],
        spatial,
        channels_first,
        _output(y, scale, zero_point, relu),
        other,
    )
    return y


def run_linear_dynamic(
    op: str, x: Tensor, layer: _native.LinearLayer, reduce_range: bool, per_token: bool, relu: bool
) -> Tensor:
    """A linear layer on floats that are quantized on the way, with float32 output."""
    checks.require_dtype(op, "input", x.dtype, (torch.float32,))
    _require_fit(op, x.shape, layer)
    x = (x.detach() if x.requires_grad else x).contiguous()
    y = _rows(x.shape, layer.outputs, torch.float32)
    rows = y.numel() // layer.outputs if layer.outputs else 0
    layer.run_dynamic(x.data_ptr(), rows, y.data_ptr(), reduce_range, per_token, relu)
    return y


def to_fp16_weight(weight: Tensor) -> Tensor:
    """`weight` in float16, values beyond its range at its largest.

    Example:
        >>> to_fp16_weight(torch.tensor([1.0, 1e9]))
        tensor([1.0000e+00, 6.5504e+04], dtype=torch.float16)
    """
    return saturate_weight_to_fp16(weight.detach()).to(torch.float16)


def run_conv_dynamic(
    geometry: Geometry, x: Tensor, weight: Tensor, layer: _native.ConvLayer, reduce_range: bool
) -> Tensor:
    """A convolution on floats that are quantized on the way, with float32 output."""
    checks.require_dtype(geometry.op, "input", x.dtype, (torch.float32,))
    scale, zero_point = choose_qparams(x, reduce_range) if x.numel() else (1.0, 0)
    q = quantize_tensor(x, scale, zero_point, qmin=0, qmax=255, dtype=torch.uint8, variant=RoundingVariant.fused)
    return run_conv(geometry, q, scale, zero_point, weight, layer, 1.0, 0, dtype=torch.float32)


def product_shape(op: str, a: Tensor, b: Tensor) -> tuple[int, ...]:
    """The shape of ``a @ b``: matrices, or batches of them that broadcast."""
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"{op}: cannot multiply {tuple(a.shape)} with {tuple(b.shape)}: both need two dimensions or more, and the"
            " last of the first must be the last but one of the second"
        )
    try:
        same = a.shape[:-2] == b.shape[:-2]
        batch = a.shape[:-2] if same else torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError as error:
        raise ValueError(f"{op}: the batches of {tuple(a.shape)} and {tuple(b.shape)} do not broadcast") from error
    return (*batch, a.shape[-2], b.shape[-1])


def run_matmul(
    a: Tensor,
    a_scale: float,
    a_zero_point: int,
    b: Tensor,
    b_scale: float,
    b_zero_point: int,
    scale: float,
    zero_point: int,
) -> Tensor:
    """``a @ b`` on integers, ``(..., M, K)`` and ``(..., K, N)``, of the dtype of `a`; batches broadcast."""
    op = "matmul"
    for name, t in (("a", a), ("b", b)):
        checks.require_dtype(op, name, t.dtype, BYTES)
    y, a, columns, sizes = _matrices(op, a, b)
    _native.matmul(
        (a.data_ptr(), INTEGER_CODES[a.dtype], a_scale, a_zero_point),
        (columns.data_ptr(), INTEGER_CODES[b.dtype], b_scale, b_zero_point),
        sizes,
        _output(y, scale, zero_point),
    )
    return y


def run_matmul_dynamic(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` of floats that are quantized on the way, rows of `a` and columns of `b` each by their own range."""
    op = "matmul_dynamic"
    for name, t in (("a", a), ("b", b)):
        checks.require_dtype(op, name, t.dtype, (torch.float32,))
    y, a, columns, sizes = _matrices(op, a.detach(), b.detach())
    if a.shape[-1] == 0:
        raise ValueError(f"{op}: the inner dimension must not be 0, got shapes {tuple(a.shape)} and {tuple(b.shape)}")
    if y.numel():
        _native.matmul_dynamic(a.data_ptr(), columns.data_ptr(), sizes, y.data_ptr())
    return y


def _matrices(op: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, tuple[int, int, int, int]]:
    """Memory for ``a @ b``, `a` and the columns of `b` as contiguous matrices, and how many, rows, columns, depth."""
    shape = product_shape(op, a, b)
    batch = shape[:-2]
    columns = b.transpose(-1, -2)
    if a.shape[:-2] != batch:
        a = a.expand(*batch, *a.shape[-2:])
    if b.shape[:-2] != batch:
        columns = columns.expand(*batch, *columns.shape[-2:])
    sizes = (math.prod(batch), shape[-2], shape[-1], a.shape[-1])
    return torch.empty(shape, dtype=a.dtype), a.contiguous(), columns.contiguous(), sizes
