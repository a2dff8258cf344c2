"""What all observers share: a dtype, a range of integers, and the way from a range of values to (scale, zero_point)."""

import warnings
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

import zeropoint.ops  # noqa: F401 (registers torch.ops.zeropoint)
from zeropoint.described import described
from zeropoint.numerics.dtypes import DTYPES, QuantizedDtype, quantized_dtype, quint8
from zeropoint.numerics.schemes import per_tensor_affine, qscheme as qscheme_of
from zeropoint.observers.partial import Configurable

EPS = torch.finfo(torch.float32).eps

# Quantized dtypes, and the plain ones that stand for them in graphs.
OBSERVED = (
    *(DTYPES[name] for name in ("qint8", "quint8", "quint4x2", "qint32")),
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.uint16,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
)
FLOAT8_RANGE = (0, 15)  # what PyTorch's observers take for dtypes without a range of integers


def any_dtype(dtype: Any) -> QuantizedDtype | torch.dtype:
    """The dtype that `dtype` means: a quantized one by any of its names, or a plain torch dtype.

    Example:
        >>> any_dtype("quint8"), any_dtype(torch.float16)
        (zeropoint.quint8, torch.float16)
    """
    if str(dtype).removeprefix("torch.").removeprefix("zeropoint.") in DTYPES:
        return quantized_dtype(dtype)
    if isinstance(dtype, torch.dtype):
        return dtype
    raise TypeError(f"dtype must be a torch dtype or one of {', '.join(DTYPES)}, got {described(dtype)}")


def integer_range(dtype: QuantizedDtype | torch.dtype) -> tuple[int, int]:
    """The smallest and largest integer of a dtype.

    Example:
        >>> integer_range(torch.int8), integer_range(quantized_dtype("quint4x2"))
        ((-128, 127), (0, 15))
    """
    if isinstance(dtype, QuantizedDtype):
        return dtype.qmin, dtype.qmax
    if dtype.is_floating_point:
        return FLOAT8_RANGE
    info = torch.iinfo(dtype)
    return int(info.min), int(info.max)


def storage_bits(dtype: QuantizedDtype | torch.dtype) -> int:
    """The bits of one stored element; sub-byte types are stored in bytes."""
    return 8 * dtype.itemsize


class ObserverBase(Configurable, ABC, nn.Module):
    """Base class of observers: modules that record statistics of their inputs.

    A subclass implements ``forward(x)``, which returns `x` unchanged, and ``calculate_qparams()``.

    Args:
        dtype: the dtype that the observed tensor will be quantized to.
        is_dynamic: quantize at run time, with qparams computed from each tensor.
    """

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = any_dtype(dtype)
        self.is_dynamic = is_dynamic

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any: ...


class UniformQuantizationObserverBase(ObserverBase):
    """An observer that maps a range of values evenly onto integers; see `qparams_from_range` for the formulas.

    Args:
        dtype: quint8, qint8, quint4x2, qint32, or a plain integer dtype.
        qscheme: one of the five schemes.
        reduce_range: use half of the integers, as CPUs without VNNI need elsewhere. zeropoint's kernels never do.
        quant_min, quant_max: the integers to use, both or neither; they must contain 0.
        factory_kwargs: device and dtype of the buffers.
        eps: the smallest scale.
        is_dynamic: parameters come from each tensor at run time.
    """

    _version = 3
    eps: Tensor

    def __init__(
        self,
        dtype: Any = quint8,
        qscheme: Any = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        name = type(self).__name__
        if self.dtype not in OBSERVED:
            raise ValueError(f"{name}: dtype must be one of {', '.join(map(str, OBSERVED))}, got {self.dtype}")
        self.qscheme = qscheme_of(qscheme)
        self.reduce_range = reduce_range
        low, high = integer_range(self.dtype)
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if (quant_min is None) != (quant_max is None):
            raise ValueError(f"{name}: set both quant_min and quant_max, or neither, got {quant_min} and {quant_max}")
        if quant_min is not None and quant_max is not None:
            self._check_range(name, quant_min, quant_max, high - low)
            low, high = quant_min, quant_max
        if reduce_range and (self.has_customized_qrange or (storage_bits(self.dtype) == 8 and high - low == 255)):
            low, high = low // 2, high // 2
        self.quant_min, self.quant_max = low, high
        self._set_plain_numbers()
        self.register_buffer("eps", torch.tensor([eps], **torch.nn.factory_kwargs(factory_kwargs)))

    def _set_plain_numbers(self) -> None:
        """What follows from dtype, scheme and range, for TorchScript, which knows neither of the first two."""
        unsigned_middle = 128 if not self.has_customized_qrange else (self.quant_min + self.quant_max) // 2
        middles = {quint8: unsigned_middle, torch.uint8: unsigned_middle, torch.uint16: 2**15}
        self.symmetric = self.qscheme.symmetric
        self.float_zero_point = self.qscheme.float_zero_point
        self.symmetric_zero_point = middles.get(self.dtype, 0)

    @staticmethod
    def _check_range(name: str, quant_min: int, quant_max: int, most: int) -> None:
        if not quant_min <= 0 <= quant_max:
            raise ValueError(f"{name}: quant_min and quant_max must contain 0, got {quant_min} and {quant_max}")
        if quant_min == quant_max:
            raise ValueError(f"{name}: quant_min must be below quant_max, both are {quant_min}")
        if quant_max - quant_min > most:
            raise ValueError(
                f"{name}: {quant_min}..{quant_max} are {quant_max - quant_min + 1} values, but the dtype has {most + 1}"
            )

    def _require_scheme(self, per_channel: bool) -> None:
        if self.qscheme.per_channel != per_channel:
            kind = "per-channel" if per_channel else "per-tensor"
            other = "PerChannelMinMaxObserver" if not per_channel else "MinMaxObserver"
            raise NotImplementedError(
                f"{type(self).__name__}: qscheme must be {kind}, got {self.qscheme}; use {other} for it"
            )

    def _require_middle(self) -> None:
        """Refuse a reduced range that its own symmetric zero point, 128, is not in."""
        if self.symmetric and self.reduce_range and self.dtype == quint8:
            raise NotImplementedError(
                f"{type(self).__name__}: reduce_range with a symmetric scheme is not defined for quint8; use qint8, or"
                " quant_min=0 and quant_max=127 instead of reduce_range"
            )

    @torch.jit.export
    def _calculate_qparams(self, min_val: Tensor, max_val: Tensor) -> tuple[Tensor, Tensor]:
        unseen = min_val.numel() == 0
        if not unseen:
            unseen = bool(((min_val == float("inf")) & (max_val == float("-inf"))).all())
        if unseen:
            warnings.warn(
                "calculate_qparams was called before the observer saw any data; it returns scale 1 and zero point "
                "0. Run the model on some data first",
                stacklevel=2,
            )
            return torch.ones(1, device=min_val.device), torch.zeros(1, dtype=torch.int64, device=min_val.device)
        scale, zero_point = torch.ops.zeropoint.range_to_qparams(
            min_val,
            max_val,
            self.eps,
            self.quant_min,
            self.quant_max,
            self.symmetric,
            self.float_zero_point,
            self.symmetric_zero_point,
        )
        return scale, zero_point

    @torch.jit.export
    def reset_min_max_vals(self) -> None:
        raise NotImplementedError("this observer does not support reset_min_max_vals")

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool, *lists: Any
    ) -> None:
        state_dict.setdefault(prefix + "eps", self.eps)  # files of the first version have none
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *lists)

    def merge(self, other: "UniformQuantizationObserverBase") -> None:
        """Merge the statistics of `other` into this observer. `other` does not change."""
        raise NotImplementedError(f"{type(self).__name__} cannot be merged with another")

    def _require_same_kind(self, other: ObserverBase) -> None:
        if type(other) is not type(self):
            raise TypeError(
                f"a {type(self).__name__} can only be merged with the same type, got {type(other).__name__}"
            )
