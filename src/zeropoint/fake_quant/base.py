"""What all fake-quantize modules share: two switches."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.observers.partial import Configurable


class FakeQuantizeBase(Configurable, ABC, nn.Module):
    """Simulates quantization in training: observes values, and rounds them as quantization will.

    Both can be switched off, in one-element buffers that are saved with the model. A subclass has ``forward(x)`` and
    ``calculate_qparams()``.
    """

    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.uint8))

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any: ...

    @torch.jit.export
    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Switch fake quantization on, or off."""
        self.fake_quant_enabled[0] = 1 if enabled else 0

    @torch.jit.export
    def disable_fake_quant(self) -> None:
        """Switch fake quantization off."""
        self.enable_fake_quant(False)

    @torch.jit.export
    def enable_observer(self, enabled: bool = True) -> None:
        """Switch observation on, or off."""
        self.observer_enabled[0] = 1 if enabled else 0

    @torch.jit.export
    def disable_observer(self) -> None:
        """Switch observation off."""
        self.enable_observer(False)
