"""The operators ``torch.ops.zeropoint.*``. Importing this package registers them all."""

from zeropoint.ops import (
    blockwise,
    decomposed,
    elementwise,
    fake_quant,
    fused,
    geometry,
    layers,
    learnable,
    observation,
    pooling,
    quantized,
    resampling,
    shuffling,
    stored,
)

__all__ = [
    "blockwise",
    "decomposed",
    "elementwise",
    "fake_quant",
    "fused",
    "geometry",
    "layers",
    "learnable",
    "observation",
    "pooling",
    "quantized",
    "resampling",
    "shuffling",
    "stored",
]
