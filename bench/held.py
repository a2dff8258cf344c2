"""Everybody held to fewer instructions than the CPU has: ``--isa avx2``. Imports nothing that looks at the CPU.

oneDNN (in OpenVINO and torch), CTranslate2 and torch's own kernels take such orders. ONNX Runtime's MLAS takes none,
and FBGEMM in torch.ao looks at the CPU itself, whatever ``ATEN_CPU_CAPABILITY`` says: both are left out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

LEVELS = {
    "avx2": {
        "ZEROPOINT_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "CT2_FORCE_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "avx_vnni": {
        "ZEROPOINT_ISA": "avx_vnni", "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI", "CT2_FORCE_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}  # fmt: skip
NOT_HELD = ("torch.ao jit", "ONNX Runtime")


def hold(arguments: Sequence[str]) -> str:
    """Set the environment as ``--isa`` asks, for this process and those that it starts; answers the level."""
    levels = [value for option, value in pairwise(arguments) if option == "--isa" and value in LEVELS]
    for level in levels[:1]:
        os.environ.update(LEVELS[level])
    return next(iter(levels), "")
