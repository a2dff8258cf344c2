"""Which steps operators of graphs become: `table` has them all, the other modules fill it."""

from zeropoint.engine.steps import borders, elementwise, layers, moving, norms, pooling, views
from zeropoint.engine.steps.table import NUMBERS, ROWS, Unsupported

__all__ = ["NUMBERS", "ROWS", "Unsupported", "borders", "elementwise", "layers", "moving", "norms", "pooling", "views"]
