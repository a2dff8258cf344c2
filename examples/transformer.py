"""A transformer in 8 bits: static, dynamic and weights only, side by side, each as a file that runs without PyTorch."""

# %%
import tempfile
from pathlib import Path

import torch
from torch import nn

import zeropoint


class Classifier(nn.Module):
    """Words to one of four classes, read from what the first word has become."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(500, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(64, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.words(ids))[:, 0])


torch.manual_seed(0)
model = Classifier().eval()
batches = [torch.randint(0, 500, (4, 24)) for _ in range(4)]

# %% [markdown]
# Norms, sums and attention weights stay float by default: a few of their channels are so large that 8 bits would have
# no room for the others. The summary says so.

# %%
folder = Path(tempfile.mkdtemp())
for mode in ("static", "dynamic", "weight_only"):
    quantized = zeropoint.to_int8(model, (batches[0],), batches if mode == "static" else None, mode=mode)
    found = zeropoint.compare(model, quantized, batches)
    print(f"{mode:<12} cosine {found.cosine:.5f}   SQNR {found.sqnr:.1f} dB   {dict(quantized.summary().counts())}")

    # The same as a program: one file, which numpy is enough to run, with any batch and any number of words.
    zeropoint.compile(quantized, (batches[0],)).save(folder / f"{mode}.zpt")
    program = zeropoint.runtime.load(folder / f"{mode}.zpt")
    ids = torch.randint(0, 500, (2, 9))
    with torch.no_grad():
        assert torch.equal(torch.from_numpy(program(ids.numpy())), quantized(ids))
    print(f"{'':<12} {(folder / f'{mode}.zpt').stat().st_size:,} bytes, {len(program.profile(ids.numpy()))} steps")
