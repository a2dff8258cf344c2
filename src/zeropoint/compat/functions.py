"""Functions of `torch` that zeropoint spells otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.numerics.qparams import dynamic_qparams
from zeropoint.ops import rounding
from zeropoint.qfunctions import batch_norm
from zeropoint.tensor.create import empty
from zeropoint.tensor.qtensor import QTensor


def reading(name: str) -> Any:
    """A function that calls method `name` of its argument."""

    def read(input: Tensor) -> Any:
        return getattr(input, name)()

    read.__name__ = read.__qualname__ = name
    read.__doc__ = f"``input.{name}()``."
    return read


int_repr = reading("int_repr")
q_scale = reading("q_scale")
q_zero_point = reading("q_zero_point")
q_per_channel_axis = reading("q_per_channel_axis")
q_per_channel_scales = reading("q_per_channel_scales")
q_per_channel_zero_points = reading("q_per_channel_zero_points")


def empty_quantized(
    size: Sequence[int], qtensor: QTensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None
) -> QTensor:
    """A QTensor of this size with the qparams of another one, and no values yet.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.ones(2), 0.5, 0, zeropoint.qint8)
        >>> empty_quantized([3, 4], q).q_scale()
        0.5
    """
    kind = qtensor._qdtype if dtype is None else quantized_dtype(dtype)
    return empty(size, qtensor._quantizer, kind, device or qtensor.device, memory_format)


def _choose_qparams_per_tensor(input: Tensor, reduce_range: bool = False) -> tuple[float, int]:
    """Scale and zero point that the range of `input` asks for, in quint8.

    Example:
        >>> _choose_qparams_per_tensor(torch.tensor([0.0, 255.0]))
        (1.0, 0)
    """
    return dynamic_qparams(input, 0, 127 if rounding.takes_7_bits(reduce_range, rounding.of_values()) else 255)


def quantized_batch_norm(
    input: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """`zeropoint.qfunctions.batch_norm`."""
    return batch_norm(input, weight, bias, mean, var, eps, output_scale, output_zero_point)


def _pooling(name: str) -> Any:
    def pool(
        input: QTensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Tensor:
        return getattr(torch, name)(input, kernel_size, stride or kernel_size, padding, dilation, ceil_mode)

    pool.__name__ = pool.__qualname__ = f"quantized_{name}"
    pool.__doc__ = f"``torch.{name}`` of a quantized tensor."
    return pool


quantized_max_pool1d, quantized_max_pool2d, quantized_max_pool3d = (_pooling(f"max_pool{d}d") for d in (1, 2, 3))


def _fake_quantize_learnable_per_tensor_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    """`torch.ops.zeropoint.fake_quantize_learnable_per_tensor_affine`."""
    return torch.ops.zeropoint.fake_quantize_learnable_per_tensor_affine(
        input, scale, zero_point, quant_min, quant_max, grad_factor
    )


def _fake_quantize_learnable_per_channel_affine(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """`torch.ops.zeropoint.fake_quantize_learnable_per_channel_affine`."""
    return torch.ops.zeropoint.fake_quantize_learnable_per_channel_affine(
        input, scale, zero_point, axis, quant_min, quant_max, grad_factor
    )
