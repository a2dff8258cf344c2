"""PyTorch's engines for layers of bytes, and how far their results may be from ours."""

from __future__ import annotations

import torch

ENGINES = [e for e in ("fbgemm", "onednn") if e in torch.backends.quantized.supported_engines]
# With activations of 7 bits: vpmaddubsw, which FBGEMM uses where there is no VNNI, saturates with more.
SEVEN_BITS = 128


def assert_within_one_step(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    apart = (ours.to(torch.int64) - theirs.to(torch.int64)).abs()
    assert apart.max() <= 1
    assert (apart == 0).double().mean() >= 0.999
