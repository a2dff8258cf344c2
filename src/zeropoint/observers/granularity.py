"""Observers of blocks: a range for each token, group, row or block of a tensor."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.described import described
from zeropoint.numerics.blocks import blocks_along
from zeropoint.numerics.moving_average import observe_range
from zeropoint.numerics.qparams import qparams_from_range
from zeropoint.numerics.schemes import per_channel_affine, per_channel_symmetric
from zeropoint.observers.base import EPS, integer_range
from zeropoint.observers.partial import Configurable


class MappingType(Enum):
    """How a range is mapped: with zero in the middle, or not."""

    SYMMETRIC = auto()
    SYMMETRIC_NO_CLIPPING_ERR = auto()  # each side divided by its own number of steps; the larger scale wins
    ASYMMETRIC = auto()


class ZeroPointDomain(Enum):
    """The type of zero points."""

    INT = auto()
    FLOAT = auto()
    NONE = auto()


class TorchAODType(Enum):
    """Integer types with fewer bits than torch's dtypes."""

    INT1 = auto()
    INT2 = auto()
    INT3 = auto()
    INT4 = auto()
    INT5 = auto()
    INT6 = auto()
    INT7 = auto()


@dataclass(frozen=True)
class Granularity:
    """Which elements share a scale."""


@dataclass(frozen=True)
class PerBlock(Granularity):
    """Blocks of any shape that tiles the tensor."""

    block_size: tuple[int, ...]


@dataclass(frozen=True)
class PerTensor(Granularity):
    """The whole tensor."""


@dataclass(frozen=True)
class PerAxis(Granularity):
    """Each index of an axis."""

    axis: int


@dataclass(frozen=True)
class PerGroup(Granularity):
    """Groups of `group_size` neighbours along the last axis of a matrix."""

    group_size: int


@dataclass(frozen=True)
class PerRow(Granularity):
    """Each row: everything along the last axis."""


@dataclass(frozen=True)
class PerToken(Granularity):
    """Each token: everything along the last axis."""


def get_block_size(input_shape: tuple[int, ...], granularity: Granularity) -> tuple[int, ...]:
    """The shape of the blocks that share a scale.

    Raises:
        TypeError: if `granularity` is a class, or none.
        ValueError: if the blocks do not tile the shape.

    Example:
        >>> get_block_size((4, 6), PerToken()), get_block_size((4, 6), PerGroup(3)), get_block_size((4, 6), PerAxis(1))
        ((1, 6), (1, 3), (4, 1))
    """
    if not isinstance(granularity, Granularity):
        raise TypeError(
            f"granularity must be an instance such as PerToken() or PerGroup(32), got {described(granularity)}"
        )
    shape = tuple(input_shape)
    match granularity:
        case PerTensor():
            return shape
        case PerAxis(axis):
            if not -len(shape) <= axis < len(shape):
                raise ValueError(f"{granularity} needs an axis {axis}, a tensor of shape {shape} has none")
            return tuple(1 if i == axis % len(shape) else n for i, n in enumerate(shape))
        case PerRow() | PerToken():
            return (*(1 for _ in shape[:-1]), *shape[-1:])
        case PerGroup(size):
            if len(shape) != 2:
                raise ValueError(
                    f"{granularity} supports matrices, got a tensor of shape {shape}; use PerBlock for other shapes"
                )
            block: tuple[int, ...] = (1, size)
        case PerBlock(size):
            block = tuple(size)
        case _:
            raise ValueError(f"{granularity} is not supported")
    if len(block) != len(shape) or any(b < 1 or n % b for n, b in zip(shape, block)):
        raise ValueError(f"blocks of {block} do not tile a tensor of shape {shape}")
    return block


class AffineQuantizedObserverBase(Configurable, ABC, nn.Module):
    """An observer that finds (scale, zero_point) for each block of a tensor.

    Args:
        mapping_type: symmetric or asymmetric.
        target_dtype: a plain integer dtype, such as torch.int8.
        granularity: the elements that share a scale.
        quant_min, quant_max: the range of integers; by default that of the dtype.
        eps: the smallest scale.
        scale_dtype, zero_point_dtype: dtypes of the results; by default the dtype of the input, and int32.
        preserve_zero: 0.0 is quantized without error. Only True is supported.
        zero_point_domain: integer, float or no zero points.
    """

    def __init__(
        self,
        mapping_type: MappingType,
        target_dtype: torch.dtype,
        granularity: Granularity,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float | None = None,
        scale_dtype: torch.dtype | None = None,
        zero_point_dtype: torch.dtype | None = None,
        preserve_zero: bool = True,
        zero_point_domain: ZeroPointDomain | None = ZeroPointDomain.INT,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if not isinstance(granularity, Granularity):
            raise TypeError(
                f"granularity must be an instance such as PerToken() or PerGroup(32), got {described(granularity)}"
            )
        if not isinstance(mapping_type, MappingType):
            raise TypeError(f"mapping_type must be a MappingType, got {described(mapping_type)}")
        if not preserve_zero or zero_point_domain == ZeroPointDomain.FLOAT:
            raise NotImplementedError(
                "preserve_zero=False and float zero points are not supported by block observers; for embeddings use"
                " PerChannelMinMaxObserver with per_channel_affine_float_qparams"
            )
        self.mapping_type = mapping_type
        self.target_dtype = target_dtype
        self.granularity = granularity
        low, high = integer_range(target_dtype)
        self.quant_min = low if quant_min is None else quant_min
        self.quant_max = high if quant_max is None else quant_max
        if mapping_type == MappingType.SYMMETRIC_NO_CLIPPING_ERR and not self.quant_min < 0 < self.quant_max:
            raise ValueError(
                "SYMMETRIC_NO_CLIPPING_ERR needs integers on both sides of 0, got"
                f" {self.quant_min}..{self.quant_max}; use SYMMETRIC or ASYMMETRIC"
            )
        self.eps = eps
        self.scale_dtype = scale_dtype
        self.zero_point_dtype = zero_point_dtype
        self.preserve_zero = preserve_zero
        self.zero_point_domain = zero_point_domain
        self.block_size: tuple[int, ...] | None = None
        self.original_dtype: torch.dtype | None = None

    @abstractmethod
    def forward(self, input: Tensor) -> Tensor: ...

    @abstractmethod
    def calculate_qparams(self) -> tuple[Tensor, Tensor]: ...


class AffineQuantizedMinMaxObserver(AffineQuantizedObserverBase):
    """The range of everything seen, for each block; tensors must have the shape of the first one.

    With `PerTensor` shapes may vary.

    Example:
        >>> observer = AffineQuantizedMinMaxObserver(MappingType.SYMMETRIC, torch.int8, PerToken())
        >>> _ = observer(torch.tensor([[1.0, -2.55], [0.0, 5.1]]))
        >>> observer.calculate_qparams()
        (tensor([[0.0200],
                [0.0400]]), tensor([[0],
                [0]], dtype=torch.int32))
    """

    min_val: Tensor
    max_val: Tensor
    averaging_constant: float | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("min_val", torch.empty(0))
        self.register_buffer("max_val", torch.empty(0))

    def forward(self, input: Tensor) -> Tensor:
        if input.numel() == 0:
            return input
        x = input.detach()
        block = get_block_size(tuple(x.shape), self.granularity)
        shape = blocks_along(x.shape, block)
        if self.min_val.numel() == 0:
            self.min_val.resize_(shape).fill_(torch.inf)
            self.max_val.resize_(shape).fill_(-torch.inf)
        elif tuple(self.min_val.shape) != shape and not self.min_val.numel() == math.prod(shape) == 1:
            raise ValueError(
                f"an input of shape {tuple(x.shape)} has {shape} blocks of {block}, but {tuple(self.min_val.shape)}"
                " were observed before; use one observer for each shape, or PerTensor()"
            )
        self.block_size, self.original_dtype = block, input.dtype
        running = (self.min_val, self.max_val)
        observe_range(x.to(self.min_val.dtype), block, running, self.averaging_constant)
        return input

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point) with one element for each block.

        Raises:
            ValueError: if nothing was observed.
        """
        if self.min_val.numel() == 0:
            raise ValueError(f"{type(self).__name__}: the observer saw no data: run the model on some data first")
        low, high = self.min_val.reshape(-1), self.max_val.reshape(-1)
        eps = torch.tensor([EPS if self.eps is None else self.eps], device=low.device)
        symmetric = self.mapping_type != MappingType.ASYMMETRIC
        if self.mapping_type == MappingType.SYMMETRIC_NO_CLIPPING_ERR:
            zero = torch.zeros_like(low)
            scale = torch.maximum(torch.minimum(low, zero) / self.quant_min, torch.maximum(high, zero) / self.quant_max)
            scale = torch.maximum(scale, eps)
            zero_point = torch.zeros_like(scale, dtype=torch.int64)
        else:
            scale, zero_point = qparams_from_range(
                low,
                high,
                self.quant_min,
                self.quant_max,
                eps=eps,
                scheme=per_channel_symmetric if symmetric else per_channel_affine,
                symmetric_zero_point=(self.quant_max + self.quant_min + 1) // 2,
            )
        return (
            scale.reshape(self.min_val.shape).to(self.scale_dtype or self.original_dtype or scale.dtype),
            zero_point.reshape(self.min_val.shape).to(self.zero_point_dtype or torch.int32),
        )

    def extra_repr(self) -> str:
        return f"granularity={self.granularity}, target_dtype={self.target_dtype}, block_size={self.block_size}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in (("min_val", self.min_val), ("max_val", self.max_val)):
            if prefix + name in state_dict:
                buffer.resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class AffineQuantizedMovingAverageMinMaxObserver(AffineQuantizedMinMaxObserver):
    """A moving average of each tensor's range, for each block: ``min += averaging_constant * (x.min() - min)``.

    Example:
        >>> observer = AffineQuantizedMovingAverageMinMaxObserver(
        ...     MappingType.ASYMMETRIC, torch.uint8, PerGroup(2), averaging_constant=0.5
        ... )
        >>> _ = observer(torch.tensor([[0.0, 2.0]])), observer(torch.tensor([[0.0, 4.0]]))
        >>> observer.max_val
        tensor([[3.]])
    """

    def __init__(self, *args: Any, averaging_constant: float = 0.01, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.averaging_constant = averaging_constant
