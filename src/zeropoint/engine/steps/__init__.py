"""Which steps operators of graphs become: `table` has them all, the other modules fill it."""

from zeropoint.engine.steps import (
    borders,
    elementwise,
    embedding,
    floats,
    layers,
    moving,
    norms,
    plain,
    pooling,
    recurrent,
    views,
    weight_only,
)
from zeropoint.engine.steps.table import NUMBERS, ROWS, Unsupported

__all__ = ["NUMBERS", "ROWS", "Unsupported"]
__all__ += ["borders", "elementwise", "embedding", "floats", "layers", "moving", "norms", "plain", "pooling"]
__all__ += ["recurrent", "views", "weight_only"]
