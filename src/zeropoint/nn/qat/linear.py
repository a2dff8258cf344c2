"""Linear layers in quantization-aware training."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zeropoint.nn import simulated_tensor
from zeropoint.nn.intrinsic.fused import LinearReLU
from zeropoint.nn.qat.trained import plain, require_float, require_qconfig, take_over


class Linear(nn.Linear):
    """A linear layer whose weight is fake-quantized: ``x @ fake_quantize(weight).T + bias``.

    Args:
        qconfig: its `weight` makes the fake quantization.

    Example:
        >>> import zeropoint
        >>> Linear(2, 3, qconfig=zeropoint.default_qat_qconfig).weight_fake_quant.fake_quant_enabled
        tensor([1], dtype=torch.uint8)
    """

    __constants__ = (*nn.Linear.__constants__, "_RELU")
    _FLOAT_MODULE = nn.Linear
    _RELU = False
    _TAKES_STANDING = True

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, qconfig: Any = None, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.qconfig = require_qconfig(type(self), qconfig)
        self.weight_fake_quant = qconfig.weight(factory_kwargs={"device": device, "dtype": dtype})

    def forward(self, input: Tensor) -> Tensor:
        if not torch.jit.is_scripting():
            input = simulated_tensor.plain(input)
        y = F.linear(input, self.weight_fake_quant(self.weight), self.bias)
        return F.relu(y) if self._RELU else y

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        """The layer in training of a float layer that has a qconfig; they share their parameters."""
        kinds = (cls._FLOAT_MODULE, nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear, LinearReLU)
        qconfig = require_float(cls, mod, *kinds)
        layer = mod[0] if isinstance(mod, nn.Sequential) else mod
        has_bias = layer.bias is not None
        made = cls(layer.in_features, layer.out_features, has_bias, qconfig=qconfig, device=layer.weight.device)
        return take_over(made, layer)

    def to_float(self) -> nn.Linear:
        """A float layer with copies of the parameters."""
        return plain(self, nn.Linear, self.in_features, self.out_features, self.bias is not None)
