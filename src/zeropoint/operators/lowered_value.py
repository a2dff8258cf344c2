"""Values during lowering: a float node, or an integer node with its scale and zero point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from zeropoint.numerics.affine import BYTE_LIMITS


@dataclass(frozen=True)
class Scale:
    """Scale, zero point and integer dtype of a value."""

    scale: float
    zero_point: int
    dtype: torch.dtype

    @property
    def pair(self) -> tuple[float, int]:
        return self.scale, self.zero_point

    @property
    def as_uint8(self) -> Scale:
        """The same numbers; bytes of int8 become those of uint8."""
        return Scale(self.scale, self.zero_point + 128, torch.uint8) if self.dtype == torch.int8 else self

    @property
    def limits(self) -> tuple[int, int]:
        return BYTE_LIMITS[self.dtype]

    @property
    def all(self) -> tuple[Any, ...]:
        return self.scale, self.zero_point, *self.limits, self.dtype


@dataclass
class Value:
    """A value of the old graph in the new one: floats or integers, and what was made of them in each scope."""

    floats: fx.Node | None = None
    integers: fx.Node | None = None
    scale: Scale | None = None
    converted: dict[tuple[int, ...], fx.Node] = field(default_factory=dict)
