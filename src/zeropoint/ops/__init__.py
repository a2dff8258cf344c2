"""The operators ``torch.ops.zeropoint.*``. Importing this package registers them all."""

from zeropoint.ops import (
    blockwise,
    decomposed,
    fake_quant,
    fused,
    layers,
    learnable,
    observation,
    pooling,
    resampling,
    shuffling,
    stored,
)

__all__ = [
    "blockwise",
    "decomposed",
    "fake_quant",
    "fused",
    "layers",
    "learnable",
    "observation",
    "pooling",
    "resampling",
    "shuffling",
    "stored",
]
