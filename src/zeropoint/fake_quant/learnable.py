"""Fake quantization that learns its step: scale and zero point are parameters."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.fake_quant.modules import require_inside_dtype
from zeropoint.numerics.schemes import qscheme
from zeropoint.observers.base import EPS


class _LearnableFakeQuantize(FakeQuantizeBase):
    """Fake-quantizes with a scale and zero point that start from an observer's and are then trained.

    Three states: `enable_static_estimate` (observe and fake-quantize), `enable_static_observation` (observe only),
    `enable_param_learning` (train scale and zero point by gradient). It starts in the first.

    Args:
        observer: an observer class or constructor.
        quant_min, quant_max: the integers to use.
        scale, zero_point: where learning starts if nothing is observed.
        channel_len: the number of channels of a per-channel observer; -1: per tensor.
        use_grad_scaling: multiply the gradients of scale and zero point by ``1 / sqrt(x.numel() * quant_max)``.

    Example:
        >>> from zeropoint.observers import MovingAverageMinMaxObserver
        >>> module = _LearnableFakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=3)
        >>> _ = module(torch.tensor([0.0, 3.0]))
        >>> module.enable_param_learning()(torch.tensor([0.2, 0.6])).sum().backward()
        >>> module.scale.grad
        tensor([0.2000])
    """

    eps: Tensor
    static_enabled: Tensor
    learning_enabled: Tensor

    def __init__(
        self,
        observer: Any,
        quant_min: int = 0,
        quant_max: int = 255,
        scale: float = 1.0,
        zero_point: float = 0.0,
        channel_len: int = -1,
        use_grad_scaling: bool = False,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__()
        if quant_min >= quant_max:
            raise ValueError(f"quant_min must be below quant_max, got {quant_min} and {quant_max}")
        if channel_len != -1 and channel_len < 1:
            raise ValueError(f"channel_len must be the number of channels, or -1 for per tensor, got {channel_len}")
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.use_grad_scaling = use_grad_scaling
        channels = 1 if channel_len == -1 else channel_len
        self.scale = Parameter(torch.full((channels,), float(scale)))
        self.zero_point = Parameter(torch.full((channels,), float(zero_point)))
        self.activation_post_process = observer(quant_min=quant_min, quant_max=quant_max, **observer_kwargs)
        self.dtype = self.activation_post_process.dtype
        require_inside_dtype("_LearnableFakeQuantize", quant_min, quant_max, self.dtype)
        self.qscheme = qscheme(self.activation_post_process.qscheme)
        self.ch_axis: int = getattr(self.activation_post_process, "ch_axis", -1)
        self.is_symmetric: bool = self.qscheme.symmetric
        self.is_per_channel: bool = self.qscheme.per_channel
        self.register_buffer("static_enabled", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("learning_enabled", torch.tensor([0], dtype=torch.uint8))
        self.bitwidth = (quant_max - quant_min + 1).bit_length() - 1
        self.register_buffer("eps", torch.tensor([EPS]))

    def enable_param_learning(self) -> "_LearnableFakeQuantize":
        """Train scale and zero point; stop observing."""
        return self.toggle_qparam_learning(True).toggle_fake_quant(True).toggle_observer_update(False)

    def enable_static_estimate(self) -> "_LearnableFakeQuantize":
        """Take scale and zero point from the observer, and fake-quantize with them."""
        return self.toggle_qparam_learning(False).toggle_fake_quant(True).toggle_observer_update(True)

    def enable_static_observation(self) -> "_LearnableFakeQuantize":
        """Observe only."""
        return self.toggle_qparam_learning(False).toggle_fake_quant(False).toggle_observer_update(True)

    def toggle_observer_update(self, enabled: bool = True) -> "_LearnableFakeQuantize":
        """Whether scale and zero point follow the observer."""
        self.static_enabled[0] = int(enabled)
        return self

    def enable_observer(self, enabled: bool = True) -> None:
        """Whether scale and zero point follow the observer."""
        self.toggle_observer_update(enabled)

    def toggle_qparam_learning(self, enabled: bool = True) -> "_LearnableFakeQuantize":
        """Whether scale and zero point are trained."""
        self.learning_enabled[0] = int(enabled)
        self.scale.requires_grad = enabled
        self.zero_point.requires_grad = enabled
        return self

    def toggle_fake_quant(self, enabled: bool = True) -> "_LearnableFakeQuantize":
        """Whether values are fake-quantized."""
        self.fake_quant_enabled[0] = int(enabled)
        return self

    def observe_quant_params(self) -> None:
        """Print scale and zero point."""
        print(f"{type(self).__name__} scale: {self.scale.detach()}")
        print(f"{type(self).__name__} zero point: {self.zero_point.detach()}")

    @torch.jit.export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point) as trained: the scale at least eps, the zero point rounded and inside the range."""
        with torch.no_grad():
            self.scale.clamp_(min=float(self.eps.item()))
        scale = self.scale.detach()
        zero_point = self.zero_point.detach().round().clamp(self.quant_min, self.quant_max).to(torch.int64)
        return scale, zero_point

    def forward(self, X: Tensor) -> Tensor:
        with torch.no_grad():
            if bool(self.static_enabled[0] == 1):
                self.activation_post_process(X.detach())
                scale, zero_point = self.activation_post_process.calculate_qparams()
                self.scale.copy_(scale)
                self.zero_point.copy_(zero_point)
            else:
                self.scale.clamp_(min=float(self.eps.item()))
            if bool(self.fake_quant_enabled[0] == 1) and self.is_symmetric:
                self.zero_point.zero_()
        if bool(self.fake_quant_enabled[0] == 1):
            grad_factor = 1.0
            if self.use_grad_scaling:
                grad_factor = 1.0 / float(X.numel() * self.quant_max) ** 0.5
            if self.is_per_channel:
                X = torch.ops.zeropoint.fake_quantize_learnable_per_channel_affine(
                    X, self.scale, self.zero_point, self.ch_axis, self.quant_min, self.quant_max, grad_factor
                )
            else:
                X = torch.ops.zeropoint.fake_quantize_learnable_per_tensor_affine(
                    X, self.scale, self.zero_point, self.quant_min, self.quant_max, grad_factor
                )
        return X
