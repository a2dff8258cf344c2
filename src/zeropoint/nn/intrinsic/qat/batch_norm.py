"""Layers with their batch norm in quantization-aware training: what is trained is what the folded layer will compute.

The weight is fake-quantized with the batch norm's factor in it, ``w' = fake_quantize(w * factor)``, ``factor =
bn.weight / sqrt(bn.running_var + bn.eps)``, because that is the weight which is deployed.

- Statistics that change (training): the layer runs on `w'`, its result is divided by the factor again, and batch norm
  normalizes that by the statistics of the batch.
- Statistics that stand still (evaluation, or frozen): ``layer(x, w') + bias'`` with the batch norm folded into the
  bias, operation for operation the deployed layer.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zeropoint.nn import simulated_tensor
from zeropoint.nn.intrinsic import fused
from zeropoint.nn.qat.conv import arguments_of
from zeropoint.nn.qat.trained import along, folding_by, plain, require_float, require_qconfig, take_over


class FollowsBatches:
    """What has the statistics of a batch norm, which `freeze_bn_stats` and `update_bn_stats` stop and start."""

    def update_bn_stats(self) -> Any:
        raise NotImplementedError

    def freeze_bn_stats(self) -> Any:
        raise NotImplementedError


class WithBatchNorm(FollowsBatches):
    """The batch norm `bn` of a layer, and when its statistics change; goes before the layer's class."""

    _RELU: ClassVar[bool] = False
    _FLOAT_MODULE: ClassVar[type[nn.Module]]
    _TAKES_STANDING = True

    def _add_batch_norm(self: Any, bn: nn.Module, qconfig: Any, freeze_bn: bool, device: Any, dtype: Any) -> None:
        self.qconfig = require_qconfig(type(self), qconfig)
        self.freeze_bn = freeze_bn if self.training else True
        self.bn = bn
        self.weight_fake_quant = qconfig.weight(factory_kwargs={"device": device, "dtype": dtype})
        if freeze_bn:
            self.freeze_bn_stats()

    def _layer(self: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def forward(self: Any, input: Tensor) -> Tensor:
        if not torch.jit.is_scripting():
            input = simulated_tensor.plain(input)
        if self.bn.training or self.bn.running_var is None:
            y = self._in_training(input)
        else:
            weight, bias = self.folded()
            y = self._layer(input, self.weight_fake_quant(weight), bias)
        return F.relu(y) if self._RELU else y

    def _in_training(self: Any, x: Tensor) -> Tensor:
        bias, variance, scale = self.bias, self.bn.running_var, self.bn.weight
        assert variance is not None
        deviation = torch.sqrt(variance + self.bn.eps)
        factor = deviation.reciprocal() if scale is None else scale / deviation
        weight = self.weight_fake_quant(self.weight * along(self.weight, factor))
        y = self._layer(x, weight, None)
        channels = [1] * y.dim()
        channels[1] = -1
        y = y / factor.reshape(channels)
        if bias is not None:
            y = y + bias.reshape(channels)
        return self.bn(y)

    def folded(self: Any) -> tuple[Tensor, Tensor]:
        """Weight and bias with the batch norm in them."""
        mean, variance = self.bn.running_mean, self.bn.running_var
        assert mean is not None
        assert variance is not None
        factor, bias = folding_by(mean, variance, self.bn.eps, self.bn.weight, self.bn.bias, self.bias)
        return self.weight * along(self.weight, factor), bias

    # ------------------------------------------------------------------------------------------------ statistics

    def update_bn_stats(self: Any) -> Any:
        """Let the statistics follow the data again, in training."""
        self.freeze_bn = False
        self.bn.training = True
        return self

    def freeze_bn_stats(self: Any) -> Any:
        """Keep the statistics as they are, in training too."""
        self.freeze_bn = True
        self.bn.training = False
        return self

    def train(self: Any, mode: bool = True) -> Any:
        """As for every module, but frozen statistics stay so."""
        super().train(mode)  # type: ignore[misc]
        if self.freeze_bn:
            self.bn.training = False
        return self

    def reset_running_stats(self: Any) -> None:
        self.bn.reset_running_stats()

    def reset_bn_parameters(self: Any) -> None:
        self.bn.reset_parameters()

    # ------------------------------------------------------------------------------------------------ conversion

    @classmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer in training of a fused float layer that has a qconfig; they share their parameters."""
        qconfig = require_float(cls, mod, cls._FLOAT_MODULE)
        layer, bn = mod[0], mod[1]
        made = cls(
            **cls._arguments(layer), eps=bn.eps, momentum=bn.momentum, freeze_bn=False, qconfig=qconfig,
            device=layer.weight.device,
        )  # fmt: skip
        made.bn = bn
        take_over(made, layer)
        return made.train(mod.training)


class _ConvBnNd(WithBatchNorm):
    """A convolution and its batch norm."""

    __constants__ = (*nn.Conv2d.__constants__, "_RELU")
    _CONV: ClassVar[type[nn.Module]]
    _BN: ClassVar[type[nn.Module]]
    _version = 2

    def __init__(
        self: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: Any = None,
        padding_mode: str = "zeros",
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bool(bias), padding_mode,
            device=device, dtype=dtype,
        )  # fmt: skip
        bn = self._BN(out_channels, eps, momentum, device=device, dtype=dtype)
        self._add_batch_norm(bn, qconfig, freeze_bn, device, dtype)

    @classmethod
    def _arguments(cls, conv: Any) -> dict[str, Any]:
        return arguments_of(conv)

    def _layer(self: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._conv_forward(x, weight, bias)

    def to_float(self: Any) -> Any:
        """A float convolution with the batch norm folded into it; with a ReLU, if there is one, as a fused module."""
        conv = plain(self, self._CONV, **{**arguments_of(self), "bias": True})
        weight, bias = self.folded()
        conv.weight, conv.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        return _RELUS[self._CONV](conv, nn.ReLU()) if self._RELU else conv

    def _load_from_state_dict(self: Any, state_dict: Any, prefix: str, local_metadata: Any, *args: Any) -> None:
        if (local_metadata.get("version") or 1) < 2:  # the batch norm's entries were the layer's own
            names = {
                "gamma": "bn.weight",
                "beta": "bn.bias",
                "running_mean": "bn.running_mean",
                "running_var": "bn.running_var",
                "num_batches_tracked": "bn.num_batches_tracked",
            }
            for old, new in names.items():
                if prefix + old in state_dict:
                    state_dict[prefix + new] = state_dict.pop(prefix + old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)  # type: ignore[misc]


_RELUS: dict[type, Any] = {nn.Conv1d: fused.ConvReLU1d, nn.Conv2d: fused.ConvReLU2d, nn.Conv3d: fused.ConvReLU3d}


class ConvBn1d(_ConvBnNd, nn.Conv1d):
    """A one-dimensional convolution and its batch norm; see the module's text."""

    _CONV, _BN, _FLOAT_MODULE = nn.Conv1d, nn.BatchNorm1d, fused.ConvBn1d


class ConvBn2d(_ConvBnNd, nn.Conv2d):
    """A two-dimensional convolution and its batch norm; see the module's text.

    Example:
        >>> import zeropoint
        >>> layer = ConvBn2d(1, 2, 3, qconfig=zeropoint.default_qat_qconfig).eval()
        >>> weight, bias = layer.folded()
        >>> weight.shape, bias.shape
        (torch.Size([2, 1, 3, 3]), torch.Size([2]))
    """

    _CONV, _BN, _FLOAT_MODULE = nn.Conv2d, nn.BatchNorm2d, fused.ConvBn2d


class ConvBn3d(_ConvBnNd, nn.Conv3d):
    """A three-dimensional convolution and its batch norm; see the module's text."""

    _CONV, _BN, _FLOAT_MODULE = nn.Conv3d, nn.BatchNorm3d, fused.ConvBn3d


class ConvBnReLU1d(ConvBn1d):
    """`ConvBn1d` with a ReLU."""

    _RELU, _FLOAT_MODULE = True, fused.ConvBnReLU1d


class ConvBnReLU2d(ConvBn2d):
    """`ConvBn2d` with a ReLU."""

    _RELU, _FLOAT_MODULE = True, fused.ConvBnReLU2d


class ConvBnReLU3d(ConvBn3d):
    """`ConvBn3d` with a ReLU."""

    _RELU, _FLOAT_MODULE = True, fused.ConvBnReLU3d


class LinearBn1d(WithBatchNorm, nn.Linear):
    """A linear layer and its batch norm; see the module's text."""

    __constants__ = (*nn.Linear.__constants__, "_RELU")
    _FLOAT_MODULE = fused.LinearBn1d

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        nn.Linear.__init__(self, in_features, out_features, bias, device=device, dtype=dtype)
        bn = nn.BatchNorm1d(out_features, eps, momentum, device=device, dtype=dtype)
        self._add_batch_norm(bn, qconfig, freeze_bn, device, dtype)

    @classmethod
    def _arguments(cls, linear: Any) -> dict[str, Any]:
        return {
            "in_features": linear.in_features,
            "out_features": linear.out_features,
            "bias": linear.bias is not None,
        }

    def _layer(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    def to_float(self) -> nn.Linear:
        """A float layer with the batch norm folded into it."""
        linear = plain(self, nn.Linear, self.in_features, self.out_features, True)
        weight, bias = self.folded()
        linear.weight, linear.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        return linear


def update_bn_stats(mod: nn.Module) -> None:
    """Let the batch norm of `mod` follow the data; for ``model.apply``."""
    if isinstance(mod, FollowsBatches):
        mod.update_bn_stats()


def freeze_bn_stats(mod: nn.Module) -> None:
    """Keep the statistics of the batch norm of `mod`; for ``model.apply``."""
    if isinstance(mod, FollowsBatches):
        mod.freeze_bn_stats()
