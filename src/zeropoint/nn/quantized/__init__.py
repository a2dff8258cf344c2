"""Quantized layers, and functions on quantized tensors."""

from zeropoint.nn.quantized import functional
from zeropoint.nn.quantized.attention import MultiheadAttention
from zeropoint.nn.quantized.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from zeropoint.nn.quantized.functional_modules import FloatFunctional, FXFloatFunctional
from zeropoint.nn.quantized.linear import Linear
from zeropoint.nn.quantized.lstm import LSTM
from zeropoint.nn.quantized.quantize import DeQuantize, Quantize

__all__ = [
    "LSTM",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DeQuantize",
    "FXFloatFunctional",
    "FloatFunctional",
    "Linear",
    "MultiheadAttention",
    "Quantize",
    "functional",
]
