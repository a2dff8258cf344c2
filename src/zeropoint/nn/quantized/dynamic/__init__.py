"""Layers on floats that are quantized on the way in, under the paths of torch.ao.nn.quantized.dynamic."""

from zeropoint.nn.quantized.dynamic.cells import GRUCell, LSTMCell, RNNCell
from zeropoint.nn.quantized.dynamic.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from zeropoint.nn.quantized.dynamic.linear import Linear
from zeropoint.nn.quantized.dynamic.rnn import GRU, LSTM

__all__ = [
    "GRU",
    "LSTM",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "GRUCell",
    "LSTMCell",
    "Linear",
    "RNNCell",
]
