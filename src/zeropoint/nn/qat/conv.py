"""Convolutions in quantization-aware training."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zeropoint.nn import simulated_tensor
from zeropoint.nn.intrinsic import fused
from zeropoint.nn.qat.trained import plain, require_float, require_qconfig, take_over


def arguments_of(conv: Any) -> dict[str, Any]:
    """What a convolution is made with."""
    names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")
    return {**{name: getattr(conv, name) for name in names}, "bias": conv.bias is not None}


class _ConvNd:
    """A convolution whose weight is fake-quantized; goes before torch's class."""

    __constants__ = (*nn.Conv2d.__constants__, "_RELU")
    _RELU: ClassVar[bool] = False
    _PLAIN: ClassVar[type[nn.Module]]
    _FLOAT_MODULE: ClassVar[type[nn.Module]]
    _SOURCES: ClassVar[tuple[type, ...]]
    _TAKES_STANDING = True

    def __init__(
        self: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
            device=device, dtype=dtype,
        )  # type: ignore[call-arg]  # fmt: skip
        self.qconfig = require_qconfig(type(self), qconfig)
        self.weight_fake_quant = qconfig.weight(factory_kwargs={"device": device, "dtype": dtype})

    def forward(self: Any, input: Tensor) -> Tensor:
        if not torch.jit.is_scripting():
            input = simulated_tensor.plain(input)
        y = self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)
        return F.relu(y) if self._RELU else y

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer in training of a float layer that has a qconfig; they share their parameters."""
        qconfig = require_float(cls, mod, cls._FLOAT_MODULE, *cls._SOURCES)
        layer = mod[0] if isinstance(mod, nn.Sequential) else mod
        return take_over(cls(**arguments_of(layer), qconfig=qconfig, device=layer.weight.device), layer)

    def to_float(self: Any) -> Any:
        """A float layer with copies of the parameters."""
        return plain(self, self._PLAIN, **arguments_of(self))


class Conv1d(_ConvNd, nn.Conv1d):
    """torch.nn.Conv1d whose weight is fake-quantized by what `qconfig.weight` makes."""

    _PLAIN = _FLOAT_MODULE = nn.Conv1d
    _SOURCES = (nn.Conv1d, fused.ConvReLU1d)


class Conv2d(_ConvNd, nn.Conv2d):
    """torch.nn.Conv2d whose weight is fake-quantized by what `qconfig.weight` makes.

    Example:
        >>> import torch, zeropoint
        >>> Conv2d(1, 2, 3, qconfig=zeropoint.default_qat_qconfig)(torch.ones(1, 1, 3, 3)).shape
        torch.Size([1, 2, 1, 1])
    """

    _PLAIN = _FLOAT_MODULE = nn.Conv2d
    _SOURCES = (nn.Conv2d, fused.ConvReLU2d)


class Conv3d(_ConvNd, nn.Conv3d):
    """torch.nn.Conv3d whose weight is fake-quantized by what `qconfig.weight` makes."""

    _PLAIN = _FLOAT_MODULE = nn.Conv3d
    _SOURCES = (nn.Conv3d, fused.ConvReLU3d)
