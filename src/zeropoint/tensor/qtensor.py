"""QTensor: integers and their quantization parameters behind torch.Tensor's interface."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from types import EllipsisType, NoneType
from typing import Any, NoReturn

import torch

from zeropoint.context import CONTEXT
from zeropoint.numerics.blocks import CHANNELS_LAST, is_dense
from zeropoint.numerics.dtypes import QuantizedDtype, quantized_dtype
from zeropoint.numerics.packing import packed_columns
from zeropoint.numerics.schemes import QScheme
from zeropoint.ops import reading as _reading  # noqa: F401 (registers the operators that are answered below)
from zeropoint.ops.qtensor_storage import stored_dequantize
from zeropoint.tensor.errors import QTensorError
from zeropoint.tensor.quantizer import PerChannelQuantizer, PerTensorQuantizer, Quantizer
from zeropoint.tensor.recording import explain_dtypes_to_dynamo, is_watched, run_as_it_is

Handler = Callable[..., Any]

# aten operator -> its implementation for QTensors; filled by the modules of this package.
HANDLERS: dict[Any, Handler] = {}

_make_wrapper = torch.Tensor._make_wrapper_subclass
_FLOAT, _STRIDED = torch.float32, torch.strided
_is_inference, _NORMAL_MODE = torch.is_inference_mode_enabled, torch._C._InferenceMode
_MEAN = torch.ops.aten.mean.dim
_BASIC_INDICES = frozenset((int, slice, EllipsisType, NoneType))


def implements(*operators: Any) -> Callable[[Handler], Handler]:
    """Register a function as the QTensor implementation of aten operators; each may have one.

    @implements(torch.ops.aten.relu.default)
    def relu(q: QTensor) -> QTensor: ...
    """

    def register(function: Handler) -> Handler:
        for operator in operators:
            if operator in HANDLERS:
                raise ValueError(f"{operator} has a QTensor implementation already: {HANDLERS[operator].__name__}")
            HANDLERS[operator] = function
        return function

    return register


class QParams:
    """The quantization parameters of some memory, held once for a tensor and for all views that have the same ones.

    So that a tensor which takes over other parameters (`copy_`, `load_state_dict`) takes its views along.
    `elements` is how many elements the memory has: a smaller view may not change what they all mean.
    """

    __slots__ = ("elements", "quantizer")

    def __init__(self, quantizer: Quantizer, elements: int) -> None:
        self.quantizer = quantizer
        self.elements = elements


def _wrap(
    data: torch.Tensor,
    dtype: QuantizedDtype,
    qparams: QParams,
    size: torch.Size | None = None,
    stride: tuple[int, ...] | None = None,
    offset: int = 0,
) -> QTensor:
    """A QTensor over these integers, whole: none is seen that lacks a part."""
    # For types of a byte or more the integers have the geometry; packed bytes are flat, so it is given.
    if size is None:
        size, stride, offset = data.shape, data.stride(), data.storage_offset()
    # By position, as keywords cost a quarter more: size, strides, storage_offset, memory_format, dtype, layout, device,
    # pin_memory, requires_grad, two dispatch policies, layout dispatch, keys, storage_size. The storage is said to have
    # no bytes because it has none: C++ that writes a storage to a file (torch.jit.save) would follow a null pointer
    # otherwise, and take the process along.
    arguments = (
        QTensor, size, stride, offset, None, _FLOAT, _STRIDED, data.device,
        False, False, None, False, False, None, 0,
    )  # fmt: skip
    # It is never an inference tensor: torch's views of a tensor made outside inference mode could not be made in it.
    if _is_inference():
        with _NORMAL_MODE(False):
            q = _make_wrapper(*arguments)
    else:
        q = _make_wrapper(*arguments)
    q._data = data
    q._qdtype = dtype
    q._qparams = qparams
    return q


run_as_it_is(_wrap)  # torch.compile would stop halfway, and go on with a QTensor that lacks a part


class QTensor(torch.Tensor):
    """A tensor of integers that represent floats: ``x = (q - zero_point) * scale``.

    Created by `zeropoint.quantize_per_tensor` and similar functions. The integers are an ordinary tensor of the same
    shape and layout (sub-byte types: all values packed flat into bytes), so views, slices and `int_repr` share memory
    with it. Operations without a quantized version raise an error; a QTensor is never dequantized implicitly.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 10, zeropoint.quint8)
        >>> q.int_repr(), q.dequantize()
        (tensor([11, 12], dtype=torch.uint8), tensor([0.5000, 1.0000]))
    """

    _data: torch.Tensor
    _qparams: QParams
    _qdtype: QuantizedDtype

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(
        cls,
        data: torch.Tensor,
        quantizer: Quantizer,
        dtype: QuantizedDtype,
        size: torch.Size | None = None,
        stride: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> QTensor:
        elements = data.numel() if size is None else torch.Size(size).numel()
        return _wrap(data, dtype, QParams(quantizer, elements), size, stride, offset)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        handler = HANDLERS.get(func)
        if handler is not None:
            return handler(*args, **kwargs) if kwargs else handler(*args)
        if func._can_decompose():
            return func.decompose(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if torch.Tag.inplace_view in func.tags:
            raise NotImplementedError(
                f"{func} would change the shape of a quantized tensor in place: use {name.removesuffix('_')}, "
                "which returns a view"
            )
        why = f"{func} is not defined for quantized tensors: call .dequantize() first, or quantize its result again"
        if CONTEXT.says_backend:
            known = name.removeprefix("_").partition("_legit")[0]  # PyTorch's older name of such an operator
            why = f"Could not run 'aten::{known}' with arguments from the 'QuantizedCPU' backend: {why}"
        raise NotImplementedError(why)

    # ------------------------------------------------------------------------------------------------- making

    @property
    def _quantizer(self) -> Quantizer:
        return self._qparams.quantizer

    def with_values(self, values: torch.Tensor, quantizer: Quantizer | None = None) -> QTensor:
        """A QTensor of the same dtype with these integers (one in each element)."""
        return from_values(values, quantizer or self._qparams.quantizer, self._qdtype)

    def _view_of(
        self,
        data: torch.Tensor,
        quantizer: Quantizer,
        size: torch.Size | None = None,
        stride: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> QTensor:
        """A QTensor over memory of this one, with other geometry. It shares the qparams too, if they are the same."""
        shared = self._qparams
        qparams = shared if quantizer is shared.quantizer else QParams(quantizer, -1)
        return _wrap(data, self._qdtype, qparams, size, stride, offset)

    # ------------------------------------------------------------------------------------------------ reading

    @property
    def qdtype(self) -> QuantizedDtype:
        """The storage dtype: qint8, quint8, qint32, quint4x2 or quint2x4. `dtype` is the dtype of the represented
        values.

        Example:
            >>> import zeropoint
            >>> q = zeropoint.quantize_per_tensor(torch.ones(3), 1.0, 2, zeropoint.quint8)
            >>> q.qdtype, q.dtype
            (zeropoint.quint8, torch.float32)
        """
        return self._qdtype

    @property
    def requires_grad(self) -> bool:
        return False

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def is_packed(self) -> bool:
        """Whether several values share a byte."""
        return self._qdtype.bits < 8

    def _packed_part(self) -> tuple[torch.Tensor, int]:
        """For sub-byte types: the bytes that hold the values of this tensor, and where among their values it starts."""
        offset, per_byte = self.storage_offset(), self._qdtype.per_byte
        if self.numel() == 0:
            return self._data[:0], 0
        last = offset + sum((n - 1) * s for n, s in zip(self.shape, self.stride()))
        first_byte = offset // per_byte
        return self._data[first_byte : last // per_byte + 1], offset - first_byte * per_byte

    def values(self) -> torch.Tensor:
        """The integers, one in each element, in the shape of the tensor. Shares memory unless packed."""
        if self._qdtype.bits >= 8:
            return self._data
        part, start = self._packed_part()
        every = torch.ops.zeropoint.stored_unpack(part, part.numel() * self._qdtype.per_byte, self._qdtype.bits)
        return every.as_strided(self.shape, self.stride(), start)

    def int_repr(self) -> torch.Tensor:
        """The stored integers, sharing memory with the tensor; packed bytes, flat, for sub-byte types.

        Example:
            >>> import zeropoint
            >>> zeropoint.quantize_per_tensor(torch.ones(3), 1.0, 2, zeropoint.quint4x2).int_repr()
            tensor([51,  3], dtype=torch.uint8)
        """
        return torch.ops.zeropoint.int_repr(self) if is_watched() else integers(self)

    def dequantize(self) -> torch.Tensor:
        """``(q - zero_point) * scale`` as a float32 tensor of the same shape, contiguous or channels last."""
        if is_watched():
            return torch.ops.zeropoint.dequantize(self)
        data, quantizer = self._data, self._qparams.quantizer
        is_plain = type(data) is torch.Tensor and not data.is_meta and data.is_contiguous()
        if is_plain and type(quantizer) is PerTensorQuantizer and self._qdtype.bits >= 8:
            return stored_dequantize(data, quantizer.scale, quantizer.zero_point)  # as `floats`, on the shortest way
        return floats(self)

    def qscheme(self) -> QScheme:
        return self._quantizer.scheme

    def _per_tensor(self, name: str) -> PerTensorQuantizer:
        quantizer = self._quantizer
        if isinstance(quantizer, PerTensorQuantizer):
            return quantizer
        raise QTensorError(
            f"{name} is defined for per-tensor quantization, this tensor is {self._quantizer.scheme.name}: use"
            " q_per_channel_scales(), q_per_channel_zero_points() and q_per_channel_axis(), or .dequantize() first"
        )

    def _per_channel(self, name: str) -> PerChannelQuantizer:
        quantizer = self._quantizer
        if isinstance(quantizer, PerChannelQuantizer):
            return quantizer
        raise QTensorError(
            f"{name} is defined for per-channel quantization, this tensor is {self._quantizer.scheme.name}: use"
            " q_scale() and q_zero_point()"
        )

    def q_scale(self) -> float:
        return self._per_tensor("q_scale").scale

    def q_zero_point(self) -> int:
        return self._per_tensor("q_zero_point").zero_point

    def q_per_channel_scales(self) -> torch.Tensor:
        return self._per_channel("q_per_channel_scales").scales

    def q_per_channel_zero_points(self) -> torch.Tensor:
        return self._per_channel("q_per_channel_zero_points").zero_points

    def q_per_channel_axis(self) -> int:
        return self._per_channel("q_per_channel_axis").axis

    def mean(self, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> QTensor:
        """The mean over axes, rounded as PyTorch's quantized mean, with the qparams of this tensor.

        ``torch.mean(q, (-1, -2), keepdim=True)``, with the axes in this order, rounds as ``adaptive_avg_pool2d(q, 1)``:
        torch calls both the same.
        """
        if dim is None:
            return super().mean(**kwargs) if not keepdim else super().mean(list(range(self.dim())), True, **kwargs)
        axes = (dim,) if isinstance(dim, int) else tuple(dim)
        axes = (-2, -1) if axes == (-1, -2) else axes
        if kwargs or is_watched():
            return super().mean(axes, keepdim, **kwargs)
        return HANDLERS[_MEAN](self, axes, keepdim)

    def item(self) -> float:
        """The value of a tensor of one element, dequantized."""
        if self.numel() != 1:
            raise QTensorError(f"item() needs a tensor of one element, this one has {self.numel()}")
        return floats(self).item()

    def element_size(self) -> int:
        return self._qdtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the stored values; for packed types less than the number of elements."""
        if self.is_packed():
            return packed_columns(self.numel(), self._qdtype.bits)
        return self.numel() * self._qdtype.itemsize

    @property
    def itemsize(self) -> int:
        return self._qdtype.itemsize

    def data_ptr(self) -> int:
        return self._data.data_ptr()

    def storage(self) -> Any:
        return self._data._typed_storage()

    def is_shared(self) -> bool:
        return self._data.is_shared()

    def share_memory_(self) -> QTensor:
        self._data.share_memory_()
        return self

    def is_pinned(self, *args: Any) -> bool:
        return self._data.is_pinned(*args)

    def __getitem__(self, index: Any) -> QTensor:
        # Integers, slices, ... and None in one native step, where torch would dispatch once for each dimension.
        quantizer = self._qparams.quantizer
        if (
            type(quantizer) is PerTensorQuantizer
            and self._qdtype.bits >= 8
            and (
                type(index) in _BASIC_INDICES or (type(index) is tuple and _BASIC_INDICES.issuperset(map(type, index)))
            )
            and not is_watched()
        ):
            return _wrap(self._data[index], self._qdtype, self._qparams)
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[QTensor]:
        if self.dim() == 0:
            raise TypeError("iteration over a 0-dim tensor")
        return iter(self.unbind(0))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        from zeropoint.tensor.describe import describe

        return describe(self, tensor_contents)

    def _repr_html_(self) -> str:
        from zeropoint.tensor.describe import describe_html

        return describe_html(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def clone(self, *, memory_format: Any = torch.preserve_format) -> QTensor:
        if self._qdtype.bits < 8 or is_watched():
            return super().clone(memory_format=memory_format)
        data = self._data
        data = data.clone() if memory_format is torch.preserve_format else data.clone(memory_format=memory_format)
        return _wrap(data, self._qdtype, QParams(self._qparams.quantizer, data.numel()))

    # ----------------------------------------------------------------------------------------------- refusing

    def numpy(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "numpy has no quantized arrays: use q.dequantize().numpy() for the values or q.int_repr().numpy() for the"
            " stored integers"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.numpy()

    def __dlpack__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("DLPack has no quantized tensors: exchange q.int_repr() or q.dequantize() instead")

    def tolist(self) -> NoReturn:
        raise QTensorError(
            "tolist() is ambiguous for a quantized tensor: use q.dequantize().tolist() or q.int_repr().tolist()"
        )

    def new(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise QTensorError("new() has no qparams to give the new tensor: use zeropoint.empty_affine_quantized")

    def to(self, *args: Any, **kwargs: Any) -> QTensor:
        """Move to another device or memory format. Does not support another dtype."""
        wanted: list[Any] = []
        positional: list[Any] = []
        for value in args:
            if isinstance(value, (torch.dtype, QuantizedDtype)):
                wanted.append(value)
            elif isinstance(value, torch.Tensor):  # to(other): its device and its dtype
                wanted.append(_meaning(value))
                positional.append(value.device)
            else:
                positional.append(value)
        if isinstance(kwargs.get("other"), torch.Tensor):
            other = kwargs.pop("other")
            wanted.append(_meaning(other))
            positional.append(other.device)
        if (dtype := kwargs.pop("dtype", None)) is not None:
            wanted.append(dtype)
        for dtype in wanted:
            if not is_dtype(dtype, self._qdtype):
                self._refuse_dtype(f"to({dtype})")
        return super().to(*positional, **kwargs) if positional or kwargs else self

    def float(self, *args: Any, **kwargs: Any) -> QTensor:
        """Returns itself, because its values are float32. `dequantize` returns them as a plain tensor."""
        return self

    def type(self, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The name of the dtype. Does not support conversion."""
        if dtype is None:
            return repr(self._qdtype)
        if not is_dtype(dtype, self._qdtype):
            self._refuse_dtype(f"type({dtype})")
        return self

    def _refuse_dtype(self, name: str) -> NoReturn:
        raise QTensorError(
            f"{name} would drop the qparams of a {self._qdtype.name} tensor: use q.dequantize() for floats,"
            " q.int_repr() for the integers, or quantize again for another quantized dtype"
        )

    def requires_grad_(self, requires_grad: bool = True) -> QTensor:
        if requires_grad:
            raise QTensorError(
                "a quantized tensor cannot require gradients: train with fake quantization instead (a Parameter can"
                " hold one with requires_grad=False)"
            )
        return self

    def pin_memory(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise QTensorError("quantized tensors cannot be pinned: pin q.int_repr() instead")

    # ------------------------------------------------------------------------------------------ copies and files

    def __deepcopy__(self, memo: dict[int, Any]) -> QTensor:
        if id(self) in memo:
            return memo[id(self)]
        return memo.setdefault(id(self), rebuild(*copy.deepcopy(self._parts(), memo)))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return rebuild, self._parts()

    def _parts(self) -> tuple[Any, ...]:
        """What a QTensor is made of, in types that every unpickler knows."""
        q = self._quantizer
        parameters: tuple[Any, ...]
        if isinstance(q, PerTensorQuantizer):
            parameters = (q.scale, q.zero_point)
        else:
            parameters = (q.scales, q.zero_points, q.axis)
        geometry = (tuple(self.size()), self.stride(), self.storage_offset()) if self.is_packed() else None
        extras = {name: value for name, value in self.__dict__.items() if name not in _OWN}
        return self._data, self._qdtype.name, parameters, geometry, extras

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        q = self._quantizer
        offset = self.storage_offset() if self.is_packed() else 0
        if isinstance(q, PerTensorQuantizer):
            return ["_data"], (self._qdtype, q, None, offset)
        return ["_data", "_scales", "_zero_points"], (self._qdtype, None, q.axis, offset)

    def _stable_hash_for_caching(self) -> str:
        """What compiled code depends on: torch keeps it from one process to the next by this key."""
        described = [
            (str(t.dtype), tuple(t.shape), t.stride(), t.storage_offset(), str(t.device))
            for t in (getattr(self, name) for name in self.__tensor_flatten__()[0])
        ]
        return repr((type(self).__name__, tuple(self.shape), self.stride(), self.__tensor_flatten__()[1], described))

    @property
    def _scales(self) -> torch.Tensor:
        return self.q_per_channel_scales()

    @property
    def _zero_points(self) -> torch.Tensor:
        return self.q_per_channel_zero_points()

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], context: Any, size: Any, stride: Any) -> QTensor:
        dtype, quantizer, axis, offset = context
        if quantizer is None:
            quantizer = PerChannelQuantizer(inner["_scales"], inner["_zero_points"], axis)
        if dtype.bits < 8:
            return QTensor(inner["_data"], quantizer, dtype, size, stride, offset)
        return QTensor(inner["_data"], quantizer, dtype)


_OWN = frozenset(("_data", "_qdtype", "_qparams"))


def _meaning(t: torch.Tensor) -> torch.dtype | QuantizedDtype:
    """How a tensor keeps its values: the dtype that a quantized tensor takes or refuses."""
    return t._qdtype if isinstance(t, QTensor) else t.dtype


def is_dtype(dtype: Any, expected: QuantizedDtype) -> bool:
    """Whether a tensor of the expected dtype has `dtype`: it, torch's of the same name, or that of the values."""
    return dtype == expected or dtype == torch.float32 or str(dtype).removeprefix("torch.") == expected.name


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: QTensor, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse_dtype(f"{name}()")

    refuse.__name__ = name
    return refuse


for _name in ("double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "type_as"):
    setattr(QTensor, _name, _refusing(_name))


def _shortcut(name: str, may_copy: bool = False) -> Callable[..., QTensor]:
    """The view method `name`, straight to the integers where that is all there is to it, at half the cost."""
    method = getattr(torch.Tensor, name)

    def view(self: QTensor, *args: Any, **kwargs: Any) -> QTensor:
        if (
            kwargs
            or type(self._qparams.quantizer) is not PerTensorQuantizer
            or self._qdtype.bits < 8
            or (args and type(args[0]) is torch.dtype)
            or is_watched()
        ):
            return method(self, *args, **kwargs)
        data = method(self._data, *args)
        if may_copy and data.data_ptr() != self._data.data_ptr():
            return _wrap(data, self._qdtype, QParams(self._qparams.quantizer, data.numel()))
        return _wrap(data, self._qdtype, self._qparams)

    view.__name__ = name
    return view


for _name in ("view", "transpose", "permute", "t", "unsqueeze", "squeeze", "expand", "select", "narrow", "detach"):
    setattr(QTensor, _name, _shortcut(_name))
for _name in ("reshape", "flatten"):
    setattr(QTensor, _name, _shortcut(_name, may_copy=True))


def settled(x: torch.Tensor) -> torch.Tensor:
    """`x` in a layout that quantizing and dequantizing give, contiguous or channels last; a copy if it has neither."""
    if x.is_contiguous():
        return x
    memory_format = CHANNELS_LAST.get(x.dim())
    if memory_format and x.is_contiguous(memory_format=memory_format):
        return x
    from torch._prims_common import suggest_memory_format

    return x.contiguous(memory_format=suggest_memory_format(x))


def from_values(values: torch.Tensor, quantizer: Quantizer, dtype: QuantizedDtype) -> QTensor:
    """A QTensor that holds these integers, one in each element; packed (a copy) if the type is below a byte."""
    if dtype.bits >= 8:
        return _wrap(values, dtype, QParams(quantizer, values.numel()))
    if not is_dense(values):
        values = values.contiguous()
    flat = values.as_strided((values.numel(),), (1,))  # in the order of memory, whatever the order of the axes
    return QTensor(torch.ops.zeropoint.stored_pack(flat, dtype.bits), quantizer, dtype, values.shape, values.stride())


def integers(q: QTensor) -> torch.Tensor:
    """`QTensor.int_repr` without a look at who asks."""
    if q._qdtype.bits >= 8:
        return q._data.detach()
    part, start = q._packed_part()
    if start == 0 and q.is_contiguous() and _unused_bits_are_zero(q):
        return part
    return torch.ops.zeropoint.stored_pack(q.values().contiguous().view(-1), q._qdtype.bits)


def _unused_bits_are_zero(q: QTensor) -> bool:
    """Whether the last byte holds values of `q` only: it does at the end of the memory, or if `q` fills it."""
    end = q.storage_offset() + q.numel()
    return end % q._qdtype.per_byte == 0 or end == q._qparams.elements


def floats(q: QTensor) -> torch.Tensor:
    """`QTensor.dequantize` without a look at who asks."""
    return q._qparams.quantizer.dequantize(settled(q.values()))


def rebuild(
    data: torch.Tensor,
    dtype: str,
    parameters: tuple[Any, ...],
    geometry: tuple[Any, ...] | None,
    extras: dict[str, Any] | None = None,
) -> QTensor:
    """A QTensor from the plain parts that pickle, torch.save and deepcopy keep.

    Raises:
        ValueError: if the parts do not fit together, as in a damaged file.
    """
    kind = quantized_dtype(dtype)
    if data.dtype != kind.torch_storage:
        raise QTensorError(f"the integers of a {kind.name} tensor are {kind.storage}, got {data.dtype}")
    quantizer: Quantizer = PerTensorQuantizer(*parameters) if len(parameters) == 2 else PerChannelQuantizer(*parameters)
    if kind.bits >= 8:
        size, stride, offset = None, None, 0
    elif geometry is None or data.dim() != 1:
        raise QTensorError(f"a {kind.name} tensor needs its size and stride, and flat bytes")
    else:
        size, stride, offset = torch.Size(geometry[0]), tuple(geometry[1]), int(geometry[2])
        last = offset + sum((n - 1) * s for n, s in zip(size, stride))
        if (
            len(size) != len(stride)
            or min((*stride, offset)) < 0
            or (size.numel() and last >= data.numel() * kind.per_byte)
        ):
            raise QTensorError(
                f"{data.numel()} bytes do not hold a {kind.name} tensor of size {tuple(size)}, stride {stride} and"
                f" offset {offset}"
            )
    quantizer.check(kind, data.shape if size is None else size)
    q = QTensor(data, quantizer, kind, size, stride, offset)
    if data.untyped_storage().nbytes() != q.nbytes:
        q._qparams.elements = -1  # part of a larger memory, whose other parts have the same qparams
    q.__dict__.update(extras or {})
    return q


torch.serialization.add_safe_globals([rebuild])
explain_dtypes_to_dynamo()


# ------------------------------------------------------------------------- what `zeropoint.ops.reading` asks QTensors

_ops = torch.ops.zeropoint
implements(_ops.int_repr.default)(integers)
implements(_ops.dequantize.self)(floats)
implements(_ops.q_scale.default)(QTensor.q_scale)
implements(_ops.q_zero_point.default)(QTensor.q_zero_point)
implements(_ops.q_zero_point_number.default)(lambda q: float(q.q_zero_point()))
implements(_ops.q_per_channel_scales.default)(QTensor.q_per_channel_scales)
implements(_ops.q_per_channel_zero_points.default)(QTensor.q_per_channel_zero_points)
implements(_ops.q_per_channel_axis.default)(QTensor.q_per_channel_axis)
implements(_ops.is_quantized.default)(lambda q: True)
implements(_ops.qscheme.default)(lambda q: q._quantizer.scheme.name)
implements(_ops.qdtype.default)(lambda q: q._qdtype.name)
implements(torch.ops.aten._local_scalar_dense.default)(QTensor.item)
