"""A transformer in 8 bits: static, dynamic and weights only, side by side."""

# %%
import torch
from torch import nn

import zeropoint


class Classifier(nn.Module):
    """Words to one of four classes."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(500, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.words(ids)).mean(1))


torch.manual_seed(0)
model = Classifier().eval()
batches = [torch.randint(0, 500, (4, 24)) for _ in range(4)]

# %% [markdown]
# Norms, sums and attention weights stay float by default: a few of their channels are so large that 8 bits would have
# no room for the others. The summary says so.

# %%
for mode in ("static", "dynamic", "weight_only"):
    quantized = zeropoint.to_int8(model, (batches[0],), batches if mode == "static" else None, mode=mode)
    found = zeropoint.compare(model, quantized, batches)
    print(f"{mode:<12} cosine {found.cosine:.5f}   SQNR {found.sqnr:.1f} dB   {dict(quantized.summary().counts())}")
