"""Expressions of one byte become tables: 256 results that are computed when the program is made."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from zeropoint import _native
from zeropoint.compiler.def_use import StepUses
from zeropoint.compiler.program_builder import Input, ProgramBuilder, Step

_BYTES = ("uint8", "int8")


def tabulate_expressions(builder: ProgramBuilder) -> None:
    """``dequantize``, ``map`` of it and of single numbers, ``quantize`` become ``lookup``.

    Such are hard-swish that a model spells as a product, learned scales and shifts, and activations without a name.
    """
    uses = StepUses(builder)
    for place, quantize in enumerate(builder.steps):
        if quantize.op != "quantize" or quantize.attributes["dtype"] not in _BYTES:
            continue
        steps = _expression(builder, uses, quantize)
        read = {step.inputs[0] for step in steps if step.op == "dequantize"}
        (x,) = read if len(read) == 1 else [None]
        if x is None or builder.dtypes.get(x) not in _BYTES or all(step.op == "dequantize" for step in steps):
            continue
        if builder.shapes.get(x) != builder.shapes.get(quantize.outputs[0]):  # a number of more dimensions
            continue
        table = builder.constant("table", torch.from_numpy(_results(builder, x, [*steps, quantize])))
        builder.steps[place] = Step("lookup", [x, table], quantize.outputs, {"dtype": quantize.attributes["dtype"]})


def _expression(builder: ProgramBuilder, uses: StepUses, quantize: Step) -> Sequence[Step]:
    """All steps between bytes and `quantize`, in their order; none if there are others than are wanted."""
    found: dict[int, Step] = {}
    waiting = [str(quantize.inputs[0])]
    while waiting:
        name = waiting.pop()
        if name in builder.constants and builder.constants[name].size == 1:
            continue
        step = uses.any_maker(name)
        if step is None or step.op not in ("dequantize", "map") or "sizes" in step.attributes:
            return ()
        if id(step) not in found:
            found[id(step)] = step
            waiting += [] if step.op == "dequantize" else map(str, step.inputs)
    return [step for step in builder.steps if id(step) in found]


def _results(builder: ProgramBuilder, x: str, steps: Sequence[Step]) -> np.ndarray[Any, Any]:
    """What a program of these steps gives for every byte."""
    every = np.arange(256, dtype=np.uint8).view(builder.dtypes[x])
    small = ProgramBuilder()
    small.inputs = [Input(x, builder.dtypes[x], [256], [256])]
    small.steps, small.outputs = copy.deepcopy(list(steps)), steps[-1].outputs
    small.constants = {n: builder.constants[n] for step in steps for n in step.reads() if n in builder.constants}
    (results,) = _native.Program(small.data()).run([every])
    return np.asarray(results).reshape(256).view(np.uint8).copy()
