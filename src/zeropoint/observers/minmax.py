"""Observers of the smallest and largest value: of all that was seen, or a moving average; per tensor or per channel."""

from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics.dtypes import quint8
from zeropoint.numerics.schemes import per_channel_affine, per_tensor_affine
from zeropoint.observers.base import EPS, UniformQuantizationObserverBase

INF = float("inf")


def _in_order(min_val: Tensor, max_val: Tensor) -> Tensor:
    """`max_val`, not below `min_val`: two averages of a constant may pass each other by rounding.

    In float32 ``-1.7 + 1.0 * (1.541 + 1.7)`` is 1.5410001, and ``0.3 + 1.0 * (1.541 - 0.3)`` is 1.5409999. An empty
    range, and one that overflowed, stays what it is.
    """
    by_rounding = (min_val > max_val) & torch.isfinite(min_val) & torch.isfinite(max_val)
    return torch.where(by_rounding, min_val, max_val)


class MinMaxObserver(UniformQuantizationObserverBase):
    """Records the minimum and maximum of all values: ``min = min(min, x.min())``, ``max = max(max, x.max())``.

    Args: see `UniformQuantizationObserverBase`; the scheme is per tensor.

    Example:
        >>> observer = MinMaxObserver()
        >>> _ = observer(torch.tensor([-1.0, 2.0])), observer(torch.tensor([4.1]))
        >>> observer.calculate_qparams()
        (tensor([0.0200]), tensor([50], dtype=torch.int32))
    """

    min_val: Tensor
    max_val: Tensor

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
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self._require_scheme(per_channel=False)
        self._require_middle()
        made = torch.nn.factory_kwargs(factory_kwargs)
        self.register_buffer("min_val", torch.tensor(INF, **made))
        self.register_buffer("max_val", torch.tensor(-INF, **made))

    def forward(self, x_orig: Tensor) -> Tensor:
        torch.ops.zeropoint.observe_range_(x_orig.detach(), self.min_val, self.max_val)
        return x_orig

    @torch.jit.export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point), each of shape ``(1,)``. Without data, 1 and 0 with a warning."""
        return self._calculate_qparams(self.min_val, self.max_val)

    @torch.jit.export
    def reset_min_max_vals(self) -> None:
        """Reset the recorded range."""
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))

    def merge(self, other: UniformQuantizationObserverBase) -> None:
        """Merge the range of `other` into this observer. The result is exact.

        Example:
            >>> one, two = MinMaxObserver(), MinMaxObserver()
            >>> _ = one(torch.tensor([1.0, 2.0])), two(torch.tensor([-3.0]))
            >>> one.merge(two)
            >>> one.min_val, one.max_val
            (tensor(-3.), tensor(2.))
        """
        self._require_same_kind(other)
        torch.minimum(self.min_val, other.min_val.to(self.min_val), out=self.min_val)
        torch.maximum(self.max_val, other.max_val.to(self.max_val), out=self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, nothing in (("min_val", INF), ("max_val", -INF)):
            # Files of the first versions hold an empty tensor before data, or one element.
            value = state_dict.get(prefix + name)
            if value is not None and value.dim() == 1 and value.numel() <= 1:
                state_dict[prefix + name] = value.reshape(()) if value.numel() else torch.tensor(nothing)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Records a moving average of each tensor's range: ``min += averaging_constant * (x.min() - min)``.

    The first tensor sets the range. With ``averaging_constant=1`` only the last tensor counts, as in dynamic
    quantization.

    Args: `averaging_constant`, and those of `MinMaxObserver`.

    Example:
        >>> observer = MovingAverageMinMaxObserver(averaging_constant=0.5)
        >>> _ = observer(torch.tensor([0.0, 2.0])), observer(torch.tensor([0.0, 4.0]))
        >>> observer.max_val
        tensor(3.)
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: Any = quint8,
        qscheme: Any = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_dynamic and averaging_constant != 1:
            raise NotImplementedError(
                "MovingAverageMinMaxObserver: is_dynamic uses the range of each tensor, so averaging_constant must "
                f"be 1, got {averaging_constant}"
            )
        super().__init__(
            dtype=dtype,
            qscheme=qscheme,
            reduce_range=reduce_range,
            quant_min=quant_min,
            quant_max=quant_max,
            eps=eps,
            is_dynamic=is_dynamic,
            **kwargs,
        )
        self.averaging_constant = float(averaging_constant)

    def forward(self, x_orig: Tensor) -> Tensor:
        torch.ops.zeropoint.observe_range_(
            x_orig.detach(), self.min_val, self.max_val, averaging_constant=self.averaging_constant
        )
        return x_orig

    @torch.jit.export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point), each of shape ``(1,)``. Without data, 1 and 0 with a warning."""
        return self._calculate_qparams(self.min_val, _in_order(self.min_val, self.max_val))

    def merge(self, other: UniformQuantizationObserverBase) -> None:
        """Set the range to the mean of both averages, or to the one that saw data."""
        self._require_same_kind(other)
        if bool(self.min_val > self.max_val):
            self.min_val.copy_(other.min_val)
            self.max_val.copy_(other.max_val)
        elif bool(other.min_val <= other.max_val):
            self.min_val.copy_((self.min_val + other.min_val.to(self.min_val)) / 2)
            self.max_val.copy_((self.max_val + other.max_val.to(self.max_val)) / 2)


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """Records the minimum and maximum of all values for each index of `ch_axis`.

    Args: `ch_axis`, and those of `UniformQuantizationObserverBase`; the scheme is per channel.

    Example:
        >>> observer = PerChannelMinMaxObserver(ch_axis=1)
        >>> _ = observer(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
        >>> observer.min_val, observer.max_val
        (tensor([ 1., -2.]), tensor([3., 4.]))
    """

    min_val: Tensor
    max_val: Tensor

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: Any = quint8,
        qscheme: Any = per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_dynamic:
            raise NotImplementedError(
                f"{type(self).__name__}: dynamic quantization uses one range for the whole tensor; use MinMaxObserver"
            )
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self._require_scheme(per_channel=True)
        self._require_middle()
        self.ch_axis = ch_axis
        made = torch.nn.factory_kwargs(factory_kwargs)
        self.register_buffer("min_val", torch.empty(0, **made))
        self.register_buffer("max_val", torch.empty(0, **made))

    def _make_room(self, x: Tensor) -> None:
        if self.ch_axis >= x.dim() or self.ch_axis < -x.dim():
            raise ValueError(
                f"ch_axis {self.ch_axis} is out of range for an input of {x.dim()} dimensions; create the observer "
                "with another ch_axis"
            )
        if self.min_val.numel() == 0:
            channels = x.size(self.ch_axis)
            self._resize(channels)
            self.min_val.fill_(float("inf"))
            self.max_val.fill_(float("-inf"))

    def _resize(self, channels: int) -> None:
        """In place; but the memory of scripted observers that were loaded cannot be resized."""
        if torch.jit.is_scripting():
            self.min_val = self.min_val.new_empty([channels])
            self.max_val = self.max_val.new_empty([channels])
        else:
            self.min_val.resize_(channels)
            self.max_val.resize_(channels)

    def forward(self, x_orig: Tensor) -> Tensor:
        x = x_orig.detach()
        if x.numel() > 0:
            self._make_room(x)
            torch.ops.zeropoint.observe_range_(x, self.min_val, self.max_val, self.ch_axis)
        return x_orig

    @torch.jit.export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point), each of shape ``(channels,)``. Without data, 1 and 0 with a warning."""
        return self._calculate_qparams(self.min_val, self.max_val)

    @torch.jit.export
    def reset_min_max_vals(self) -> None:
        """Reset the recorded ranges and the number of channels."""
        self._resize(0)

    def merge(self, other: UniformQuantizationObserverBase) -> None:
        """Merge the ranges of `other` into this observer. The result is exact."""
        self._require_same_kind(other)
        if self._take_room(other):
            torch.minimum(self.min_val, other.min_val.to(self.min_val), out=self.min_val)
            torch.maximum(self.max_val, other.max_val.to(self.max_val), out=self.max_val)

    def _take_room(self, other: UniformQuantizationObserverBase) -> bool:
        """Whether `other` saw anything; then this observer has as many channels."""
        channels = other.min_val.numel()
        if channels == 0:
            return False
        if self.min_val.numel() == 0:
            self._resize(channels)
            self.min_val.fill_(INF)
            self.max_val.fill_(-INF)
        elif self.min_val.numel() != channels:
            raise ValueError(f"cannot merge a range of {channels} channels into one of {self.min_val.numel()}")
        return True

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in (("min_val", self.min_val), ("max_val", self.max_val)):
            if prefix + name + "s" in state_dict:  # the name until version 2
                state_dict[prefix + name] = state_dict.pop(prefix + name + "s")
            if prefix + name in state_dict:
                buffer.resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Records a moving average of each tensor's range for each index of `ch_axis`; see `MovingAverageMinMaxObserver`.

    Args: `averaging_constant`, and those of `PerChannelMinMaxObserver`.

    Example:
        >>> observer = MovingAveragePerChannelMinMaxObserver(averaging_constant=0.5)
        >>> _ = observer(torch.tensor([[0.0, 2.0]])), observer(torch.tensor([[0.0, 4.0]]))
        >>> observer.max_val
        tensor([3.])
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: Any = quint8,
        qscheme: Any = per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            ch_axis=ch_axis,
            dtype=dtype,
            qscheme=qscheme,
            reduce_range=reduce_range,
            quant_min=quant_min,
            quant_max=quant_max,
            eps=eps,
            is_dynamic=is_dynamic,
            **kwargs,
        )
        self.averaging_constant = float(averaging_constant)

    def forward(self, x_orig: Tensor) -> Tensor:
        x = x_orig.detach()
        if x.numel() > 0:
            self._make_room(x)
            torch.ops.zeropoint.observe_range_(x, self.min_val, self.max_val, self.ch_axis, self.averaging_constant)
        return x_orig

    @torch.jit.export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point), each of shape ``(channels,)``. Without data, 1 and 0 with a warning."""
        return self._calculate_qparams(self.min_val, _in_order(self.min_val, self.max_val))

    def merge(self, other: UniformQuantizationObserverBase) -> None:
        """Set each range to the mean of both averages, or to the one that saw data."""
        self._require_same_kind(other)
        if self._take_room(other):
            for mine, theirs in ((self.min_val, other.min_val), (self.max_val, other.max_val)):
                theirs = theirs.to(mine)
                seen = torch.where(torch.isinf(theirs), mine, (mine + theirs) / 2)
                mine.copy_(torch.where(torch.isinf(mine), theirs, seen))
