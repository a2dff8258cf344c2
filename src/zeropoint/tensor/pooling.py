"""Pooling and means of QTensors. The result has the qparams, and the layout, of the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from zeropoint.ops.pooling import (
    are_columns,
    has_integer_mean,
    stored_adaptive_average_pool,
    stored_average_pool,
    stored_max_pool,
    stored_mean,
    stored_mean_of_columns,
    stored_mean_over,
)
from zeropoint.ops.rounding import QNNPACK, of_values
from zeropoint.tensor.errors import QTensorError
from zeropoint.tensor.qtensor import QTensor, implements
from zeropoint.tensor.quantizer import PerTensorQuantizer, is_plain
from zeropoint.tensor.recording import needs_dispatch, run

aten = torch.ops.aten


def per_tensor(name: str, q: QTensor) -> PerTensorQuantizer:
    """The qparams of `q`; refuses a per-channel tensor in the name of an operator."""
    quantizer = q._qparams.quantizer
    if isinstance(quantizer, PerTensorQuantizer):
        return quantizer
    raise QTensorError(
        f"{name} is defined for per-tensor quantization, this tensor is {q._quantizer.scheme.name} along axis"
        f" {quantizer.axis}: call .dequantize() first"
    )


def _max_pool(name: str, spatial: int) -> Any:
    def max_pool(
        q: QTensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> QTensor:
        per_tensor(name, q)
        values = run(stored_max_pool, q.values(), kernel_size, stride, padding, dilation, ceil_mode, spatial)
        return q.with_values(values)

    max_pool.__name__ = name
    return max_pool


class NoIndices(torch.Tensor):
    """In the place of indices that quantized pooling does not have, as PyTorch's had none: refuses every use."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, shape: torch.Size) -> NoIndices:
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.int64)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.squeeze.dim:  # max_pool1d pools in two dimensions and takes one away
            return NoIndices(torch.empty(args[0].shape, device="meta").squeeze(args[1]).shape)
        raise QTensorError(
            f"max pooling of a quantized tensor has no indices for {func}: pool q.dequantize() with"
            " return_indices=True instead"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"NoIndices(size={tuple(self.shape)})"

    def tolist(self) -> list[Any]:
        return self.clone().tolist()  # which refuses


def _with_indices(max_pool: Any) -> Any:
    # torch.max_pool2d arrives as this operator and drops the indices; whoever keeps them gets a tensor that refuses.
    def max_pool_with_indices(q: QTensor, *arguments: Any, **kwargs: Any) -> tuple[QTensor, torch.Tensor]:
        result = max_pool(q, *arguments, **kwargs)
        if is_plain(q._data):
            return result, NoIndices(result.shape)
        return result, torch.empty(result.shape, dtype=torch.int64, device="meta")

    max_pool_with_indices.__name__ = f"{max_pool.__name__}_with_indices"
    return max_pool_with_indices


max_pool1d = _max_pool("max_pool1d", 1)
max_pool2d = _max_pool("max_pool2d", 2)
max_pool3d = _max_pool("max_pool3d", 3)
implements(aten.max_pool1d.default)(max_pool1d)
implements(aten.max_pool2d.default)(max_pool2d)
implements(aten.max_pool3d.default)(max_pool3d)
implements(aten.max_pool2d_with_indices.default)(_with_indices(max_pool2d))
implements(aten.max_pool3d_with_indices.default)(_with_indices(max_pool3d))


def _avg_pool(name: str, spatial: int) -> Any:
    def avg_pool(
        q: QTensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> QTensor:
        quantizer = per_tensor(name, q)
        values = run(
            stored_average_pool,
            q.values(),
            kernel_size,
            stride,
            padding,
            ceil_mode,
            count_include_pad,
            divisor_override,
            quantizer.zero_point,
            q._qdtype.qmin,
            q._qdtype.qmax,
            spatial,
            quantizer.scale,
        )
        return q.with_values(values)

    avg_pool.__name__ = name
    return avg_pool


avg_pool2d = implements(aten.avg_pool2d.default)(_avg_pool("avg_pool2d", 2))
avg_pool3d = implements(aten.avg_pool3d.default)(_avg_pool("avg_pool3d", 3))


def _adaptive(name: str, q: QTensor, output_size: Sequence[int]) -> QTensor:
    quantizer, dtype = per_tensor(name, q), q._qdtype
    limits = dtype.qmin, dtype.qmax
    return q.with_values(
        run(stored_adaptive_average_pool, q.values(), output_size, quantizer.zero_point, *limits, quantizer.scale)
    )


@implements(aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(q: QTensor, output_size: Sequence[int]) -> QTensor:
    return _adaptive("adaptive_avg_pool2d", q, output_size)


@implements(aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool3d(q: QTensor, output_size: Sequence[int]) -> QTensor:
    return _adaptive("adaptive_avg_pool3d", q, output_size)


# adaptive_avg_pool2d to one place arrives as the mean over these axes, in this order. PyTorch's quantized pooling is
# rounded differently from its mean, so `QTensor.mean` never writes them so.
_AXES_OF_ADAPTIVE_POOLING = [-1, -2]


@implements(aten.mean.default)
def mean_all(q: QTensor, *, dtype: Any = None) -> QTensor:
    return mean(q, None, dtype=dtype)


@implements(aten.mean.dim)
def mean(q: QTensor, dims: Sequence[int] | None, keepdim: bool = False, *, dtype: Any = None) -> QTensor:
    quantizer = per_tensor("mean", q)
    if dtype not in (None, torch.float32):  # float32 is what a QTensor looks like to torch: no dtype was asked for
        q._refuse_dtype(f"mean(dtype={dtype})")
    rank = q.dim()
    axes = _axes(q, dims)
    if keepdim and rank in (3, 4) and list(dims or ()) == _AXES_OF_ADAPTIVE_POOLING:
        return adaptive_avg_pool2d(q, (1, 1))
    if rank == 4 and list(dims or ()) == [2, 3] and q._qdtype.name == "quint8" and of_values() == QNNPACK:
        pooled = adaptive_avg_pool2d(q, (1, 1)).contiguous()
        return pooled if keepdim else pooled.flatten(1)
    if not q.numel() and all(n for d, n in enumerate(q.shape) if d not in axes):
        raise QTensorError(f"mean over axes {axes} of shape {tuple(q.shape)} has no values to average")
    kind = q._qdtype
    if kind.bits == 8 and axes and not needs_dispatch(q._data):  # as below, without the way there
        values, limits = q._data, (kind.qmin, kind.qmax)
        if axes[0] == rank - len(axes) and values.is_contiguous():
            means = stored_mean(values, len(axes), *limits)
            return q.with_values(means.reshape(*means.shape, *(1,) * len(axes)) if keepdim else means)
        if not keepdim and are_columns(values, axes):
            means = stored_mean_of_columns(values, axes, quantizer.scale, quantizer.zero_point, *limits)
            return q.with_values(means.contiguous())
    if kind.bits == 8 and has_integer_mean(q.values(), axes):
        limits = kind.qmin, kind.qmax
        return q.with_values(
            run(stored_mean_over, q.values(), axes, keepdim, quantizer.scale, quantizer.zero_point, *limits)
        )
    values = q.values()
    innermost = not axes or (axes[-1] == rank - 1 and axes[0] == rank - len(axes))
    if innermost and values.is_contiguous():
        means = run(stored_mean, values, len(axes), kind.qmin, kind.qmax)
        return q.with_values(means.reshape(*means.shape, *(1,) * len(axes)) if keepdim else means)
    values = values.contiguous(memory_format=torch._prims_common.suggest_memory_format(values))
    floats = aten.mean.dim(quantizer.dequantize(values), axes, keepdim)
    return q.with_values(quantizer.quantize(floats, kind))


def _axes(q: QTensor, dims: Sequence[int] | None) -> list[int]:
    rank = q.dim()
    axes = sorted([d + rank if d < 0 else d for d in dims or range(rank)])
    if len(set(axes)) < len(axes) or (axes and not 0 <= axes[0] <= axes[-1] < max(rank, 1)):
        raise IndexError(f"mean: axes {list(dims or ())} are not different dimensions of shape {tuple(q.shape)}")
    return axes if rank else []


@implements(aten.as_strided_.default)
def as_strided_(q: QTensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> QTensor:
    # adaptive_avg_pool to one place sets the strides of its result, which has them already where they mean anything.
    moved = any(a != b for a, b, n in zip(stride, q.stride(), q.shape) if n > 1)
    if tuple(size) != tuple(q.shape) or moved or storage_offset not in (None, q.storage_offset()):
        raise QTensorError("as_strided_ cannot change a quantized tensor in place: use as_strided")
    return q
