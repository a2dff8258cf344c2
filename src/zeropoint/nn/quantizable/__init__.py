"""Float modules made of parts that can be observed: what an LSTM and an attention are while a model is calibrated."""

import zeropoint.nn.quantized  # noqa: F401 (first: its modules are made from those here)
from zeropoint.nn.quantizable.attention import MultiheadAttention
from zeropoint.nn.quantizable.lstm import LSTM, LSTMCell

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]
