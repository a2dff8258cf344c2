"""Where PyTorch's quantized operators differ between CPUs, and by how much.

Their vector code (AVX2 and AVX512 agree) fuses a product and a sum into one rounding and adds the zero point after it.
Without AVX2 (ATEN_CPU_CAPABILITY=default), and in what is left over of a vector, other code rounds the same number in
another order. The two are a step apart at ties, and nowhere else; we have the rounding of the vectors everywhere.
"""

from __future__ import annotations

import torch
from strategies import assert_same

VECTORS = torch.backends.cpu.get_cpu_capability() != "DEFAULT"
MOST_STEPS = 0 if VECTORS else 1


def assert_same_in_vectors(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal integers; on a CPU for which PyTorch has no vectors, at most a step apart."""
    if VECTORS:
        return assert_same(ours, theirs)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    apart = (ours.to(torch.int64) - theirs.to(torch.int64)).abs()
    assert not (apart > MOST_STEPS).any(), f"{int(apart.max())} steps apart"
    return None
