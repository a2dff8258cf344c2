"""Layer, group and instance norm on quantized tensors."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zeropoint import qfunctions
from zeropoint.nn.quantized.storage import CalibratedOutput, integers_of, quantized
from zeropoint.tensor.qtensor import QTensor


def fixed(t: Tensor | None) -> nn.Parameter | None:
    """A copy of a float parameter that is not trained any more."""
    return None if t is None else nn.Parameter(t.detach().clone(), requires_grad=False)


class _Norm(CalibratedOutput):
    """What the norms share."""

    def _keep(self: Any, weight: Tensor | None, bias: Tensor | None, scale: float, zero_point: int) -> None:
        self.weight, self.bias = fixed(weight), fixed(bias)
        self._set(scale, zero_point)


class LayerNorm(_Norm, nn.LayerNorm):
    """torch.nn.LayerNorm whose result is quantized with `scale` and `zero_point`.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[1.0, 3.0]]), 0.5, 10, zeropoint.quint8)
        >>> LayerNorm(2, None, None, 0.25, 100, eps=0.0)(x).dequantize()
        tensor([[-1.,  1.]])
    """

    _NAME = "QuantizedLayerNorm"

    def __init__(
        self, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, scale: float, zero_point: int,
        eps: float = 1e-5, elementwise_affine: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        nn.LayerNorm.__init__(self, normalized_shape, eps, elementwise_affine, device=device, dtype=dtype)
        self._shape = list(self.normalized_shape)  # as the operator takes it
        self._keep(weight, bias, scale, zero_point)

    def _graph(self, x: Tensor) -> Tensor:
        y = torch.ops.zeropoint.layer_norm(
            *integers_of(x), self._shape, self.weight, self.bias, self.eps, self.scale,
            self.zero_point,
        )  # fmt: skip
        return quantized(y, self.scale, self.zero_point)

    def _eager(self, x: QTensor) -> QTensor:
        return qfunctions.layer_norm(x, self._shape, self.weight, self.bias, self.eps, self.scale, self.zero_point)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> LayerNorm:
        return cls(mod.normalized_shape, mod.weight, mod.bias, scale, zero_point, mod.eps, mod.elementwise_affine)


class GroupNorm(_Norm, nn.GroupNorm):
    """torch.nn.GroupNorm whose result is quantized with `scale` and `zero_point`.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[1.0, 3.0, 5.0, 9.0]]), 0.5, 10, zeropoint.quint8)
        >>> GroupNorm(2, 4, None, None, 0.25, 100, eps=0.0)(x).dequantize()
        tensor([[-1.,  1., -1.,  1.]])
    """

    _NAME = "QuantizedGroupNorm"

    def __init__(
        self, num_groups: int, num_channels: int, weight: Tensor | None, bias: Tensor | None, scale: float,
        zero_point: int, eps: float = 1e-5, affine: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        nn.GroupNorm.__init__(self, num_groups, num_channels, eps, affine, device=device, dtype=dtype)
        self._keep(weight, bias, scale, zero_point)

    def _graph(self, x: Tensor) -> Tensor:
        y = torch.ops.zeropoint.group_norm(
            *integers_of(x), self.num_groups, self.weight, self.bias, self.eps, self.scale,
            self.zero_point,
        )  # fmt: skip
        return quantized(y, self.scale, self.zero_point)

    def _eager(self, x: QTensor) -> QTensor:
        return qfunctions.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, self.scale, self.zero_point)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> GroupNorm:
        return cls(mod.num_groups, mod.num_channels, mod.weight, mod.bias, scale, zero_point, mod.eps, mod.affine)


class _InstanceNorm(_Norm):
    """What the instance norms share; see `InstanceNorm2d`."""

    _FLOAT: ClassVar[Any]
    _DIMS: ClassVar[int]

    def __init__(
        self: Any, num_features: int, weight: Tensor | None, bias: Tensor | None, scale: float, zero_point: int,
        eps: float = 1e-5, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        options = {"device": device, "dtype": dtype}
        self._FLOAT.__init__(self, num_features, eps, momentum, affine, track_running_stats, **options)
        self._keep(weight, bias, scale, zero_point)

    def _graph(self: Any, x: Tensor) -> Tensor:
        y = torch.ops.zeropoint.instance_norm(
            *integers_of(x), self.weight, self.bias, self.eps, self.scale, self.zero_point
        )
        return quantized(y, self.scale, self.zero_point)

    def _eager(self: Any, x: QTensor) -> QTensor:
        if x.dim() != self._DIMS + 2:
            raise ValueError(f"{self._NAME}: input must have {self._DIMS + 2} dimensions, got shape {tuple(x.shape)}")
        return qfunctions.instance_norm(x, self.weight, self.bias, self.eps, self.scale, self.zero_point)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        if mod.track_running_stats:
            raise NotImplementedError(
                f"{cls.__name__}: the quantized module normalizes with the statistics of its input, but this one "
                "has track_running_stats=True: use a batch norm, or set its qconfig to None"
            )
        weight, bias = mod.weight, mod.bias
        return cls(mod.num_features, weight, bias, scale, zero_point, mod.eps, mod.momentum, mod.affine)


class InstanceNorm1d(_InstanceNorm, nn.InstanceNorm1d):
    """torch.nn.InstanceNorm1d of ``(N, C, L)``; see `InstanceNorm2d`."""

    _FLOAT, _DIMS, _NAME = nn.InstanceNorm1d, 1, "QuantizedInstanceNorm1d"


class InstanceNorm2d(_InstanceNorm, nn.InstanceNorm2d):
    """torch.nn.InstanceNorm2d whose result is quantized with `scale` and `zero_point`.

    Example:
        >>> import zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[[[1.0, 3.0]]]]), 0.5, 10, zeropoint.quint8)
        >>> InstanceNorm2d(1, None, None, 0.25, 100, eps=0.0)(x).dequantize()
        tensor([[[[-1.,  1.]]]])
    """

    _FLOAT, _DIMS, _NAME = nn.InstanceNorm2d, 2, "QuantizedInstanceNorm2d"


class InstanceNorm3d(_InstanceNorm, nn.InstanceNorm3d):
    """torch.nn.InstanceNorm3d of ``(N, C, D, H, W)``; see `InstanceNorm2d`."""

    _FLOAT, _DIMS, _NAME = nn.InstanceNorm3d, 3, "QuantizedInstanceNorm3d"
