"""Attention with quantized linear layers."""

from __future__ import annotations

import copy
from typing import Any

from zeropoint.context import CONTEXT
from zeropoint.nn.quantizable import attention as quantizable
from zeropoint.nn.quantized.functional_modules import QFunctional


class MultiheadAttention(quantizable.MultiheadAttention):
    """Attention whose linear layers work on integers, from an observed `zeropoint.nn.quantizable.MultiheadAttention`.

    `bias_k` and `bias_v`, if there are any, stay float: what they are joined to is float32 at that place.

    Example:
        >>> import torch, zeropoint, zeropoint.eager
        >>> attention = torch.nn.MultiheadAttention(4, 2).eval()
        >>> attention.qconfig = zeropoint.default_qconfig
        >>> observed = quantizable.MultiheadAttention.from_float(attention)
        >>> x = torch.randn(5, 1, 4)
        >>> _ = observed(x, x, x)
        >>> quantized = MultiheadAttention.from_observed(observed)
        >>> q = zeropoint.quantize_per_tensor(x, 0.05, 128, zeropoint.quint8)
        >>> quantized(q, q, q)[0].shape
        torch.Size([5, 1, 4])
    """

    _FLOAT_MODULE: Any = quantizable.MultiheadAttention

    def _weights_wanted(self, need_weights: bool) -> bool:
        return need_weights

    def _get_name(self) -> str:
        return "QuantizedMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        """There is none: an attention is observed first."""
        raise NotImplementedError(
            "zeropoint.nn.quantized.MultiheadAttention is created from an observed module: call zeropoint.prepare "
            "on the model (it replaces nn.MultiheadAttention with zeropoint.nn.quantizable.MultiheadAttention), "
            "calibrate, then call zeropoint.convert"
        )

    @classmethod
    def from_observed(cls, other: Any) -> MultiheadAttention:
        """The quantized attention of a calibrated or trained `zeropoint.nn.quantizable.MultiheadAttention`."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise TypeError(
                f"{cls.__module__}.{cls.__name__}.from_observed takes an observed {cls._FLOAT_MODULE.__name__}, got a"
                f" {type(other).__name__}"
            )
        made: Any = copy.deepcopy(other)
        made.q_scaling_product = QFunctional()  # scales by a number, so nothing was observed
        made = CONTEXT.convert(made, inplace=True, remove_qconfig=True)
        made.__class__ = cls
        return made.eval().requires_grad_(False)
