"""Batches for calibration: what is wrong with one, in words, and whether all of them say anything about ranges."""

from __future__ import annotations

import math
import warnings
from typing import Any

from torch import Tensor, fx

from zeropoint.described import described
from zeropoint.graph import torch_internals as internals
from zeropoint.graph.passes.insert_observers import is_observer


class Calibration:
    """What is seen of the batches that a graph is calibrated on."""

    def __init__(self, graph: fx.GraphModule) -> None:
        inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._names = [str(node.target) for node in inputs]
        # Masks may have -Inf in them: they are added in float, and their range is not looked for.
        self._observed = {str(node.target) for node in inputs if any(is_observer(user) for user in node.users)}
        self._ranges: dict[str, tuple[float, float]] = {}

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Look at a batch.

        Raises:
            ValueError: if it has another number of values than the model takes, arrays of numpy, NaN, or Inf where a
                range is looked for.
        """
        positional = [v for v in internals.leaves(args) if v is not None]
        named = list(zip(self._names, positional))
        for key, value in kwargs.items():
            named += [(key, v) for v in internals.leaves(value) if v is not None]
        values = [*positional, *(v for v in internals.leaves(kwargs) if v is not None)]
        if len(values) > len(self._names):
            raise ValueError(
                f"it has {len(values)} values, the model takes {len(self._names)} ({', '.join(self._names)})."
                " If batches are pairs of inputs and labels, pass the inputs alone"
            )
        for name, value in named:
            if type(value).__module__ == "numpy":
                raise ValueError(f"{name} is a numpy {described(value)}: pass torch.from_numpy(array)")
            if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
                self._look_at(name, value)

    def _look_at(self, name: str, value: Tensor) -> None:
        low, high = (float(v) for v in value.detach().aminmax())
        if low != low:
            raise ValueError(f"{name} contains NaN")
        if math.isinf(low) or math.isinf(high):
            if name in self._observed:
                raise ValueError(f"{name} contains Inf")
            return
        before = self._ranges.get(name, (low, high))
        self._ranges[name] = min(low, before[0]), max(high, before[1])

    def warn_if_constant(self) -> None:
        """Warn if every float that was seen had the same value."""
        constant = {name: low for name, (low, high) in self._ranges.items() if low == high}
        if constant and len(constant) == len(self._ranges):
            said = ", ".join(f"{name} is {value:g} everywhere" for name, value in constant.items())
            warnings.warn(
                f"to_int8: the calibration data is constant ({said}), so the activation ranges do not match real "
                "data. Pass some batches of real data: calibration=[...]",
                stacklevel=4,
            )
