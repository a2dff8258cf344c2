"""Which steps operators of graphs become: `table` has them all, the other modules fill it."""

from zeropoint.compiler.steps import (
    arithmetic,
    borders,
    elementwise,
    embedding,
    float_functions,
    float_layers,
    float_pooling,
    floats,
    layers,
    movement,
    norms,
    pooling,
    recurrent,
    selection,
    views,
    weight_only,
)
from zeropoint.compiler.steps.table import NUMBERS, ROWS, Unsupported

__all__ = ["NUMBERS", "ROWS", "Unsupported"]
__all__ += ["borders", "selection", "elementwise", "embedding", "float_functions", "float_layers", "float_pooling"]
__all__ += ["floats", "layers", "movement", "norms"]
__all__ += ["arithmetic", "pooling", "recurrent", "views", "weight_only"]
