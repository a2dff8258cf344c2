"""Quantize and DeQuantize modules: floats to quantized tensors, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.nn.quantized.storage import number_tensor, output_qparams
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.tensor.create import dequantize, quantize_per_tensor


class Quantize(nn.Module):
    """Floats to a quantized tensor with one scale and zero point.

    Example:
        >>> import zeropoint
        >>> Quantize(0.5, 10, zeropoint.quint8)(torch.tensor([0.0, 1.0])).int_repr()
        tensor([10, 12], dtype=torch.uint8)
    """

    __jit_unused_properties__ = ("scale", "zero_point")

    def __init__(self, scale: Any, zero_point: Any, dtype: Any, factory_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__()
        # Numbers, not buffers: code that is exported or compiled has them as constants.
        self._scale, self._zero_point = float(scale), int(zero_point)
        self.dtype = quantized_dtype(dtype)
        self._dtype_name = self.dtype.name

    @property
    def scale(self) -> Tensor:
        """``(1,)``, float32."""
        return torch.tensor([self._scale])

    @property
    def zero_point(self) -> Tensor:
        """``(1,)``, int64."""
        return torch.tensor([self._zero_point])

    def forward(self, X: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            return torch.ops.zeropoint.qtensor(X, self._scale, self._zero_point, self._dtype_name)
        else:
            return quantize_per_tensor(X, self._scale, self._zero_point, self.dtype)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = number_tensor(self._scale).reshape(1)
        destination[prefix + "zero_point"] = self.zero_point

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        _, strict, missing_keys, *_ = args
        for name, kind in (("scale", float), ("zero_point", int)):
            if prefix + name in state_dict:
                setattr(self, f"_{name}", kind(state_dict.pop(prefix + name)))
            elif strict:
                missing_keys.append(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, *args)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Quantize:
        """What a calibrated `QuantStub` becomes."""
        return Quantize(*output_qparams(mod), mod.activation_post_process.dtype)

    def extra_repr(self) -> str:
        return f"scale={self._scale}, zero_point={self._zero_point}, dtype={self.dtype}"


class DeQuantize(nn.Module):
    """A quantized tensor to floats.

    Example:
        >>> import zeropoint
        >>> DeQuantize()(zeropoint.quantize_per_tensor(torch.ones(2), 0.5, 0, zeropoint.quint8))
        tensor([1., 1.])
    """

    def forward(self, Xq: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            return torch.ops.zeropoint.dequantize(Xq)
        else:
            return dequantize(Xq)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        """What a `DeQuantStub` becomes."""
        return DeQuantize()
