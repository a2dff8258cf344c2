"""Weights of 4 bits: how many inputs share a scale."""

from __future__ import annotations

from typing import Any

from zeropoint.numerics.dtypes import quint4x2
from zeropoint.numerics.schemes import per_channel_affine_float_qparams
from zeropoint.observers.minmax import PerChannelMinMaxObserver

GROUP = 128  # inputs that share a scale in a weight of 4 bits, where nothing else is said


class GroupedWeightObserver(PerChannelMinMaxObserver):
    """Marks a 4-bit weight with one scale per group of `group_size` inputs.

    Example:
        >>> GroupedWeightObserver(group_size=32).group_size
        32
    """

    def __init__(self, group_size: int = GROUP, **kwargs: Any) -> None:
        if group_size < 8 or group_size % 8:
            raise ValueError(f"GroupedWeightObserver: group_size must be a multiple of 8, got {group_size}")
        super().__init__(dtype=quint4x2, qscheme=per_channel_affine_float_qparams, **kwargs)
        self.group_size = group_size
