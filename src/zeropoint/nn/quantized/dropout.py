"""Dropout in a quantized model, where it does nothing."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Dropout(nn.Dropout):
    """Hands its input on: quantized models are not trained.

    Example:
        >>> import torch, zeropoint
        >>> Dropout(0.5)(zeropoint.quantize_per_tensor(torch.ones(2), 0.5, 0, zeropoint.quint8)).dequantize()
        tensor([1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return input

    def _get_name(self) -> str:
        return "QuantizedDropout"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Dropout:
        """The same in a quantized model."""
        return cls(mod.p, mod.inplace)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Dropout:
        """The same in a quantized model; the result has the parameters of the input, not these."""
        return cls(mod.p, mod.inplace)
