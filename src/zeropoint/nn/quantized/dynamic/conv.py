"""Convolutions on floats, quantized on the way in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.nn.quantized import conv as static
from zeropoint.nn.quantized.storage import float_layer, quantize_weight
from zeropoint.ops import layers, rounding
from zeropoint.tensor.recording import is_recorded


class _Dynamic(static._ConvNd):
    """What convolutions on floats share. Their `scale` and `zero_point` stay 1 and 0, and are not used."""

    _KIND = "DynamicQuantized"

    def __init_subclass__(cls, dims: int = 0, **kwargs: Any) -> None:
        super().__init_subclass__(dims, **kwargs)
        if "_FLOAT" in vars(cls):  # the name that torch.ao has for it
            cls._FLOAT_MODULE = cls._FLOAT[0]

    def forward(self, input: Tensor, reduce_range: bool | None = None) -> Tensor:
        """`input` convolved; `reduce_range`: quantize it to 7 bits, instead of what the layer was made with."""
        if reduce_range is None:
            reduce_range = self.reduce_range
        reduce_range = rounding.takes_7_bits(reduce_range, self._rounding)
        if torch.jit.is_scripting():
            return self._graph(input, reduce_range)
        else:
            return self._graph(input, reduce_range) if is_recorded() else self._eager(input, reduce_range)

    def _eager(self, x: Tensor, reduce_range: bool) -> Tensor:  # type: ignore[override]
        if self.padding_mode == "reflect":
            x = torch.nn.functional.pad(x, self._reflect, mode="reflect")
        return layers.run_conv_dynamic(self._geometry, x, self._weight_values, self._native_layer(), reduce_range)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The dynamically quantized layer of a float layer with a qconfig."""
        layer = float_layer(cls, mod, cls._FLOAT)
        weight = quantize_weight(layer.weight, cls._along_outputs(layer))
        return cls._of(static._convolution(mod), weight, layer.bias, 1.0, 0)

    @classmethod
    def from_reference(cls, ref_qconv: Any, output_scale: float = 1.0, output_zero_point: int = 0) -> Any:
        """The dynamically quantized layer of a reference layer; its output is float, so it has no scale."""
        return super().from_reference(ref_qconv, output_scale, output_zero_point)


def conv_graph(op: Any) -> Any:
    """The method `_graph` of a convolution that the operator `op` computes."""

    def _graph(self: Any, x: Tensor, reduce_range: bool) -> Tensor:
        if self.padding_mode == "reflect":
            x = torch.nn.functional.pad(x, self._reflect, mode="reflect")
        return op(
            x, self._weight_values, self._weight_scales, self._weight_zero_points, self._bias, self._stride,
            self._pads, self._dilation, self.groups, reduce_range,
        )  # fmt: skip

    return _graph


def conv_transpose_graph(op: Any) -> Any:
    """The same for a transposed one."""

    def _graph(self: Any, x: Tensor, reduce_range: bool) -> Tensor:
        return op(
            x, self._weight_values, self._weight_scales, self._weight_zero_points, self._bias, self._stride,
            self._pads, self._output_pads, self._dilation, self.groups, reduce_range,
        )  # fmt: skip

    return _graph


class _Conv(_Dynamic, static._Conv):
    """Convolutions that are not transposed."""

    _OPERATOR = "conv{}d_dynamic"
    _graph_of = staticmethod(conv_graph)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        reduce_range: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self.reduce_range = reduce_range


class Conv1d(_Conv, dims=1):
    """A convolution of floats ``(N, C, L)``; see `Conv2d`."""


class Conv2d(_Conv, dims=2):
    """A convolution of floats ``(N, C, H, W)``, quantized by their own range; arguments as for torch.nn.Conv2d.

    Args:
        reduce_range: quantize the input to 7 bits, as PyTorch does; no need of our kernels.

    Example:
        >>> import zeropoint
        >>> layer = Conv2d(1, 1, 3)
        >>> layer.set_weight_bias(zeropoint.quantize_per_tensor(torch.ones(1, 1, 3, 3), 0.5, 0, zeropoint.qint8), None)
        >>> layer(torch.ones(1, 1, 3, 3))
        tensor([[[[9.]]]])
    """


class Conv3d(_Conv, dims=3):
    """A convolution of floats ``(N, C, D, H, W)``; see `Conv2d`."""


class _ConvTranspose(_Dynamic, static._ConvTranspose):
    """Transposed convolutions."""

    _OPERATOR = "conv_transpose{}d_dynamic"
    _graph_of = staticmethod(conv_transpose_graph)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        reduce_range: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation,
            padding_mode, device, dtype,
        )  # fmt: skip
        self.reduce_range = reduce_range


class ConvTranspose1d(_ConvTranspose, dims=1):
    """A transposed convolution of floats ``(N, C, L)``; see `Conv2d`."""


class ConvTranspose2d(_ConvTranspose, dims=2):
    """A transposed convolution of floats ``(N, C, H, W)``; see `Conv2d`."""


class ConvTranspose3d(_ConvTranspose, dims=3):
    """A transposed convolution of floats ``(N, C, D, H, W)``; see `Conv2d`."""
