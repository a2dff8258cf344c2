"""Operators as functions of others that are known: what PyTorch composes in another way, or not at all.

A function is called as its operator is, on tensors without data, and the operators that it calls stand in the graph. It
must not ask how large a free size is, unless it is one of `FIXING`; what refuses a call raises `NotComposed`.
"""

from zeropoint.graph.passes.compositions import (
    convolution,
    elements,
    linear_algebra,
    norms,
    order,
    parts,
    places,
    products,
    recurrent,
    sampling,
)
from zeropoint.graph.passes.compositions.common import COMPOSITIONS, FIXING, WITH_WEIGHTS, NotComposed

__all__ = [
    "COMPOSITIONS",
    "FIXING",
    "WITH_WEIGHTS",
    "NotComposed",
    "elements",
    "linear_algebra",
    "norms",
    "order",
    "parts",
    "places",
    "products",
    "recurrent",
    "sampling",
    "convolution",
]
