"""Any function of one value on quantized tensors."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.nn.quantized.storage import QuantizedOutput, output_qparams, quantized
from zeropoint.numerics.affine import BYTE_LIMITS
from zeropoint.tensor.qtensor import QTensor


class Function(QuantizedOutput):
    """A float module that computes each value by itself, on quantized tensors: 256 results, looked up. Floats it takes
    as they are, as in torch.ao, which leaves such modules alone.

    Args:
        function: the float module.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([-1.0, 3.0]), 0.25, 100, zeropoint.quint8)
        >>> Function(0.25, 100, nn.Softsign())(q).dequantize()
        tensor([-0.5000,  0.7500])
    """

    def __init__(self, scale: float, zero_point: int, function: nn.Module) -> None:
        super().__init__(scale, zero_point)
        self.function = function

    def _graph(self, x: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            is_float = not torch.ops.zeropoint.is_quantized(x)
        else:
            is_float = not isinstance(x, QTensor)
        if is_float:
            return self.function(x)
        floats = torch.ops.zeropoint.dequantize(x.int_repr(), x.q_scale(), x.q_zero_point())
        dtype = x.int_repr().dtype
        low, high = (0, 255) if dtype == torch.uint8 else (-128, 127)
        y = torch.ops.zeropoint.quantize_per_tensor(
            self.function(floats), self.scale, self.zero_point, low, high, dtype
        )
        return quantized(y, self.scale, self.zero_point)

    def _eager(self, x: Any) -> Any:
        if not isinstance(x, QTensor):
            return self.function(x)
        q = x.int_repr()
        if q.dtype not in BYTE_LIMITS:
            raise TypeError(f"{self._get_name()} takes quantized tensors of 8 bits, got {q.dtype}")
        limits = (*BYTE_LIMITS[q.dtype], q.dtype)
        every = torch.arange(256, dtype=torch.uint8).view(q.dtype)
        with torch.no_grad():
            floats = torch.ops.zeropoint.dequantize_per_tensor(every, x.q_scale(), x.q_zero_point(), *limits)
            results = self.function(floats)
            table = torch.ops.zeropoint.quantize_per_tensor(results, self.scale, self.zero_point, *limits)
        return quantized(torch.ops.zeropoint.lookup(q, table), self.scale, self.zero_point)

    def _get_name(self) -> str:
        return f"Quantized{type(self.function).__name__}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Function:
        """The quantized form of a float module that was calibrated."""
        return cls(*output_qparams(mod), _unobserved(mod))


def _unobserved(mod: nn.Module) -> nn.Module:
    """A copy of a calibrated module as it was before."""
    function = copy.deepcopy(mod)
    for name in ("activation_post_process", "qconfig"):
        if hasattr(function, name):
            delattr(function, name)
    function._forward_hooks.clear()
    function._forward_pre_hooks.clear()
    return function.eval()


class Dequantized(QuantizedOutput):
    """A float module on quantized tensors: they are dequantized, and its result is quantized; that of floats is not.

    Args:
        module: the float module.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([[1.0, 2.0]]), 0.25, 100, zeropoint.quint8)
        >>> Dequantized(0.25, 100, nn.Bilinear(2, 2, 1))(q, q).shape
        torch.Size([1, 1])
    """

    def __init__(self, scale: float, zero_point: int, module: nn.Module) -> None:
        super().__init__(scale, zero_point)
        self.module = module

    def forward(self, *inputs: Any) -> Any:
        first = next((x for x in inputs if isinstance(x, QTensor)), None)
        if first is None:
            return self.module(*inputs)
        dtype = first.int_repr().dtype
        floats = [_floats(x) if isinstance(x, QTensor) else x for x in inputs]
        q = torch.ops.zeropoint.quantize_per_tensor(
            self.module(*floats), self.scale, self.zero_point, *BYTE_LIMITS[dtype], dtype
        )
        return quantized(q, self.scale, self.zero_point)

    def _get_name(self) -> str:
        return f"Dequantized{type(self.module).__name__}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Dequantized:
        """The quantized form of a float module that was calibrated."""
        return cls(*output_qparams(mod), _unobserved(mod))


def _floats(x: QTensor) -> Tensor:
    return torch.ops.zeropoint.dequantize(x.int_repr(), x.q_scale(), x.q_zero_point())
