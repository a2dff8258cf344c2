"""Which steps operators of graphs become: `table` has them all, the other modules fill it."""

from zeropoint.engine.steps import borders, elementwise, float_functions, layers, moving, norms, plain, pooling, views
from zeropoint.engine.steps.table import NUMBERS, ROWS, Unsupported

__all__ = ["NUMBERS", "ROWS", "Unsupported"]
__all__ += ["borders", "elementwise", "float_functions", "layers", "moving", "norms", "plain", "pooling", "views"]
