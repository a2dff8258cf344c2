"""The ranges of an input's channels and of a weight's columns, and the factor that makes them similar."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zeropoint.numerics.dtypes import qint8, quint8
from zeropoint.numerics.schemes import (
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_affine,
    qscheme as qscheme_of,
)
from zeropoint.observers.base import any_dtype
from zeropoint.observers.minmax import PerChannelMinMaxObserver
from zeropoint.observers.partial import Configurable
from zeropoint.qconfig import refuse_instances


def along(scale: Tensor, axis: int, x: Tensor) -> Tensor:
    """A scale for each index of an axis of `x`, in a shape that multiplies it.

    Example:
        >>> along(torch.ones(3), 1, torch.ones(2, 3, 4)).shape
        torch.Size([1, 3, 1])
    """
    shape = [1] * x.dim()
    shape[axis] = -1
    return scale.reshape(shape)


def _per_channel(scheme: Any) -> Any:
    scheme = qscheme_of(scheme)
    if scheme.per_channel:
        return scheme
    return per_channel_symmetric if scheme.symmetric else per_channel_affine


class _EqualizationObserver(Configurable, nn.Module):
    """The range of each channel of what passes through."""

    ch_axis = 1

    def __init__(
        self,
        dtype: Any = qint8,
        qscheme: Any = per_tensor_affine,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.dtype, self.qscheme = any_dtype(dtype), qscheme_of(qscheme)
        self.equalization_scale = torch.tensor(1)
        self._range = PerChannelMinMaxObserver(
            self.ch_axis, dtype, _per_channel(qscheme), quant_min=quant_min, quant_max=quant_max,
            factory_kwargs=factory_kwargs,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        if not 2 <= x.dim() <= 5:
            raise ValueError(
                f"{type(self).__name__} equalizes linear layers and convolutions, whose tensors have 2 to 5 dimensions,"
                f" got shape {tuple(x.shape)}"
            )
        return self._range(x)

    @property
    def minmax(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest value of each channel."""
        return self._range.min_val, self._range.max_val


class InputEqualizationObserver(_EqualizationObserver):
    """Watches the input of a layer that is to be equalized: the range of each channel.

    Example:
        >>> observer = InputEqualizationObserver()
        >>> _ = observer(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
        >>> observer.get_input_minmax()
        (tensor([ 1., -2.]), tensor([3., 4.]))
    """

    def __init__(
        self,
        dtype: Any = quint8,
        qscheme: Any = per_tensor_affine,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if qscheme_of(qscheme).per_channel:
            raise TypeError(f"the qscheme of an input must be per-tensor, got {qscheme}")
        super().__init__(dtype, qscheme, quant_min, quant_max, factory_kwargs)
        self.equalization_shape: list[int] = []

    def watch_axis(self, axis: int) -> None:
        """The axis of the channels, where it is not 1."""
        self.ch_axis = self._range.ch_axis = axis

    def watch_shape(self, x: Tensor) -> None:
        """Let factors have the shape that multiplies `x`."""
        self.equalization_shape = [1] * x.dim()
        self.equalization_shape[self.ch_axis] = x.size(self.ch_axis)

    def forward(self, x: Tensor) -> Tensor:
        result = super().forward(x)
        self.watch_shape(x)
        return result

    def get_input_minmax(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest value of each channel."""
        return self.minmax

    def set_equalization_scale(self, equalization_scale: Tensor) -> None:
        """Keep the factor of each channel, in the shape that multiplies the input."""
        if equalization_scale.dim() > 0:
            self.equalization_scale = equalization_scale.reshape(self.equalization_shape)

    def calculate_scaled_minmax(self) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """The range of the whole input after it is multiplied; (None, None), with a warning, without a factor."""
        if self.equalization_scale.dim() == 0:
            warnings.warn("there is no equalization scale yet: the range does not change", stacklevel=2)
            return None, None
        low, high = self.minmax
        scale = self.equalization_scale.reshape(-1)
        return (low * scale).min(), (high * scale).max()


class WeightEqualizationObserver(_EqualizationObserver):
    """Watches the weight of a layer that is to be equalized: the range of each column, of one input channel.

    Example:
        >>> observer = WeightEqualizationObserver()
        >>> _ = observer(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
        >>> observer.get_weight_col_minmax()
        (tensor([ 1., -2.]), tensor([3., 4.]))
    """

    def get_weight_col_minmax(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest value of each column."""
        return self.minmax

    def set_equalization_scale(self, equalization_scale: Tensor) -> None:
        """Keep the divisor of each column."""
        self.equalization_scale = equalization_scale


def is_equalization_observer(observer: Any) -> bool:
    """Whether a module observes for equalization."""
    return isinstance(observer, _EqualizationObserver)


def calculate_equalization_scale(
    input_obs: InputEqualizationObserver, weight_obs: WeightEqualizationObserver
) -> Tensor:
    """``sqrt(range of the weight's column / range of the input's channel)`` for each channel.

    It is 1 where a range is zero, and 1 for all, with a warning, before both observers saw data.

    Raises:
        ValueError: if the input has another number of channels than the weight.
    """
    (low_x, high_x), (low_w, high_w) = input_obs.minmax, weight_obs.minmax
    if low_x.numel() == 0 or low_w.numel() == 0:
        warnings.warn(
            "an equalization observer saw no data: run the prepared model on some batches, otherwise its "
            "layer is not equalized",
            stacklevel=2,
        )
        return torch.tensor(1)
    if low_x.shape != low_w.shape:
        raise ValueError(
            f"equalization of an input of {len(low_x)} channels with a weight for {len(low_w)} is not supported: "
            "the layer has groups, or its channels are on another axis"
        )
    scale = torch.sqrt((high_w - low_w) / (high_x - low_x))
    return torch.nan_to_num(torch.where(scale == 0, 1.0, scale), nan=1, posinf=1, neginf=1)


class _Constructors(NamedTuple):
    input_activation: Any
    weight: Any


class EqualizationQConfig(_Constructors):
    """Two constructors: ``input_activation()`` builds what watches a layer's input, ``weight()`` what its weight.

    Raises:
        ValueError: if given an observer that is already built.
    """

    __slots__ = ()

    def __new__(cls, input_activation: Any = nn.Identity, weight: Any = nn.Identity) -> EqualizationQConfig:
        refuse_instances(cls.__name__, input_activation=input_activation, weight=weight)
        return super().__new__(cls, input_activation, weight)


input_equalization_observer = InputEqualizationObserver.with_args(dtype=quint8, qscheme="per_tensor_symmetric")
weight_equalization_observer = WeightEqualizationObserver.with_args(dtype=qint8, qscheme="per_channel_symmetric")
default_equalization_qconfig = EqualizationQConfig(
    input_activation=input_equalization_observer, weight=weight_equalization_observer
)
