"""Making QTensors: from floats, from integers, empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.fx import Proxy

from zeropoint.numerics.dtypes import DTYPES, QuantizedDtype, qint8, quantized_dtype, quint8
from zeropoint.numerics.packing import packed_columns
from zeropoint.numerics.qparams import dynamic_qparams
from zeropoint.ops import qtensor_storage, rounding
from zeropoint.tensor.errors import QTensorError
from zeropoint.tensor.qtensor import QTensor, from_values, settled
from zeropoint.tensor.quantizer import PerChannelQuantizer, PerTensorQuantizer, Quantizer
from zeropoint.tensor.recording import as_node, is_recorded


def _quantized(x: torch.Tensor, quantizer: Quantizer, kind: QuantizedDtype) -> QTensor:
    if isinstance(x, QTensor):
        raise TypeError("this tensor is already quantized: call .dequantize() first")
    if x.dtype != torch.float32:
        raise TypeError(f"only float32 tensors can be quantized, got {x.dtype}: call .float() first")
    quantizer.check(kind, x.shape)
    if type(x) is not torch.Tensor or x.requires_grad:
        x = x.detach()
    return from_values(quantizer.quantize(settled(x), kind), quantizer, kind)


def _holding(integers: torch.Tensor, quantizer: Quantizer, kind: QuantizedDtype) -> QTensor:
    quantizer.check(kind, integers.shape)
    return QTensor(integers.clone(), quantizer, kind)


def _make(x: torch.Tensor, quantizer: Quantizer, kind: QuantizedDtype) -> QTensor:
    return _quantized(x, quantizer, kind) if x.is_floating_point() else _holding(x, quantizer, kind)


qtensor_storage.MAKERS["per_tensor"] = lambda x, scale, zero_point, dtype: _make(
    x, PerTensorQuantizer(scale, zero_point), quantized_dtype(dtype)
)
qtensor_storage.MAKERS["per_channel"] = lambda x, scales, zero_points, axis, dtype: _make(
    x, PerChannelQuantizer.of(scales, zero_points, axis), quantized_dtype(dtype)
)


def quantize_per_tensor(
    input: torch.Tensor | Sequence[torch.Tensor], scale: Any, zero_point: Any, dtype: Any
) -> QTensor | tuple[QTensor, ...]:
    """Quantize a float tensor with one scale: ``q = clamp(rne(input / scale + zero_point))``.

    Args:
        input: float32 tensor of any shape; or a list of them, with as many scales and zero points in tensors.
        scale, zero_point: numbers, or tensors of one element.
        dtype: qint8, quint8, qint32, quint4x2 or quint2x4.

    Raises:
        ValueError: if the zero point is outside the dtype's range, or the scale zero or not finite.
        TypeError: if `input` is not float32.

    Example:
        >>> import zeropoint
        >>> quantize_per_tensor(torch.tensor([0.0, 1.0]), 0.5, 10, zeropoint.quint8).int_repr()
        tensor([10, 12], dtype=torch.uint8)
    """
    kind = quantized_dtype(dtype)
    if isinstance(input, Proxy):
        return as_node(quantize_per_tensor, input, scale, zero_point, kind.name)
    if isinstance(input, (list, tuple)):
        if not len(input) == len(scale) == len(zero_point):
            raise ValueError(
                f"a list of {len(input)} tensors needs the same number of scales and zero points, got {len(scale)} "
                f"and {len(zero_point)}"
            )
        return tuple(_per_tensor(x, s, z, kind) for x, s, z in zip(input, scale, zero_point))
    return _per_tensor(cast(torch.Tensor, input), scale, zero_point, kind)


def _per_tensor(x: torch.Tensor, scale: Any, zero_point: Any, kind: QuantizedDtype) -> QTensor:
    if is_recorded():
        return torch.ops.zeropoint.qtensor(x, float(scale), int(zero_point), kind.name)
    return _quantized(x, PerTensorQuantizer(float(scale), int(zero_point)), kind)


def _axis(x: torch.Tensor, axis: int) -> int:
    return axis + x.dim() if axis < 0 else axis


def quantize_per_channel(
    input: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor, axis: int, dtype: Any
) -> QTensor:
    """Quantize a float tensor with a scale for each index of `axis`.

    Args:
        input: float32 tensor of any shape.
        scales: ``(input.shape[axis],)``.
        zero_points: ``(input.shape[axis],)``, integer, or float (embedding tables; the only way for 4 and 2 bits).

    Example:
        >>> import zeropoint
        >>> x, scales = torch.ones(1, 2), torch.tensor([0.5, 0.25])
        >>> quantize_per_channel(x, scales, torch.tensor([0, 0]), 1, zeropoint.qint8).int_repr()
        tensor([[2, 4]], dtype=torch.int8)
    """
    kind = quantized_dtype(dtype)
    if isinstance(input, Proxy):
        return as_node(quantize_per_channel, input, scales, zero_points, axis, kind.name)
    if is_recorded():
        return torch.ops.zeropoint.qtensor_per_channel(input, scales, zero_points, _axis(input, axis), kind.name)
    return _quantized(input, PerChannelQuantizer.of(scales, zero_points, _axis(input, axis)), kind)


def quantize_per_tensor_dynamic(input: torch.Tensor, dtype: Any, reduce_range: bool = False) -> Any:
    """Quantize a float tensor with a scale computed from its range.

    Args:
        dtype: qint8 or quint8. With torch.float16, returns the tensor in float16, without a scale.
        reduce_range: use one bit less.

    Example:
        >>> import zeropoint
        >>> quantize_per_tensor_dynamic(torch.tensor([0.0, 2.55]), zeropoint.quint8).int_repr()
        tensor([  0, 255], dtype=torch.uint8)
    """
    if dtype == torch.float16:
        return input.to(torch.float16)
    kind = quantized_dtype(dtype)
    if kind not in (qint8, quint8):
        raise TypeError(f"dynamic quantization is defined for qint8 and quint8, got {kind.name}")
    if isinstance(input, Proxy):
        return as_node(quantize_per_tensor_dynamic, input, kind.name, reduce_range)
    qmin, qmax = kind.qmin, kind.qmax
    if rounding.takes_7_bits(reduce_range, rounding.of_values()):
        qmin, qmax = qmin // 2, qmax // 2
    return _per_tensor(input, *dynamic_qparams(input, qmin, qmax), kind)


def dequantize(input: Any) -> Any:
    """The float32 values of a QTensor, of a float16 tensor, or of each tensor in a list or tuple.

    Example:
        >>> import zeropoint
        >>> dequantize(zeropoint.quantize_per_tensor(torch.ones(2), 0.5, 0, zeropoint.qint8))
        tensor([1., 1.])
    """
    if isinstance(input, (list, tuple)):
        return tuple(dequantize(x) for x in input)
    if isinstance(input, Proxy):
        return as_node(dequantize, input)
    if isinstance(input, QTensor):
        return input.dequantize()
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"dequantize takes a tensor, or a list or tuple of tensors, got {type(input).__name__}")
    return input.to(torch.float32)


_OF_STORAGE = {kind.torch_storage: kind for kind in DTYPES.values() if kind.bits >= 8}


def _storage_dtype(int_tensor: torch.Tensor) -> QuantizedDtype:
    kind = _OF_STORAGE.get(int_tensor.dtype)
    if kind is None:
        raise TypeError(f"integers must be int8, uint8 or int32 to become a quantized tensor, got {int_tensor.dtype}")
    return kind


def make_per_tensor_quantized_tensor(int_tensor: torch.Tensor, scale: float, zero_point: int) -> QTensor:
    """A QTensor with a copy of these integers.

    Args:
        int_tensor: int8, uint8 or int32, any shape.

    Example:
        >>> make_per_tensor_quantized_tensor(torch.tensor([4], dtype=torch.uint8), 0.5, 2).dequantize()
        tensor([1.])
    """
    kind = _storage_dtype(int_tensor)
    if is_recorded():
        return torch.ops.zeropoint.qtensor(int_tensor, float(scale), int(zero_point), kind.name)
    return _holding(int_tensor, PerTensorQuantizer(float(scale), int(zero_point)), kind)


def make_per_channel_quantized_tensor(
    int_tensor: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor, axis: int
) -> QTensor:
    """A QTensor with a copy of these integers, and one scale for each index of `axis`.

    Example:
        >>> ints = torch.tensor([4, 4], dtype=torch.uint8)
        >>> make_per_channel_quantized_tensor(ints, torch.tensor([0.5, 1.0]), torch.tensor([2, 2]), 0).dequantize()
        tensor([1., 2.])
    """
    kind = _storage_dtype(int_tensor)
    axis = _axis(int_tensor, axis)
    if is_recorded():
        return torch.ops.zeropoint.qtensor_per_channel(int_tensor, scales, zero_points, axis, kind.name)
    return _holding(int_tensor, PerChannelQuantizer.of(scales, zero_points, axis), kind)


def empty(
    shape: Sequence[int], quantizer: Quantizer, kind: QuantizedDtype, device: Any = None, memory_format: Any = None
) -> QTensor:
    """A QTensor with memory but no values; packed memory is zero, so that its unused bits are."""
    quantizer.check(kind, torch.Size(shape))
    layout = memory_format or torch.contiguous_format
    if kind.bits >= 8:
        values = torch.empty(shape, dtype=kind.torch_storage, device=device, memory_format=layout)
        return QTensor(values, quantizer, kind)
    geometry = torch.empty(shape, device="meta", memory_format=layout)
    data = torch.zeros(packed_columns(geometry.numel(), kind.bits), dtype=torch.uint8, device=device)
    return QTensor(data, quantizer, kind, geometry.shape, geometry.stride())


def _shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size


def empty_affine_quantized(
    *size: Any, scale: float = 1.0, zero_point: int = 0, dtype: Any, device: Any = None, memory_format: Any = None
) -> QTensor:
    """An uninitialized QTensor.

    Example:
        >>> import zeropoint
        >>> empty_affine_quantized([2, 3], scale=0.5, zero_point=10, dtype=zeropoint.quint8).shape
        torch.Size([2, 3])
    """
    quantizer = PerTensorQuantizer(float(scale), int(zero_point))
    return empty(_shape(size), quantizer, quantized_dtype(dtype), device, memory_format)


def empty_per_channel_affine_quantized(
    *size: Any,
    scales: torch.Tensor,
    zero_points: torch.Tensor,
    axis: int,
    dtype: Any,
    device: Any = None,
    memory_format: Any = None,
) -> QTensor:
    """An uninitialized QTensor with one scale for each index of `axis`.

    Example:
        >>> import zeropoint
        >>> qparams = dict(scales=torch.ones(3), zero_points=torch.zeros(3, dtype=torch.int64), axis=1)
        >>> empty_per_channel_affine_quantized([2, 3], **qparams, dtype=zeropoint.qint8).q_per_channel_axis()
        1
    """
    shape = _shape(size)
    quantizer = PerChannelQuantizer.of(scales, zero_points, axis + len(shape) if axis < 0 else axis)
    if device is not None:
        quantizer = quantizer.to(torch.device(device))
    return empty(shape, quantizer, quantized_dtype(dtype), device, memory_format)


def empty_like(q: QTensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None) -> QTensor:
    """An uninitialized QTensor of the same shape, dtype and qparams. Does not support another dtype.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.ones(2), 0.5, 0, zeropoint.qint8)
        >>> empty_like(q).q_scale()
        0.5
    """
    if dtype is not None and quantized_dtype(dtype) != q._qdtype:
        raise QTensorError(f"empty_like of a {q._qdtype.name} tensor keeps its dtype, got dtype={dtype}")
    return torch.empty_like(q, device=device, memory_format=memory_format or torch.preserve_format)
