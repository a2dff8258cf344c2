"""Operators on quantized tensors, with the names and arguments of torch.ops.quantized.

Each is also a graph operator, ``torch.ops.zeropoint.<name>``, on plain integers, with their parameters as arguments
(`zeropoint.ops`), which does the work. Those that only pass their arguments on follow from its declaration (`derived`).
"""

from typing import Any

from zeropoint.qfunctions import elementwise, embedding, packed, recurrent, weight_only
from zeropoint.qfunctions.derived import derived

_FUNCTIONS = derived()
for _module in (elementwise, embedding, packed, recurrent, weight_only):
    _FUNCTIONS |= {name: getattr(_module, name) for name in _module.__all__}
__all__ = sorted(_FUNCTIONS)
globals().update(_FUNCTIONS)


def __getattr__(name: str) -> Any:
    """Nothing: type checkers read here that the module has more names than they see."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
