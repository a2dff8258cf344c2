"""Classes that other packages derive their own layers in training from, with the arguments that torch.ao gives them."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.modules import conv as of_torch

from zeropoint.nn.intrinsic.fused import FusedModule
from zeropoint.nn.intrinsic.qat import batch_norm
from zeropoint.nn.qat import conv
from zeropoint.nn.qat.trained import folded, plain, require_float, require_qconfig, take_over

_BN_CLASS_MAP = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def _arguments(layer: Any) -> dict[str, Any]:
    more = {"output_padding": layer.output_padding} if layer.transposed else {}
    return {**conv.arguments_of(layer), **more}


class _ConvNd(conv._ConvNd, of_torch._ConvNd):
    """A convolution of any kind whose weight is fake-quantized; what derives from it names its `_FLOAT_MODULE`."""

    _FLOAT_CONV_MODULE: ClassVar[type[nn.Module]]
    _FLOAT_RELU_MODULE: ClassVar[type[nn.Module] | None] = None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        of_torch._ConvNd.__init__(
            self, in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding,
            groups, bias, padding_mode, device=device, dtype=dtype,
        )  # fmt: skip
        self.qconfig = require_qconfig(type(self), qconfig)
        self.weight_fake_quant = qconfig.weight(factory_kwargs={"device": device, "dtype": dtype})

    @staticmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:  # type: ignore[override]
        """The layer in training of a float layer that has a qconfig; they share their parameters."""
        qconfig = require_float(cls, mod, cls._FLOAT_MODULE)
        layer = mod[0] if isinstance(mod, nn.Sequential) else mod
        return take_over(cls(**_arguments(layer), qconfig=qconfig), layer)

    def to_float(self) -> Any:
        """A float layer with copies of the parameters; with a ReLU, if there is one, as a fused module."""
        cls = type(self)
        layer = plain(self, cls._FLOAT_CONV_MODULE, **_arguments(self))
        if cls._FLOAT_RELU_MODULE is None:
            return layer
        return cls._FLOAT_MODULE(layer, cls._FLOAT_RELU_MODULE())


class _ConvBnNd(batch_norm._ConvBnNd, of_torch._ConvNd, FusedModule):
    """A convolution of any kind with its batch norm; what derives from it names the classes of its parts."""

    _FLOAT_CONV_MODULE: ClassVar[type[nn.Module]]
    _FLOAT_RELU_MODULE: ClassVar[type[nn.Module] | None] = None
    _FUSED_FLOAT_MODULE: ClassVar[type[nn.Module]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        eps: float = 1e-05,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
        dim: int = 2,
    ) -> None:
        of_torch._ConvNd.__init__(
            self, in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding,
            groups, bool(bias), padding_mode,
        )  # fmt: skip
        self._add_batch_norm(_BN_CLASS_MAP[dim](out_channels, eps, momentum), qconfig, freeze_bn, None, None)

    def _forward(self, input: Tensor) -> Tensor:
        """The layer before a ReLU that a class derived from this one computes."""
        return batch_norm.WithBatchNorm.forward(self, input)

    @classmethod
    def _arguments(cls, conv: Any) -> dict[str, Any]:
        return _arguments(conv)

    def folded(self) -> tuple[Tensor, Tensor]:
        """Weight and bias with the batch norm in them."""
        return folded(self.weight, self.bias, self.bn, self.groups if self.transposed else 0)

    def to_float(self) -> Any:
        """A float convolution with the batch norm folded into it; with a ReLU, if there is one, as a fused module."""
        cls = type(self)
        layer = plain(self, cls._FLOAT_CONV_MODULE, **{**_arguments(self), "bias": True})
        weight, bias = self.folded()
        layer.weight, layer.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        if cls._FLOAT_RELU_MODULE is None:
            return layer
        return cls._FUSED_FLOAT_MODULE(layer, cls._FLOAT_RELU_MODULE()).train(self.training)
