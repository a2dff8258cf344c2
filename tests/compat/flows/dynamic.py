"""Dynamic quantization: an LSTM, and the linear layers of attention."""

import torch
from torch import nn
from torch.quantization import quantize_dynamic


class Attention(nn.Module):
    def __init__(self, size) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, size)
        self.norm = nn.LayerNorm(size)

    def forward(self, x):
        mixed = nn.functional.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))
        return self.norm(x + mixed)


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 16, num_layers=2)
        self.attention = Attention(16)
        self.out = nn.Linear(16, 50)

    def forward(self, x):
        hidden, _ = self.lstm(self.words(x))
        return self.out(self.attention(hidden))


torch.manual_seed(0)
model = Reader().eval()
words = torch.randint(0, 50, (5, 3))
small = quantize_dynamic(model, {nn.LSTM, nn.Linear}, dtype=torch.qint8)
assert "DynamicQuantizedLSTM" in repr(small)
with torch.no_grad():
    RESULT = small(words)
    expected = model(words)
# Inputs are quantized in every layer, to 7 bits or 8.
STEP = float(expected.abs().max()) / 20
assert (RESULT - expected).abs().max() < STEP
