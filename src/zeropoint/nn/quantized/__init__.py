"""Quantized layers, and functions on quantized tensors."""

from torch.nn import MaxPool2d  # works on quantized tensors as it is; torch.ao has it here too

from zeropoint.nn.quantized import functional
from zeropoint.nn.quantized.activation import ELU, Hardswish, LeakyReLU, PReLU, ReLU6, Sigmoid, Softmax
from zeropoint.nn.quantized.attention import MultiheadAttention
from zeropoint.nn.quantized.batchnorm import BatchNorm2d, BatchNorm3d
from zeropoint.nn.quantized.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from zeropoint.nn.quantized.dropout import Dropout
from zeropoint.nn.quantized.embedding import Embedding, EmbeddingBag
from zeropoint.nn.quantized.function import Dequantized, Function
from zeropoint.nn.quantized.functional_modules import FloatFunctional, FXFloatFunctional, QFunctional
from zeropoint.nn.quantized.linear import Linear
from zeropoint.nn.quantized.lstm import LSTM
from zeropoint.nn.quantized.normalization import GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LayerNorm
from zeropoint.nn.quantized.quantize import DeQuantize, Quantize

__all__ = [
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DeQuantize",
    "Dropout",
    "ELU",
    "Embedding",
    "EmbeddingBag",
    "FXFloatFunctional",
    "FloatFunctional",
    "Dequantized",
    "Function",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "LSTM",
    "Linear",
    "MaxPool2d",
    "MultiheadAttention",
    "PReLU",
    "QFunctional",
    "Quantize",
    "ReLU6",
    "Sigmoid",
    "Softmax",
    "functional",
]
