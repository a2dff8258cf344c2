"""Fake-quantize modules: an observer, and the simulation with what it found."""

from typing import Any

import torch
from torch import Tensor

from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.numerics.dtypes import quint8
from zeropoint.numerics.schemes import qscheme
from zeropoint.observers.base import any_dtype, integer_range
from zeropoint.observers.minmax import MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver
from zeropoint.observers.partial import PartialWrapper
from zeropoint.observers.passive import FixedQParamsObserver


def _dtype_asked_for(observer: Any, observer_kwargs: dict[str, Any]) -> Any:
    """The dtype the observer will have: given to the module, or to the observer's constructor before."""
    dtype = observer_kwargs.get("dtype", quint8)
    while isinstance(observer, PartialWrapper):
        dtype = observer.p.keywords.get("dtype", dtype)
        observer = observer.p.func
    return any_dtype(dtype)


def require_inside_dtype(name: str, quant_min: int, quant_max: int, dtype: Any) -> None:
    """Refuse a range of integers that `dtype` does not have."""
    if quant_min > quant_max:
        raise ValueError(f"{name}: quant_min must not be above quant_max, got {quant_min} and {quant_max}")
    low, high = integer_range(any_dtype(dtype))
    if quant_min < low or quant_max > high:
        raise ValueError(f"{name}: {quant_min}..{quant_max} is not inside {dtype}'s {low}..{high}")


class FakeQuantize(FakeQuantizeBase):
    """Observes its input and fake-quantizes it with the current qparams.

    ``y = (clamp(rne(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale``. The gradient passes through
    where the value is inside the range.

    Args:
        observer: an observer class, optionally with arguments from ``with_args``.
        quant_min, quant_max: the integer range; by default the observer's.
        is_dynamic: compute the qparams from each tensor.
        observer_kwargs: further arguments for the observer.

    Example:
        >>> module = FakeQuantize(quant_min=0, quant_max=3)
        >>> module(torch.tensor([0.0, 0.4, 1.2, 3.0]))
        tensor([0., 0., 1., 3.])
        >>> module.scale, module.zero_point
        (tensor([1.]), tensor([0], dtype=torch.int32))
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if quant_min is not None and quant_max is not None:
            require_inside_dtype(name, quant_min, quant_max, _dtype_asked_for(observer, observer_kwargs))
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        observer_kwargs["is_dynamic"] = is_dynamic
        self.activation_post_process = observer(**observer_kwargs)
        found = self.activation_post_process
        self.quant_min: int = found.quant_min
        self.quant_max: int = found.quant_max
        self.is_dynamic: bool = found.is_dynamic
        self.dtype = found.dtype
        self.qscheme = qscheme(found.qscheme)  # an observer of others has torch's
        self.ch_axis: int = getattr(found, "ch_axis", -1)
        self.is_per_channel: bool = self.qscheme.per_channel
        device = next((b.device for b in found.buffers()), None)
        zero_point_dtype = torch.float32 if self.qscheme.float_zero_point else torch.int32
        self.register_buffer("scale", torch.tensor([1.0], dtype=torch.float32, device=device))
        self.register_buffer("zero_point", torch.tensor([0], dtype=zero_point_dtype, device=device))

    @torch.jit.export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point) from the observer."""
        scale, zero_point = self.activation_post_process.calculate_qparams()
        return scale, zero_point

    def forward(self, X: Tensor) -> Tensor:
        if bool(self.observer_enabled[0] == 1):
            self.activation_post_process(X.detach())
            scale, zero_point = self.calculate_qparams()
            if self.scale.shape != scale.shape:
                self.scale.resize_(scale.shape)
                self.zero_point.resize_(zero_point.shape)
            self.scale.copy_(scale)
            self.zero_point.copy_(zero_point)
        if bool(self.fake_quant_enabled[0] == 1):
            if self.is_per_channel:
                X = torch.ops.zeropoint.fake_quantize_per_channel_affine(
                    X, self.scale, self.zero_point, self.ch_axis, self.quant_min, self.quant_max
                )
            else:
                X = torch.ops.zeropoint.fake_quantize_per_tensor_affine(
                    X, self.scale, self.zero_point, self.quant_min, self.quant_max
                )
        return X

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled},"
            f" quant_min={self.quant_min}, quant_max={self.quant_max}, dtype={self.dtype}, qscheme={self.qscheme},"
            f" ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in (("scale", self.scale), ("zero_point", self.zero_point)):
            if prefix + name in state_dict:
                buffer.resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class FixedQParamsFakeQuantize(FakeQuantize):
    """Fake-quantizes with fixed qparams, for outputs with a known range such as sigmoid.

    Args:
        observer: a constructor of `FixedQParamsObserver`.

    Example:
        >>> module = FixedQParamsFakeQuantize(FixedQParamsObserver.with_args(scale=0.5, zero_point=0))
        >>> module(torch.tensor([0.3, 0.9]))
        tensor([0.5000, 1.0000])
    """

    def __init__(self, observer: Any) -> None:
        super().__init__(observer=observer)
        found = self.activation_post_process
        if type(found) is not FixedQParamsObserver:
            raise TypeError(f"FixedQParamsFakeQuantize: observer must make a FixedQParamsObserver, got {found}")
        if self.is_per_channel:
            raise NotImplementedError(f"FixedQParamsFakeQuantize: qscheme must be per tensor, got {self.qscheme}")
        self._observer_ctr = observer
        self.scale = found.scale
        self.zero_point = found.zero_point

    @torch.jit.export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The given (scale, zero_point)."""
        return self.scale, self.zero_point


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """`FakeQuantize` with a moving average, in one native call.

    Computes scale and zero point from the running range as in dynamic quantization (`choose_qparams`). They can differ
    from the observer's formula in the last bit of the scale, or by one in the zero point, as in PyTorch.

    Args: those of `FakeQuantize`; the observer must be a moving average.

    Example:
        >>> module = FusedMovingAvgObsFakeQuantize()
        >>> module(torch.tensor([-1.0, 0.11, 4.1]))
        tensor([-1.0000,  0.1200,  4.1000])
    """

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int = 0,
        quant_max: int = 255,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        found = self.activation_post_process
        if not isinstance(found, (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)):
            raise TypeError(
                "FusedMovingAvgObsFakeQuantize: the observer must be a MovingAverageMinMaxObserver or"
                f" MovingAveragePerChannelMinMaxObserver, got {type(found).__name__}; FakeQuantize takes any"
            )
        device = self.scale.device
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.int64, device=device))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.int64, device=device))
        self.is_symmetric_quant: bool = self.qscheme.symmetric

    def forward(self, X: Tensor) -> Tensor:
        return torch.ops.zeropoint.fused_moving_avg_obs_fake_quant(
            X,
            self.observer_enabled,
            self.fake_quant_enabled,
            self.activation_post_process.min_val,
            self.activation_post_process.max_val,
            self.scale,
            self.zero_point,
            self.activation_post_process.averaging_constant,
            self.quant_min,
            self.quant_max,
            self.ch_axis,
            self.is_per_channel,
            self.is_symmetric_quant,
        )
