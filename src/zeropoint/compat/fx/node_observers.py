"""What is planned for one node: which observer its inputs, its weight and its result get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from zeropoint.numerics.dtypes import qint8, qint32, quint8
from zeropoint.observers.passive import PlaceholderObserver

_FLOAT8 = (getattr(torch, "float8_e5m2", None), getattr(torch, "float8_e4m3fn", None))
# What a value is observed for.
OBSERVED_DTYPES = (
    quint8, qint8, qint32, torch.float16, torch.uint8, torch.int8, torch.int16, torch.int32,
    *(dtype for dtype in _FLOAT8 if dtype is not None),
)  # fmt: skip

FLOAT = PlaceholderObserver.with_args(dtype=torch.float32)


def dtype_of(constructor: Any) -> tuple[Any, bool]:
    """The dtype that an observer is for, and whether its range is found while the model runs; (None, False) of None."""
    if constructor is None:
        return None, False
    made = constructor()
    return made.dtype, bool(getattr(made, "is_dynamic", False))


@dataclass
class Plan:
    """Constructors of observers for a node, None where it has no tensor; where its weight and bias stand.

    `shares`: its result has the observer of its input. `reuses`: its result has the parameters of its input, which is
    not observed for it. `standalone`: it is a module that is quantized by itself.
    """

    input: Any = FLOAT
    output: Any = FLOAT
    weight: Any = FLOAT
    bias: Any = FLOAT
    weight_index: int | None = None
    bias_index: int | None = None
    shares: bool = False
    reuses: bool = False
    standalone: bool = False

    def is_weight(self, node: fx.Node, argument: Any) -> bool:
        """Whether an argument of the node is its weight."""
        return _stands_at(node, argument, self.weight_index) or node.kwargs.get("weight") is argument

    def is_bias(self, node: fx.Node, argument: Any) -> bool:
        """Whether an argument of the node is its bias."""
        return _stands_at(node, argument, self.bias_index) or node.kwargs.get("bias") is argument

    def for_argument(self, node: fx.Node, argument: fx.Node, float_weights: Any = ()) -> Any:
        """The constructor of the observer for an argument; weights of `float_weights` have none."""
        if self.is_weight(node, argument):
            return None if node.target in float_weights else self.weight
        return self.bias if self.is_bias(node, argument) else self.input


def _stands_at(node: fx.Node, argument: Any, index: int | None) -> bool:
    return index is not None and index < len(node.args) and node.args[index] is argument
