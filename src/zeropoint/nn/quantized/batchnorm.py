"""Batch norm with fixed statistics on quantized tensors."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as FloatBatchNorm

from zeropoint import qfunctions
from zeropoint.nn.quantized.normalization import fixed
from zeropoint.nn.quantized.storage import QuantizedOutput, integers_of, output_qparams, quantized
from zeropoint.tensor.qtensor import QTensor


def batch_norm_graph(op: Any) -> Any:
    """The method `_graph` of a batch norm that the operator `op` computes."""

    def _graph(self: Any, x: Tensor) -> Tensor:
        y = op(
            *integers_of(x), self.weight, self.bias, self.running_mean, self.running_var,
            self.eps, self.scale, self.zero_point,
        )  # fmt: skip
        return quantized(y, self.scale, self.zero_point)

    return _graph


class _BatchNorm(QuantizedOutput, FloatBatchNorm):
    """What the batch norms share; see `BatchNorm2d`."""

    _NAME: ClassVar[str]
    _OP: ClassVar[Any]

    def __init__(
        self: Any, num_features: int, eps: float = 1e-5, momentum: float = 0.1, device: Any = None, dtype: Any = None
    ) -> None:
        FloatBatchNorm.__init__(self, num_features, eps, momentum, True, True, device=device, dtype=dtype)
        self.weight, self.bias = fixed(self.weight), fixed(self.bias)
        self.scale, self.zero_point = 1.0, 0

    def _get_name(self) -> str:
        return self._NAME

    def _eager(self, x: QTensor) -> QTensor:
        statistics = self.running_mean, self.running_var
        return self._OP(x, self.weight, self.bias, *statistics, self.eps, self.scale, self.zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The quantized batch norm of a float one, alone or fused with a ReLU, that was calibrated."""
        return cls.from_reference(mod, *output_qparams(mod))

    @classmethod
    def from_reference(cls, bn: Any, output_scale: float, output_zero_point: int) -> Any:
        """The quantized batch norm of a float one, for a result with this scale and zero point."""
        bn = bn[0] if isinstance(bn, nn.Sequential) else bn
        if bn.running_mean is None or bn.running_var is None:
            raise ValueError(
                f"{cls.__name__}: a quantized batch norm needs running statistics, but the float module has "
                "track_running_stats=False"
            )
        made = cls(bn.num_features, bn.eps)
        made.weight, made.bias = fixed(bn.weight), fixed(bn.bias)
        made.affine = bn.affine
        made.running_mean, made.running_var = bn.running_mean.detach().clone(), bn.running_var.detach().clone()
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made


class BatchNorm2d(_BatchNorm):
    """Batch norm of ``(N, C, H, W)`` with the statistics it was made with; the result has `scale` and `zero_point`.

    Example:
        >>> import zeropoint
        >>> layer = BatchNorm2d(1, eps=0.0)
        >>> layer.scale = 0.5
        >>> layer(zeropoint.quantize_per_tensor(torch.ones(1, 1, 1, 2), 0.1, 0, zeropoint.quint8)).int_repr()
        tensor([[[[2, 2]]]], dtype=torch.uint8)
    """

    _NAME = "QuantizedBatchNorm2d"
    _OP: ClassVar[Any] = staticmethod(qfunctions.batch_norm2d)
    _graph = batch_norm_graph(torch.ops.zeropoint.batch_norm2d)


class BatchNorm3d(_BatchNorm):
    """Batch norm of ``(N, C, D, H, W)``; see `BatchNorm2d`."""

    _NAME = "QuantizedBatchNorm3d"
    _OP: ClassVar[Any] = staticmethod(qfunctions.batch_norm3d)
    _graph = batch_norm_graph(torch.ops.zeropoint.batch_norm3d)
