"""Which steps operators of graphs become: `table` has them all, the other modules fill it."""

from zeropoint.engine.steps import (
    borders,
    choosing,
    elementwise,
    embedding,
    float_functions,
    float_layers,
    float_pooling,
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
__all__ += ["borders", "choosing", "elementwise", "embedding", "float_functions", "float_layers", "float_pooling"]
__all__ += ["floats", "layers", "moving", "norms"]
__all__ += ["plain", "pooling", "recurrent", "views", "weight_only"]
