"""Accuracy without training: weights and biases that lose less when they are quantized."""

from __future__ import annotations

from zeropoint.accuracy.bias_correction import MeanShadowLogger, bias_correction
from zeropoint.accuracy.equalize import cross_layer_equalization, equalize

__all__ = ["MeanShadowLogger", "bias_correction", "cross_layer_equalization", "equalize"]
