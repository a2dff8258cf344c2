"""Accuracy without training: weights and biases that lose less when they are quantized."""

from __future__ import annotations

from zeropoint.accuracy.adaround import adaround
from zeropoint.accuracy.batch_norm import reestimate_batch_norms
from zeropoint.accuracy.bias_correction import correct_biases
from zeropoint.accuracy.cross_layer import LayerPair, equalize_layers, layer_pairs
from zeropoint.accuracy.equalize import cross_layer_equalization, equalize
from zeropoint.accuracy.gptq import gptq
from zeropoint.accuracy.layers import Change, TunableLayer, layers_of
from zeropoint.accuracy.ranges import choose_ranges
from zeropoint.accuracy.scaling import search_scaling
from zeropoint.accuracy.smoothing import smooth_layers

__all__ = [
    "Change",
    "LayerPair",
    "TunableLayer",
    "adaround",
    "choose_ranges",
    "correct_biases",
    "cross_layer_equalization",
    "equalize",
    "equalize_layers",
    "gptq",
    "layer_pairs",
    "layers_of",
    "reestimate_batch_norms",
    "search_scaling",
    "smooth_layers",
]
