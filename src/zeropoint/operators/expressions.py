"""Expressions of programs: what one step computes element by element, of tensors that broadcast.

native/engine/steps/map.cpp reads them; native/kernels/map/operations.inc lists the operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.operators.steps import StepBuilder, dtype_name

DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float32)


@dataclass(frozen=True)
class Term:
    """A value of an expression: one of its inputs, or what one of its instructions makes."""

    expression: Expression
    dtype: torch.dtype
    number: int
    is_input: bool = False


class Expression:
    """An expression while it is made, for the node at hand.

    Example, of ``where(x > 0, x, -x)``:

        e = Expression(c)
        x = e.term(node.args[0], torch.float32)
        positive = e.call("gt", x, e.number(0, torch.float32))
        return e.step(e.call("where", positive, x, e.call("neg", x)))
    """

    def __init__(self, c: StepBuilder) -> None:
        self.c = c
        self.inputs: list[str] = []
        self.types: list[str] = []
        self.code: list[tuple[Any, ...]] = []
        self.sizes: list[Any] = []

    def term(self, value: Any, dtype: torch.dtype) -> Term:
        """A tensor of the graph, a number, or a size, in a dtype."""
        if isinstance(value, fx.Node):
            found = self.c.found[value]
            if isinstance(found, Tensor):
                return self.convert(self.tensor(str(self.c.tensor(value)), found.dtype), dtype)
            value = self.c.size(value)
        return self.number(value, dtype)

    def tensor(self, name: str, dtype: torch.dtype) -> Term:
        """A value of the program."""
        if dtype not in DTYPES:
            raise self.c.unsupported(f"programs do not support {dtype_name(dtype)}")
        if name not in self.inputs:
            self.inputs.append(name)
            self.types.append(dtype_name(dtype))
        return Term(self, dtype, self.inputs.index(name), True)

    def number(self, value: Any, dtype: torch.dtype) -> Term:
        """A number, or the name of one that is known when the program runs."""
        if isinstance(value, str):
            if value not in self.sizes:
                self.sizes.append(value)
            return self._made("size", dtype, self.sizes.index(value))
        if dtype == torch.float32:
            real = float(value)
            shown: Any = real if math.isfinite(real) else str(real)
            return self._made("number", dtype, shown)
        if dtype == torch.bool:
            return self._made("number", dtype, bool(value))
        bounds = torch.iinfo(dtype)
        wrapped = (int(value) - bounds.min) % (bounds.max - bounds.min + 1) + bounds.min
        return self._made("number", dtype, wrapped)

    def convert(self, term: Term, dtype: torch.dtype) -> Term:
        """The same value in another dtype."""
        if dtype not in DTYPES:
            raise self.c.unsupported(f"programs do not support {dtype_name(dtype)}")
        return term if term.dtype == dtype else self._made("convert", dtype, term)

    def call(self, operation: str, *terms: Term, gives: torch.dtype | None = None) -> Term:
        """An operation of terms of the same dtype; it gives that dtype, or `gives`."""
        made = self._made(operation, terms[-1].dtype, *terms)
        return Term(self, gives or made.dtype, made.number)

    def step(self, term: Term) -> str:
        """The step that computes `term`; the name of its result."""
        if term.is_input:
            return self.inputs[term.number]
        code = [self._listed(instruction) for instruction in self.code[: term.number + 1]]
        sizes = {"sizes": list(self.sizes)} if self.sizes else {}
        return self.c.add("map", *self.inputs, types=list(self.types), code=code, **sizes)

    def _made(self, operation: str, dtype: torch.dtype, *operands: Any) -> Term:
        self.code.append((operation, dtype_name(dtype), *operands))
        return Term(self, dtype, len(self.code) - 1)

    def _listed(self, instruction: tuple[Any, ...]) -> list[Any]:
        def place(operand: Any) -> Any:
            if not isinstance(operand, Term):
                return operand
            return operand.number if operand.is_input else len(self.inputs) + operand.number

        return [place(part) for part in instruction]


def in_dtype(c: StepBuilder, value: fx.Node, dtype: torch.dtype) -> str:
    """A tensor of the graph in a dtype: itself, or a step that converts it."""
    e = Expression(c)
    return e.step(e.term(value, dtype))
