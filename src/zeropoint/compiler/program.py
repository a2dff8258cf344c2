"""Programs where PyTorch is: tensors in, tensors out."""

from __future__ import annotations

import os
from typing import Any

import torch

from zeropoint import runtime
from zeropoint.runtime.nesting import filled


def _given_as(dtype: str, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as one of another dtype; complex numbers are made of the pairs along the last axis."""
    return (torch.complex(*tensor.unbind(-1)) if dtype.startswith("complex") else tensor).to(getattr(torch, dtype))


class Program(runtime.Program):
    """A `zeropoint.runtime.Program` that also takes tensors, and then gives tensors. No memory is copied."""

    def __init__(
        self, native: Any, computed_by_torch: list[str] | None = None, nodes: dict[str, str] | None = None
    ) -> None:
        super().__init__(native)
        self.computed_by_torch = computed_by_torch or []
        self.nodes = nodes or {}  # of the quantized graph, by the names of values

    def _extras(self) -> dict[str, Any]:
        self._refuse_fallback("pickle")
        return {"nodes": self.nodes}

    def _refuse_fallback(self, who: str) -> None:
        if self.computed_by_torch:
            raise ValueError(
                f"{who}: a program with fallback operators cannot leave its process; PyTorch runs "
                f"{', '.join(self.computed_by_torch)}"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        self._refuse_fallback("save")
        super().save(path)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return _outside(self, *inputs, **named)
        results = self._native.run(self._ordered(inputs, named), torch.Tensor, torch.from_numpy, self._state)
        return results[0] if self._result == 0 else filled(self._result, results, _given_as)


@torch._disable_dynamo
def _outside(program: Program, *inputs: Any, **named: Any) -> Any:
    """A call from a model that torch.compile captures: not looked into, and one break of its graph."""
    return program(*inputs, **named)
