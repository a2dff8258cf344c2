"""Convolutions whose weights are rounded to what quantization will make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from zeropoint.nn.quantized import conv as static
from zeropoint.nn.quantized.reference.weight import OneWeight, as_float


class _ConvNd(OneWeight):
    """What all convolutions share; see `reference.Linear`."""

    _FLOAT: ClassVar[tuple[type, ...]]

    def __init__(self, *args: Any, weight_qparams: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        kind: Any = self._FLOAT[0]
        kind.__init__(self, *args, **kwargs)
        self._init_weight_qparams(weight_qparams, kwargs.get("device"))

    @classmethod
    def from_float(
        cls, mod: Any, weight_qparams: Mapping[str, Any] | None = None, use_precomputed_fake_quant: bool = False
    ) -> Any:
        """The reference layer of a float layer; without `weight_qparams`, what its qconfig finds for the weight."""
        layer, qparams = cls._found(mod, weight_qparams)
        more = {"output_padding": mod.output_padding} if mod.transposed else {}
        made = cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, stride=mod.stride, padding=mod.padding,
            dilation=mod.dilation, groups=mod.groups, bias=layer.bias is not None, padding_mode=mod.padding_mode,
            device=layer.weight.device, weight_qparams=qparams, **more,
        )  # fmt: skip
        return made._take(layer)


class Conv1d(_ConvNd, nn.Conv1d):
    """A convolution with ``dequantize(quantize(weight))``; arguments as for torch.nn.Conv1d, and `weight_qparams`."""

    _FLOAT = (nn.Conv1d,)

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(as_float(x), self.get_weight(), self.bias)


class Conv2d(_ConvNd, nn.Conv2d):
    """A convolution with ``dequantize(quantize(weight))``; arguments as for torch.nn.Conv2d, and `weight_qparams`."""

    _FLOAT = (nn.Conv2d,)

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(as_float(x), self.get_weight(), self.bias)


class Conv3d(_ConvNd, nn.Conv3d):
    """A convolution with ``dequantize(quantize(weight))``; arguments as for torch.nn.Conv3d, and `weight_qparams`."""

    _FLOAT = (nn.Conv3d,)

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(as_float(x), self.get_weight(), self.bias)


class _ConvTransposeNd(_ConvNd):
    """Transposed convolutions: per channel means along axis 1, which has the output channels."""

    @classmethod
    def _observer(cls, layer: Any) -> Any:
        return static._ConvTranspose._along_outputs(layer)


class ConvTranspose1d(_ConvTransposeNd, nn.ConvTranspose1d):
    """A transposed convolution with ``dequantize(quantize(weight))``; arguments as for torch.nn.ConvTranspose1d."""

    _FLOAT = (nn.ConvTranspose1d,)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        x = as_float(x)
        more = self._output_padding(x, output_size, self.stride, self.padding, self.kernel_size, 1, self.dilation)
        return F.conv_transpose1d(
            x, self.get_weight(), self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )


class ConvTranspose2d(_ConvTransposeNd, nn.ConvTranspose2d):
    """A transposed convolution with ``dequantize(quantize(weight))``; arguments as for torch.nn.ConvTranspose2d."""

    _FLOAT = (nn.ConvTranspose2d,)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        x = as_float(x)
        more = self._output_padding(x, output_size, self.stride, self.padding, self.kernel_size, 2, self.dilation)
        return F.conv_transpose2d(
            x, self.get_weight(), self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )


class ConvTranspose3d(_ConvTransposeNd, nn.ConvTranspose3d):
    """A transposed convolution with ``dequantize(quantize(weight))``; arguments as for torch.nn.ConvTranspose3d."""

    _FLOAT = (nn.ConvTranspose3d,)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        x = as_float(x)
        more = self._output_padding(x, output_size, self.stride, self.padding, self.kernel_size, 3, self.dilation)
        return F.conv_transpose3d(
            x, self.get_weight(), self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )
