"""Shape and layout of QTensors: views share the integers, copies do not, and the channel axis moves along."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from zeropoint.numerics.packing import packed_columns
from zeropoint.tensor.create import empty
from zeropoint.tensor.errors import QTensorError
from zeropoint.tensor.qtensor import HANDLERS, QTensor, floats, from_values, implements, is_dtype
from zeropoint.tensor.quantizer import PerChannelQuantizer, PerTensorQuantizer, Quantizer

aten = torch.ops.aten

# (parameters, the tensor before, the arguments of the operator) -> parameters of the result
AxisRule = Callable[..., Quantizer]


def _places(q: QTensor) -> torch.Tensor:
    """A tensor without data that has the geometry of packed `q`: bytes have no strides, so it answers for them."""
    size = q._data.numel() * q._qdtype.per_byte
    return torch.empty(size, device="meta").as_strided(q.size(), q.stride(), q.storage_offset())


def _at(q: QTensor, places: torch.Tensor, quantizer: Quantizer) -> QTensor:
    """Packed `q` seen with the geometry of `places`."""
    return q._view_of(q._data, quantizer, places.size(), places.stride(), places.storage_offset())


def _ruled(rule: AxisRule, q: QTensor, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> Quantizer:
    """The quantizer of a result: that of `q`, its axis moved by the rule."""
    quantizer = q._qparams.quantizer
    return rule(quantizer, q, *arguments, **kwargs) if type(quantizer) is PerChannelQuantizer else quantizer


def _view(operator: Any, rule: AxisRule) -> None:
    """Implement a view operator: the same integers, another geometry."""
    run = operator._op

    def view(q: QTensor, *arguments: Any, **kwargs: Any) -> QTensor:
        quantizer = _ruled(rule, q, arguments, kwargs)
        if q._qdtype.bits < 8:
            return _at(q, run(_places(q), *arguments, **kwargs), quantizer)
        return q._view_of(run(q._data, *arguments, **kwargs), quantizer)

    view.__name__ = str(operator)
    implements(operator)(view)


def _copy(operator: Any, rule: AxisRule) -> None:
    """Implement an operator that moves integers to new places and changes none of them."""
    run = operator._op

    def moved(q: QTensor, *arguments: Any, **kwargs: Any) -> QTensor:
        quantizer = _ruled(rule, q, arguments, kwargs)
        return from_values(run(q.values(), *arguments, **kwargs), quantizer, q._qdtype)

    moved.__name__ = str(operator)
    implements(operator)(moved)


def _dim(q: QTensor, dim: int) -> int:
    if not -q.dim() <= dim < max(q.dim(), 1):
        raise IndexError(f"dimension {dim} is out of range for a tensor of {q.dim()} dimensions")
    return dim % q.dim() if q.dim() else 0


# --------------------------------------------------------------------------------------- what happens to the axis


def _stays(p: PerChannelQuantizer, q: QTensor, *arguments: Any, **kwargs: Any) -> Quantizer:
    return p


def _per_tensor_only(name: str) -> AxisRule:
    def refuse(p: PerChannelQuantizer, q: QTensor, *arguments: Any, **kwargs: Any) -> Quantizer:
        raise QTensorError(
            f"{name} would mix the channels of a per-channel tensor (axis {p.axis}): call .dequantize() first"
        )

    return refuse


def _reshaped(p: PerChannelQuantizer, q: QTensor, shape: Sequence[int], *arguments: Any) -> Quantizer:
    """The axis survives a reshape if as many elements stand before it, and it keeps its length."""
    sizes = list(shape)
    if -1 in sizes:
        known = math.prod(s for s in sizes if s != -1)
        sizes[sizes.index(-1)] = q.numel() // known if known else 0
    before = math.prod(q.shape[: p.axis])
    for axis, size in enumerate(sizes):
        if size == q.shape[p.axis] and math.prod(sizes[:axis]) == before:
            return p.moved(axis)
    raise QTensorError(
        f"a per-channel tensor of shape {tuple(q.shape)} cannot be viewed as {tuple(shape)}: its channel axis {p.axis}"
        " would be split or merged; call .dequantize() first"
    )


def _unsqueezed(p: PerChannelQuantizer, q: QTensor, dim: int) -> Quantizer:
    dim = dim % (q.dim() + 1)
    return p.moved(p.axis + 1) if dim <= p.axis else p


def _squeezed(p: PerChannelQuantizer, q: QTensor, dims: int | Sequence[int] | None = None) -> Quantizer:
    if dims is None:
        wanted = list(range(q.dim()))
    else:
        wanted = [_dim(q, d) for d in ([dims] if isinstance(dims, int) else dims)]
    gone = [d for d in wanted if q.shape[d] == 1]
    if p.axis in gone:
        raise QTensorError(
            "Squeeze is only possible on non-axis dimension for Per-Channel Quantized Tensors:"
            f" axis {p.axis} of shape {tuple(q.shape)} carries the qparams"
        )
    return p.moved(p.axis - sum(d < p.axis for d in gone))


def _permuted(p: PerChannelQuantizer, q: QTensor, dims: Sequence[int]) -> Quantizer:
    moved = [d % q.dim() for d in dims].index(p.axis)
    if moved != p.axis:
        raise QTensorError(
            f"this would move the channel axis of a per-channel tensor from {p.axis} to {moved}, which quantized"
            " operators do not expect: call .dequantize() first, or quantize along the axis you need"
        )
    return p


def _transposed(p: PerChannelQuantizer, q: QTensor, dim0: int, dim1: int) -> Quantizer:
    order = list(range(q.dim()))
    a, b = _dim(q, dim0), _dim(q, dim1)
    order[a], order[b] = order[b], order[a]
    return _permuted(p, q, order)


def _expanded(p: PerChannelQuantizer, q: QTensor, size: Sequence[int], *, implicit: bool = False) -> Quantizer:
    moved = p.axis + len(size) - q.dim()
    if size[moved] not in (-1, q.shape[p.axis]):
        raise QTensorError(f"the channel axis {p.axis} of a per-channel tensor cannot be expanded to {size[moved]}")
    return p.moved(moved)


def _repeated(p: PerChannelQuantizer, q: QTensor, repeats: Sequence[int]) -> Quantizer:
    moved = p.axis + len(repeats) - q.dim()
    return PerChannelQuantizer(p.scales.repeat(repeats[moved]), p.zero_points.repeat(repeats[moved]), moved)


def _sliced(
    p: PerChannelQuantizer, q: QTensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Quantizer:
    return p.pick(slice(start, end, step)) if _dim(q, dim) == p.axis else p


def _selected(p: PerChannelQuantizer, q: QTensor, dim: int, index: int) -> Quantizer:
    dim = _dim(q, dim)
    if dim == p.axis:
        return p.channel(index)
    return p.moved(p.axis - 1) if dim < p.axis else p


def _index_selected(p: PerChannelQuantizer, q: QTensor, dim: int, index: torch.Tensor) -> Quantizer:
    return p.pick(index) if _dim(q, dim) == p.axis else p


def _flipped(p: PerChannelQuantizer, q: QTensor, dims: Sequence[int]) -> Quantizer:
    if p.axis in [_dim(q, d) for d in dims]:
        return PerChannelQuantizer(p.scales.flip(0), p.zero_points.flip(0), p.axis)
    return p


def _rolled(p: PerChannelQuantizer, q: QTensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Quantizer:
    for shift, dim in zip(shifts, dims):
        if _dim(q, dim) == p.axis:
            p = PerChannelQuantizer(p.scales.roll(shift), p.zero_points.roll(shift), p.axis)
    return p if dims else _per_tensor_only("roll without dims")(p, q)


def _indexed(p: PerChannelQuantizer, q: QTensor, indices: Sequence[torch.Tensor | None]) -> Quantizer:
    used = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(used) == 1 and used[0][1] is not None and used[0][1].dim() == 1:
        dim, index = used[0]
        return p.pick(index) if dim == p.axis else p
    return _per_tensor_only("indexing with several tensors")(p, q)


_view(aten.view.default, _reshaped)
_view(aten._unsafe_view.default, _reshaped)
_view(aten._reshape_alias.default, _reshaped)
_view(aten.alias.default, _stays)
_view(aten.detach.default, _stays)
_view(aten.unsqueeze.default, _unsqueezed)
_view(aten.squeeze.default, _squeezed)
_view(aten.squeeze.dim, _squeezed)
_view(aten.squeeze.dims, _squeezed)
_view(aten.permute.default, _permuted)
_view(aten.transpose.int, _transposed)
_view(aten.t.default, lambda p, q: _transposed(p, q, 0, 1) if q.dim() == 2 else p)
_view(aten.expand.default, _expanded)
_view(aten.slice.Tensor, _sliced)
_view(aten.select.int, _selected)
_view(aten.diagonal.default, _per_tensor_only("diagonal"))
_view(aten.unfold.default, _per_tensor_only("unfold"))
_view(aten.as_strided.default, _per_tensor_only("as_strided"))

_copy(aten.repeat.default, _repeated)
_copy(aten.index_select.default, _index_selected)
_copy(aten.index.Tensor, _indexed)
_copy(aten._unsafe_index.Tensor, _indexed)  # what compilers make of nearest interpolation
_copy(aten.flip.default, _flipped)
_copy(aten.roll.default, _rolled)
_copy(aten.rot90.default, _per_tensor_only("rot90"))
_copy(aten.gather.default, _per_tensor_only("gather"))
_copy(aten.take.default, _per_tensor_only("take"))
_copy(aten.masked_select.default, _per_tensor_only("masked_select"))
_copy(aten.clone.default, _stays)


def _parts(q: QTensor, dim: int, bounds: Sequence[tuple[int, int]]) -> list[QTensor]:
    """The slices of `q` between each start and end along `dim`."""
    slice_ = HANDLERS[aten.slice.Tensor]
    return [slice_(q, dim, start, end) for start, end in bounds]


@implements(aten.split.Tensor, aten.unsafe_split.Tensor)
def split(q: QTensor, size: int, dim: int = 0) -> list[QTensor]:
    length = q.shape[_dim(q, dim)]
    if size < 0 or (size == 0 and length):
        raise QTensorError(f"split needs a positive size, got {size}")
    return _parts(q, dim, [(at, min(at + size, length)) for at in range(0, max(length, 1), max(size, 1))])


@implements(aten.split_with_sizes.default, aten.unsafe_split_with_sizes.default)
def split_with_sizes(q: QTensor, sizes: Sequence[int], dim: int = 0) -> list[QTensor]:
    length = q.shape[_dim(q, dim)]
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise QTensorError(f"split sizes {list(sizes)} must add up to the {length} elements of dimension {dim}")
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return _parts(q, dim, [(end - size, end) for size, end in zip(sizes, ends)])


@implements(aten.unbind.int)
def unbind(q: QTensor, dim: int = 0) -> list[QTensor]:
    quantizer = q._quantizer
    if isinstance(quantizer, PerTensorQuantizer) and not q.is_packed():
        return [q._view_of(values, quantizer) for values in q._data.unbind(dim)]
    select = HANDLERS[aten.select.int]
    return [select(q, dim, i) for i in range(q.shape[_dim(q, dim)])]


def _joined(name: str, join: Callable[..., torch.Tensor], tensors: Sequence[Any], dim: int) -> QTensor:
    """Tensors joined, with the qparams of the first; the others are requantized where theirs differ."""
    first = next((t for t in tensors if isinstance(t, QTensor)), None)
    assert first is not None
    quantizer = first._quantizer
    every = []
    for t in tensors:
        if not isinstance(t, QTensor):
            raise QTensorError(
                f"{name} needs quantized tensors only, got a {t.dtype} tensor among them: quantize it first"
            )
        if t._qdtype != first._qdtype:
            raise QTensorError(f"{name} needs one dtype, got {first._qdtype.name} and {t._qdtype.name}")
        if not isinstance(t._quantizer, PerTensorQuantizer):
            raise QTensorError(f"Only per-tensor quantization is supported in '{name}'; call .dequantize() first")
        every.append(t.values() if t._quantizer == quantizer else _requantized(t, quantizer))
    return first.with_values(join(every, dim))


def _requantized(q: QTensor, quantizer: Quantizer) -> torch.Tensor:
    """The integers of `q` with other parameters: on 8 bits through a table."""
    p, dtype = q._quantizer, q._qdtype
    if dtype.bits != 8 or not isinstance(p, PerTensorQuantizer) or not isinstance(quantizer, PerTensorQuantizer):
        return quantizer.quantize(floats(q), dtype)
    step = p.scale, p.zero_point, quantizer.scale, quantizer.zero_point, dtype.qmin, dtype.qmax
    return torch.ops.zeropoint.stored_function(q.values(), "requantize", [], *step)


@implements(aten.cat.default)
def cat(tensors: Sequence[QTensor], dim: int = 0) -> QTensor:
    return _joined("cat", torch.cat, tensors, dim)


@implements(aten.stack.default)
def stack(tensors: Sequence[QTensor], dim: int = 0) -> QTensor:
    return _joined("stack", torch.stack, tensors, dim)


@implements(aten._to_copy.default)
def to_copy(q: QTensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **kwargs: Any) -> QTensor:
    if dtype not in (None, torch.float32):  # float32 is what a QTensor looks like to torch: no dtype was asked for
        q._refuse_dtype(f"to({dtype})")
    target = torch.device(device) if device is not None else q.device
    quantizer = q._quantizer.to(target)
    if q.is_packed() and q.numel() == q._qparams.elements and memory_format in (None, torch.preserve_format):
        return QTensor(q._data.to(target, copy=True), quantizer, q._qdtype, q.size(), q.stride(), q.storage_offset())
    values = aten._to_copy.default(q.values(), device=target, memory_format=memory_format)
    return from_values(values, quantizer, q._qdtype)


def _like(
    name: str, q: QTensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **kwargs: Any
) -> QTensor:
    if dtype is not None and not is_dtype(dtype, q._qdtype):
        raise QTensorError(
            f"{name} of a {q._qdtype.name} tensor keeps its dtype, got dtype={dtype}: use"
            " zeropoint.empty_affine_quantized for another one"
        )
    memory_format = memory_format or torch.preserve_format
    if not q.is_packed():
        values = torch.empty_like(q._data, device=device, memory_format=memory_format)
        return QTensor(values, q._quantizer.to(values.device), q._qdtype)
    places = torch.empty_like(_places(q), memory_format=memory_format)
    data = torch.zeros(packed_columns(q.numel(), q._qdtype.bits), dtype=torch.uint8, device=device or q.device)
    return QTensor(data, q._quantizer.to(data.device), q._qdtype, places.size(), places.stride())


@implements(aten.empty_like.default)
def empty_like(q: QTensor, **kwargs: Any) -> QTensor:
    return _like("empty_like", q, **kwargs)


@implements(aten.full_like.default)
def full_like(q: QTensor, value: Any, **kwargs: Any) -> QTensor:
    return _like("full_like", q, **kwargs).fill_(value)


@implements(aten.zeros_like.default)
def zeros_like(q: QTensor, **kwargs: Any) -> QTensor:
    return _like("zeros_like", q, **kwargs).fill_(0.0)


@implements(aten.ones_like.default)
def ones_like(q: QTensor, **kwargs: Any) -> QTensor:
    return _like("ones_like", q, **kwargs).fill_(1.0)


@implements(aten.new_empty.default)
def new_empty(q: QTensor, size: Sequence[int], *, dtype: Any = None, device: Any = None, **kwargs: Any) -> QTensor:
    if dtype is not None and not is_dtype(dtype, q._qdtype):
        q._refuse_dtype(f"new_empty(dtype={dtype})")
    device = torch.device(device) if device is not None else q.device
    return empty(size, q._quantizer.to(device), q._qdtype, device)


@implements(aten.new_full.default)
def new_full(q: QTensor, size: Sequence[int], value: Any, **kwargs: Any) -> QTensor:
    return new_empty(q, size, **kwargs).fill_(value)


@implements(aten.new_zeros.default)
def new_zeros(q: QTensor, size: Sequence[int], **kwargs: Any) -> QTensor:
    return new_empty(q, size, **kwargs).fill_(0.0)


@implements(aten.new_ones.default)
def new_ones(q: QTensor, size: Sequence[int], **kwargs: Any) -> QTensor:
    return new_empty(q, size, **kwargs).fill_(1.0)


@implements(aten.view.dtype)
def view_dtype(q: QTensor, dtype: Any) -> QTensor:
    if not is_dtype(dtype, q._qdtype):
        q._refuse_dtype(f"view({dtype})")
    return q


def resize(q: QTensor, *sizes: Any) -> QTensor:
    """The same elements in row-major order under another shape."""
    shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if math.prod(shape) != q.numel():
        raise QTensorError(
            f"requested resize to {'x'.join(map(str, shape))} ({math.prod(shape)} elements), but the tensor has"
            f" {q.numel()}: a quantized tensor keeps its elements"
        )
    return q.contiguous().view(shape)


@implements(aten.resize_.default)
def resize_(q: QTensor, size: Sequence[int], *, memory_format: Any = None) -> QTensor:
    if tuple(size) != tuple(q.shape):
        raise QTensorError("resize_ cannot change a quantized tensor in place: use resize, view or reshape")
    return q


QTensor.resize = resize
