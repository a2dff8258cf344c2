"""Layers with a ReLU in quantization-aware training."""

from __future__ import annotations

from typing import Any

from torch import nn

from zeropoint.nn import qat
from zeropoint.nn.intrinsic import fused


class _WithReLU:
    """A ReLU after a layer, which the layer computes; goes before its class."""

    _FUSED: Any
    _RELU = True

    def to_float(self) -> Any:
        """A fused float module with copies of the parameters."""
        return self._FUSED(super().to_float(), nn.ReLU())  # type: ignore[misc]


class ConvReLU1d(_WithReLU, qat.Conv1d):
    """`zeropoint.nn.qat.Conv1d` with a ReLU."""

    _FUSED = _FLOAT_MODULE = fused.ConvReLU1d


class ConvReLU2d(_WithReLU, qat.Conv2d):
    """`zeropoint.nn.qat.Conv2d` with a ReLU."""

    _FUSED = _FLOAT_MODULE = fused.ConvReLU2d


class ConvReLU3d(_WithReLU, qat.Conv3d):
    """`zeropoint.nn.qat.Conv3d` with a ReLU."""

    _FUSED = _FLOAT_MODULE = fused.ConvReLU3d


class LinearReLU(_WithReLU, qat.Linear):
    """`zeropoint.nn.qat.Linear` with a ReLU."""

    _FUSED = _FLOAT_MODULE = fused.LinearReLU
