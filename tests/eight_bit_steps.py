"""Differences in steps of eight bits: what a bound of a test is made of."""

from __future__ import annotations

import torch


def steps_between(found: torch.Tensor, expected: torch.Tensor, calibrated: torch.Tensor | None = None) -> float:
    """The largest difference, in steps of 255 that cover zero and `expected`, or the results of calibration.

    A layer is off by half a step for rounding its result, and by what rounding its input and its weights brings: a step
    or two, if the layers before it used the range as well.

    Example:
        >>> steps_between(torch.tensor([0.0, 2.6]), torch.tensor([0.0, 2.55]))
        5.0
    """
    seen = (expected if calibrated is None else calibrated).detach()
    low, high = min(float(seen.min()), 0.0), max(float(seen.max()), 0.0)
    return round(float((found - expected).detach().abs().max()) / ((high - low) / 255), 3)
