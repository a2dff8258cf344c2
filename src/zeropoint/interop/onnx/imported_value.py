"""Values of an ONNX model while it is read: tensors, numbers that are known or follow from sizes, stored weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zeropoint.numerics.affine import BYTE_LIMITS

ours = torch.ops.zeropoint


@dataclass(frozen=True)
class Constant:
    """A tensor of the file: its numbers, and where the model keeps it."""

    array: Any
    name: str
    owner: nn.Module

    @property
    def tensor(self) -> Tensor:
        return getattr(self.owner, self.name)


@dataclass(frozen=True)
class Numbers:
    """Numbers that follow from sizes: an array of objects, whose elements may be free."""

    array: Any
    dtype: torch.dtype

    @property
    def tensor(self) -> Tensor:
        flat = [torch.full((), value, dtype=self.dtype) for value in self.array.reshape(-1).tolist()]
        if not flat:
            return torch.empty(self.array.shape, dtype=self.dtype)
        return torch.stack(flat).reshape(self.array.shape) if self.array.ndim else flat[0]


@dataclass(frozen=True)
class Rounded:
    """Integers that floats were rounded to, with the scale and the zero point."""

    tensor: Tensor
    scale: float
    zero_point: int

    @property
    def parameters(self) -> tuple[Any, ...]:
        """What the operators that round and dequantize take behind the tensor."""
        return self.scale, self.zero_point, *BYTE_LIMITS[self.tensor.dtype], self.tensor.dtype

    @property
    def floats(self) -> Tensor:
        return ours.dequantize_per_tensor(self.tensor, *self.parameters)

    def of(self, result: Any) -> Any:
        """A result of floats, rounded in the same way; others are as they are."""
        if not isinstance(result, Tensor) or result.dtype != torch.float32:
            return result
        return Rounded(ours.quantize_per_tensor(result, *self.parameters), self.scale, self.zero_point)


@dataclass(frozen=True)
class StoredWeight:
    """Integers of the file with scale and zero point, as DequantizeLinear takes them: floats where somebody reads them.

    Args:
        axis: along which scales lie; None for one scale.
        block: how many along the axis share one; 0 if each has its own.
    """

    integers: Constant
    scale: Constant
    zero_point: Constant | None
    axis: int | None
    block: int

    @property
    def array(self) -> Any:
        return self.integers.array

    @property
    def bits(self) -> int:
        return 4 if "int4" in str(self.integers.array.dtype) else 8

    def turned(self, order: Sequence[int]) -> Tensor:
        """The floats, their axes in another order."""
        kind = self.integers.tensor.dtype
        if kind not in BYTE_LIMITS or self.block or self.bits == 4:
            return self.floats().permute(*order)
        q = self.integers.tensor
        if list(order) != list(range(q.dim())):
            q = q.permute(*order)
        limits = BYTE_LIMITS[kind]
        shift = None if self.zero_point is None else self.zero_point.array
        if self.axis is None:
            zero_point = 0 if shift is None else int(shift.reshape(-1)[0])
            return ours.dequantize_per_tensor(q, float(self.scale.array.reshape(-1)[0]), zero_point, *limits, kind)
        scales = self.scale.tensor
        shifts = (
            torch.zeros_like(scales, dtype=torch.int64) if self.zero_point is None else self.zero_point.tensor.long()
        )
        return ours.dequantize_per_channel(q, scales, shifts, list(order).index(self.axis), *limits, kind)

    def floats(self) -> Tensor:
        """``(q - zero_point) * scale``, whatever shares a scale."""
        q = self.integers.tensor.to(torch.float32)
        scale = self.scale.tensor
        shift = torch.zeros_like(scale) if self.zero_point is None else self.zero_point.tensor.to(torch.float32)
        if self.block and self.axis is not None:
            size = q.shape[self.axis]
            scale, shift = (
                t.repeat_interleave(self.block, self.axis).narrow(self.axis, 0, size) for t in (scale, shift)
            )
        elif self.axis is not None:
            shape = [-1 if axis == self.axis else 1 for axis in range(q.dim())]
            scale, shift = scale.reshape(shape), shift.reshape(shape)
        return (q - shift) * scale

    @property
    def tensor(self) -> Tensor:
        return self.turned(range(self.integers.tensor.dim()))


@dataclass(frozen=True)
class JoinedWeight:
    """Stored weights one behind the other, as those of the two directions of a recurrent layer."""

    parts: tuple[StoredWeight, ...]

    @property
    def array(self) -> Any:
        return np.concatenate([part.array for part in self.parts])

    @property
    def tensor(self) -> Tensor:
        return torch.cat([part.tensor for part in self.parts])


def as_tensor(value: Any) -> Any:
    """A value as a tensor; None for None."""
    return value if value is None or isinstance(value, Tensor) else value.tensor


def dtype_of(value: Any) -> torch.dtype:
    """The dtype of a value, without making a tensor of it."""
    if isinstance(value, (StoredWeight, JoinedWeight)):
        return torch.float32
    return value.tensor.dtype if isinstance(value, (Constant, Rounded)) else value.dtype


def tensor_of(array: Any) -> Tensor:
    """An array as a tensor; integers of 4 bits lie in bytes, which is what PyTorch has."""
    name = str(array.dtype)
    if name in ("int4", "uint4"):
        return torch.from_numpy(array.astype(np.uint8 if name == "uint4" else np.int8))
    if array.dtype.type.__module__ != "ml_dtypes":
        return torch.from_numpy(np.array(array))
    kind = getattr(torch, name, None)
    if not isinstance(kind, torch.dtype) or kind.itemsize != array.dtype.itemsize or "int" in name or "float4" in name:
        raise NotImplementedError(f"from_onnx: tensors of the dtype {name} are not supported")
    return torch.from_numpy(np.array(array).view(np.uint8 if kind.itemsize == 1 else np.int16)).view(kind)
