"""The operators ``torch.ops.zeropoint.*``. Importing this package registers them all."""

from zeropoint.ops import (
    blockwise,
    decomposed,
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
    weight_only,
)

__all__ = [
    "blockwise",
    "decomposed",
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
    "weight_only",
]
