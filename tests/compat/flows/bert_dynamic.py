"""Dynamic quantization of a text encoder: its linear layers, by type and by a dictionary of qconfigs, and saved."""

import io

import torch
from torch import nn
from torch.ao.quantization import default_dynamic_qconfig, per_channel_dynamic_qconfig, quantize_dynamic


class Encoder(nn.Module):
    def __init__(self, size, heads) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, size)
        self.mixed, self.wide, self.narrow = nn.Linear(size, size), nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])

    def forward(self, x):
        parts = [part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)]
        mixed = nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        x = self.norms[0](x + self.mixed(mixed))
        return self.norms[1](x + self.narrow(nn.functional.gelu(self.wide(x))))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 64), nn.Embedding(16, 64)
        self.layers = nn.Sequential(Encoder(64, 4), Encoder(64, 4))
        self.out = nn.Linear(64, 2)

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        return self.out(torch.tanh(self.layers(x)[:, 0]))


def saved(model):
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    return buffer


torch.manual_seed(0)
model = Classifier().eval()
words = torch.randint(0, 100, (3, 12))
small = quantize_dynamic(model, {"layers": per_channel_dynamic_qconfig, "out": default_dynamic_qconfig})
assert len(saved(small).getvalue()) < 0.6 * len(saved(model).getvalue())
with torch.no_grad():
    RESULT, expected = small(words), model(words)
again = quantize_dynamic(Classifier().eval(), {nn.Linear}, dtype=torch.qint8)
buffer = saved(quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8))
buffer.seek(0)
again.load_state_dict(torch.load(buffer))
# Inputs are quantized in every layer, to 7 bits or 8.
STEP = float(expected.abs().max()) / 20
assert (RESULT - expected).abs().max() < STEP
assert (again(words) - expected).abs().max() < STEP
