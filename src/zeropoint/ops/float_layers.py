"""Linear layers and convolutions of float32, for what a model leaves unquantized.

Each sum has one fixed order: it begins with the bias, and goes over the kernel's positions and, for each, over the
channels of the group, ``acc = fma(x[m][k], w[n][k], acc)``. So results depend neither on the CPU nor on threads, and
programs of the engine give the bytes of their graph. PyTorch's differ from them in the last bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.ops import checks
from zeropoint.ops.geometry import Geometry, known_geometry
from zeropoint.ops.layers import channels_inside, kept
from zeropoint.ops.library import operator


def _require(op: str, **tensors: Tensor | None) -> None:
    for name, t in tensors.items():
        if t is None:
            continue
        checks.require_dtype(op, name, t.dtype, (torch.float32,))
        if t.device.type != "cpu":
            raise NotImplementedError(f"{op}: {name} is on {t.device}, its kernels run on the CPU: call .cpu() first")


def _require_bias(op: str, bias: Tensor | None, weight: Tensor, outputs: int) -> None:
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise ValueError(
            f"{op}: bias has shape {tuple(bias.shape)}, but weight of shape {tuple(weight.shape)} has {outputs} output"
            " channels"
        )


def stored_weight(weight: Tensor, geometry: Geometry) -> Tensor:
    """A weight as the native core wants it: ``(out, depth, height, width, in / groups)``, transposed ones too.

    Example:
        >>> stored_weight(torch.ones(4, 2, 3), known_geometry("conv", 1, [1], [0], [1], 2)).shape
        torch.Size([4, 1, 1, 3, 2])
    """
    inputs, outputs = geometry.channels(weight)
    groups, spatial = geometry.groups, weight.shape[2:]
    if geometry.transposed:  # (in, out / groups, ...) -> (out, in / groups, ...)
        weight = weight.reshape(groups, inputs // groups, outputs // groups, *spatial)
        weight = weight.transpose(1, 2).reshape(outputs, inputs // groups, *spatial)
    return weight.reshape(outputs, inputs // groups, *geometry.kernel(weight)).movedim(1, -1).contiguous()


def _packed(geometry: Geometry, weight: Tensor, bias: Tensor | None) -> _native.FloatConvLayer:
    geometry.check_weight(weight)
    inputs, outputs = geometry.channels(weight)
    _require_bias(geometry.op, bias, weight, outputs)
    stored, added = stored_weight(weight.detach(), geometry), None if bias is None else bias.detach().contiguous()
    return _native.FloatConvLayer(
        stored.data_ptr(),
        (inputs, outputs, geometry.groups),
        geometry.kernel(weight),
        geometry.stride,
        geometry.padding,
        geometry.dilation,
        geometry.transposed,
        geometry.output_padding,
        0 if added is None else added.data_ptr(),
    )


# ------------------------------------------------------------------------------------------------------------ linear


def _product(input: Tensor, weight: Tensor) -> Tensor:
    if weight.dim() != 2 or input.dim() < 1 or input.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"float_linear: input of shape {tuple(input.shape)} does not fit weight of shape {tuple(weight.shape)}"
        )
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


@operator(fake=_product)
def float_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x w' + bias`` of ``(..., K)`` and ``(N, K)``, each sum in the order of K.

    Example:
        >>> float_linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([0.5]))
        tensor([[11.5000]])
    """
    _require("float_linear", input=input, weight=weight, bias=bias)
    y, x = _product(input, weight), input.detach().contiguous()
    if y.numel() == 0 or weight.shape[1] == 0:
        return y.zero_() if bias is None else y.copy_(bias.expand(y.shape))
    geometry = known_geometry("float_linear", 1, (1,), (0,), (1,), 1)
    layer = kept(weight, (bias,), lambda: _packed(geometry, weight.unsqueeze(-1), bias))
    layer.run(x.data_ptr(), y.numel() // weight.shape[0], (1, 1, 1), y.data_ptr())
    return y


# ------------------------------------------------------------------------------------------------------ convolutions


def _convolve(geometry: Geometry, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    _require(geometry.op, input=x, weight=weight, bias=bias)
    if x.dim() == geometry.dims + 1:
        return _convolve(geometry, x.unsqueeze(0), weight, bias).squeeze(0)
    y = channels_inside(geometry.known_output_size(x, weight), torch.float32)
    if y.numel():
        layer = kept(weight, (bias, geometry.key()), lambda: _packed(geometry, weight, bias))
        inner = x.detach().movedim(1, -1).contiguous()
        sizes = [1] * (3 - geometry.dims) + list(x.shape[2:])
        layer.run(inner.data_ptr(), x.shape[0], sizes, y.data_ptr())
    return y


def _convolved(geometry: Geometry, x: Tensor, weight: Tensor) -> Tensor:
    """A tensor as `_convolve` gives it."""
    if x.dim() == geometry.dims + 1:
        return _convolved(geometry, x.unsqueeze(0), weight).squeeze(0)
    batch, channels, *sizes = geometry.output_size(x, weight)
    return x.new_empty((batch, *sizes, channels)).movedim(-1, 1)


def _conv_geometry(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Geometry:
    dims = weight.dim() - 2
    if not 1 <= dims <= 3:
        raise ValueError(f"float_conv: weight must have 3 to 5 dimensions, got shape {tuple(weight.shape)}")
    return known_geometry("float_conv", dims, stride, padding, dilation, groups)


@operator(
    fake=lambda input, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), groups=1: _convolved(
        _conv_geometry(input, weight, bias, stride, padding, dilation, groups), input, weight
    )
)
def float_conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor:
    """A convolution of ``(N, C, ...)``, or of one image ``(C, ...)``, over 1 to 3 axes; channels are innermost.

    Example:
        >>> float_conv(torch.arange(5.0).reshape(1, 1, 5), torch.ones(1, 1, 3), padding=[1])
        tensor([[[1., 3., 6., 9., 7.]]])
    """
    return _convolve(_conv_geometry(input, weight, bias, stride, padding, dilation, groups), input, weight, bias)


def _transposed_geometry(
    weight: Tensor, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any
) -> Geometry:
    dims = weight.dim() - 2
    if not 1 <= dims <= 3:
        raise ValueError(f"float_conv_transpose: weight must have 3 to 5 dimensions, got shape {tuple(weight.shape)}")
    return known_geometry("float_conv_transpose", dims, stride, padding, dilation, groups, output_padding)


@operator(
    fake=lambda input, weight, bias=None, stride=(1,), padding=(0,), output_padding=(0,), groups=1, dilation=(1,): (
        _convolved(_transposed_geometry(weight, stride, padding, output_padding, groups, dilation), input, weight)
    )
)
def float_conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Tensor:
    """A transposed convolution; the weight is ``(in, out / groups, ...)``. Otherwise as `float_conv`.

    Example:
        >>> float_conv_transpose(torch.ones(1, 1, 3), torch.ones(1, 1, 2), stride=[2])
        tensor([[[1., 1., 1., 1., 1., 1.]]])
    """
    geometry = _transposed_geometry(weight, stride, padding, output_padding, groups, dilation)
    return _convolve(geometry, input, weight, bias)
