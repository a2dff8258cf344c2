"""Which value of the float graph a node of a quantized graph holds, and with which scale."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import fx

__all__ = ["Meaning", "meaning", "name_of"]


@dataclass(frozen=True)
class Meaning:
    """The name of the node of the float graph that has this value; scale and zero point, if it is held as integers.

    `factors`: what the channels, along the last axis, were divided by before they were rounded (see equalize.py).
    The float graph is the one that `workflow.float_graph` gives for the model.
    """

    name: str
    scale: float | None = None
    zero_point: int = 0
    dtype: torch.dtype | None = None
    factors: torch.Tensor | None = field(default=None, compare=False)


def meaning(node: fx.Node) -> Meaning | None:
    """What a node of a quantized graph holds, if it is a value of the float graph."""
    return node.meta.get("meaning")


def name_of(node: fx.Node) -> str:
    """The name that a node of a prepared graph has in the float graph."""
    found = meaning(node)
    return node.name if found is None else found.name
