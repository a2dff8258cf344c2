"""Steps that PyTorch computes, for operators that no native step does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from zeropoint.compiler.program_builder import Size
from zeropoint.graph.torch_internals import map_nodes

Described = tuple[str, list[int], list[int]]  # dtype, sizes, strides


@dataclass(frozen=True)
class _Given:
    """An argument that is there when the step runs: one of its tensors, or one of its numbers."""

    kind: str
    number: int


class TorchCall:
    """A call of an operator whose tensors and numbers come later.

    Args:
        value: what a node of the graph is: the name of a tensor, a number or its name, or a tensor that is fixed.
    """

    def __init__(self, node: fx.Node, value: Callable[[fx.Node], Any]) -> None:
        self.target = node.target
        self.tensors: list[str | None] = []
        self.numbers: list[Any] = []

        def given(n: fx.Node) -> Any:
            found = value(n)
            if isinstance(found, (Tensor, int)):
                return found
            kind, values = ("number", self.numbers) if isinstance(found, Size) else ("tensor", self.tensors)
            if found not in values:
                values.append(found)
            return _Given(kind, values.index(found))

        self.args = map_nodes(tuple(node.args), given)
        self.kwargs = map_nodes(dict(node.kwargs), given)

    def __str__(self) -> str:
        return str(self.target)

    def plan(self, inputs: list[Described], numbers: list[int]) -> list[Described]:
        """What it gives for such inputs."""
        tensors = [torch.empty_strided(s, st, dtype=_dtype(d), device="meta") for d, s, st in inputs]
        try:
            made = self._call(tensors, numbers)
        except ValueError:  # sizes alone do not tell: those of zeros may
            made = self._call([torch.zeros_like(t, device="cpu") for t in tensors], numbers)
        return [(_name(t), list(t.shape), _strides(t)) for t in made]

    def run(self, inputs: list[Any], numbers: list[int], outputs: list[Any]) -> None:
        """Compute it; tensors are addresses in front of what `plan` gets."""
        for made, place in zip(self._call([_at(*x) for x in inputs], numbers), outputs):
            if list(made.shape) != list(place[2]):
                raise ValueError(
                    f"{self} gave {list(made.shape)}, the program has memory for {list(place[2])}: results whose sizes"
                    " depend on data are not supported"
                )
            _at(*place).copy_(made)

    def _call(self, tensors: list[Tensor], numbers: list[int]) -> list[Tensor]:
        def fill(value: Any) -> Any:
            if isinstance(value, _Given):
                return (tensors if value.kind == "tensor" else numbers)[value.number]
            if isinstance(value, (list, tuple)):
                return type(value)(fill(part) for part in value)
            is_planned = tensors and tensors[0].is_meta
            return value.to("meta") if isinstance(value, Tensor) and is_planned else value

        target: Any = self.target
        try:
            with torch.no_grad():
                results = target(*fill(self.args), **{key: fill(part) for key, part in self.kwargs.items()})
        except (RuntimeError, IndexError) as error:
            given = ", ".join(str(list(t.shape)) for t in tensors)
            why = str(error).splitlines()[0][:200]
            raise ValueError(f"PyTorch, which runs {self}, refuses inputs of {given}: {why}; pass others") from error
        return list(results) if isinstance(results, (tuple, list)) else [results]


def _dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def _name(t: Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")


def _strides(t: Tensor) -> list[int]:
    """Those of a dense tensor that lies as `t` does."""
    return list(torch.empty_like(t, device="meta").stride())


def _at(address: int, dtype: str, sizes: list[int], strides: list[int]) -> Tensor:
    """The memory at an address as a tensor."""
    kind = np.dtype(dtype)
    if 0 in sizes:
        return torch.empty(sizes, dtype=_dtype(dtype))
    bytes_ = (sum((n - 1) * s for n, s in zip(sizes, strides)) + 1) * kind.itemsize
    memory = (ctypes.c_byte * bytes_).from_address(address)
    array = np.ndarray(sizes, kind, memoryview(memory), strides=[s * kind.itemsize for s in strides])
    return torch.from_numpy(array)
