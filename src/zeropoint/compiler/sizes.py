"""Sizes of tensors as numbers of a program, and what is computed with them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from zeropoint.compiler.program_builder import Size
from zeropoint.graph.frontends.shape_guards import OPERATIONS
from zeropoint.operators.elementwise import COMPARISONS
from zeropoint.operators.steps import Emit, GraphBuilder, ProgramStep, Restore, StepBuilder

# What numbers that follow from sizes are made with: whole ones that records ask for, by their names.
NUMBERS: dict[str, Callable[[Any, Any], int]] = {
    **OPERATIONS,
    "subtract": operator.sub,
    "scaled": lambda a, b: int(a * b),
}

# What graphs compute with them: the names of native/engine/steps/size_arithmetic.cpp, and the functions of graphs.
CALCULATIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "add": (operator.add,),
    "subtract": (operator.sub,),
    "multiply": (operator.mul,),
    "divide": (operator.truediv,),
    "floor_divide": (operator.floordiv,),
    "modulo": (operator.mod,),
    "power": (operator.pow, math.pow),
    "maximum": (torch.sym_max, max),
    "minimum": (torch.sym_min, min),
    "negate": (operator.neg,),
    "absolute": (operator.abs, abs),
    "float": (torch.sym_float, float),
    "sqrt": (math.sqrt, torch._sym_sqrt),
    "floor": (math.floor,),
    "ceil": (math.ceil,),
    "round": (round,),
    "trunc": (torch.sym_int, math.trunc, int),
}
_CHECKS = ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size", "_assert_async")


def _emit_numel(c: StepBuilder, node: fx.Node) -> Any:
    return c.number_of_elements(node.args[0])


def _emit_size(c: StepBuilder, node: fx.Node) -> Size:
    return Size(c.add("size", c.tensor(node.args[0]), axis=node.args[1]))


def _emit_calculation(name: str) -> Emit:
    def emit(c: StepBuilder, node: fx.Node) -> Any:
        return c.calculate(name, *(c.quantity(value) for value in node.args if value is not None))

    return emit


def _emit_comparison(c: StepBuilder, node: fx.Node) -> None:
    """Questions about sizes that a check asks: programs have its own checks of them."""
    if not all(str(getattr(user.target, "__name__", "")).split(".")[0] in _CHECKS for user in node.users):
        raise c.unsupported("the result of a comparison of sizes is fixed when the model is captured")


def _emit_nothing(c: StepBuilder, node: fx.Node) -> None:
    """A check of what the model was captured with."""


def _restore_size(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    return r.call(torch.ops.aten.sym_size.int, r.tensor(step.inputs[0]), step.attributes["axis"])


def _restore_arithmetic(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a = step.attributes
    numbers = [r.size(a[k]) for k in ("a", "b")]
    if a["operation"] == "scaled":
        return r.call(torch.sym_int, r.call(operator.mul, *numbers))
    return r.call(NUMBERS[a["operation"]], *numbers)


def _restore_calculation(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a = step.attributes
    return r.call(CALCULATIONS[a["operation"]][0], *(r.size(operand) for operand in a["operands"]))


# Steps that make numbers of sizes, as calls of graphs again.
RESTORED_SIZES: dict[str, Restore] = {
    "size": _restore_size,
    "arithmetic": _restore_arithmetic,
    "calculate": _restore_calculation,
}
SIZES: dict[Any, Emit] = {
    "aten.sym_numel.default": _emit_numel,
    "aten.sym_size.int": _emit_size,
    **{function: _emit_calculation(name) for name, functions in CALCULATIONS.items() for function in functions},
    **{getattr(operator, name): _emit_comparison for name in COMPARISONS},
    **{
        f"aten.{name}.{overload}": _emit_nothing
        for name in _CHECKS
        for overload in getattr(torch.ops.aten, name).overloads()
    },
}
