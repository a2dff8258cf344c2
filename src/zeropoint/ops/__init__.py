"""The operators ``torch.ops.zeropoint.*``. Importing this package registers them all."""

from zeropoint.ops import (
    blockwise,
    decomposed,
    embedding,
    fake_quant,
    fused,
    geometry,
    layers,
    learnable,
    norms,
    observation,
    pooling,
    quantized,
    recurrent,
    resampling,
    shuffling,
    stored,
)

__all__ = [
    "blockwise",
    "decomposed",
    "embedding",
    "fake_quant",
    "fused",
    "geometry",
    "layers",
    "learnable",
    "norms",
    "observation",
    "pooling",
    "quantized",
    "recurrent",
    "resampling",
    "shuffling",
    "stored",
]
