"""QTensor, the quantized tensor. Importing this package registers everything it can do."""

from zeropoint import ops as _ops  # noqa: F401 (registers torch.ops.zeropoint)
from zeropoint.tensor import (
    compare,
    create,
    elementwise,
    files,
    pooling,
    reduce,
    resampling,
    script_files,
    shape,
    spatial,
    write,
)
from zeropoint.tensor.qtensor import QTensor

__all__ = [
    "QTensor",
    "compare",
    "create",
    "elementwise",
    "files",
    "pooling",
    "reduce",
    "resampling",
    "script_files",
    "shape",
    "spatial",
    "write",
]
