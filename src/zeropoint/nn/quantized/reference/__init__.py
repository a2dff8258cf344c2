"""Float modules whose weights are rounded as quantization will, under the paths of torch.ao.nn.quantized.reference."""

from zeropoint.nn.quantized.reference.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from zeropoint.nn.quantized.reference.linear import Linear
from zeropoint.nn.quantized.reference.rnn import GRU, LSTM, GRUCell, LSTMCell, RNNCell
from zeropoint.nn.quantized.reference.sparse import Embedding, EmbeddingBag
from zeropoint.nn.quantized.reference.weight import get_qparam_dict

__all__ = [
    "GRU",
    "LSTM",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Embedding",
    "EmbeddingBag",
    "GRUCell",
    "LSTMCell",
    "Linear",
    "RNNCell",
    "get_qparam_dict",
]
