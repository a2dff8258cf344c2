"""Switching observation and fake quantization on and off: functions for ``model.apply``."""

from __future__ import annotations

from torch import nn

from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.observers.observer_state import is_scripted


def is_fake_quant(module: nn.Module) -> bool:
    """Whether `module` is a fake-quantize module, also a scripted one.

    Example:
        >>> from zeropoint.fake_quant import FakeQuantize
        >>> is_fake_quant(FakeQuantize()), is_fake_quant(nn.ReLU())
        (True, False)
    """
    return isinstance(module, FakeQuantizeBase) or is_scripted(module, "zeropoint.fake_quant")


def disable_fake_quant(mod: nn.Module) -> None:
    """Turn fake quantization off in `mod`: ``model.apply(disable_fake_quant)`` for a whole model.

    Example:
        >>> from zeropoint.fake_quant import FakeQuantize
        >>> model = nn.Sequential(FakeQuantize())
        >>> _ = model.apply(disable_fake_quant)
        >>> model[0].fake_quant_enabled
        tensor([0], dtype=torch.uint8)
    """
    if is_fake_quant(mod):
        mod.disable_fake_quant()


def enable_fake_quant(mod: nn.Module) -> None:
    """Turn fake quantization on in `mod`: ``model.apply(enable_fake_quant)`` for a whole model."""
    if is_fake_quant(mod):
        mod.enable_fake_quant()


def disable_observer(mod: nn.Module) -> None:
    """Turn observers off in `mod`: ``model.apply(disable_observer)`` for a whole model."""
    if is_fake_quant(mod):
        mod.disable_observer()


def enable_observer(mod: nn.Module) -> None:
    """Turn observers on in `mod`: ``model.apply(enable_observer)`` for a whole model."""
    if is_fake_quant(mod):
        mod.enable_observer()
