"""Functions of small matrices: `graph/passes/decompose_matrices.py` writes PyTorch's with them."""

from __future__ import annotations

import torch
from torch import fx

from zeropoint.operators.record import Operator
from zeropoint.operators.steps import GraphBuilder, ProgramStep, StepBuilder, restores, steps


def _emit(c: StepBuilder, node: fx.Node) -> str:
    a, b, function = node.args
    given = [c.tensor(a)] if b is None else [c.tensor(a), c.tensor(b)]
    return c.add("matrices", *given, function=function)


def _restore(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, b = [*(r.tensor(name) for name in step.inputs), None][:2]
    return r.call(torch.ops.zeropoint.matrices.default, a, b, step.attributes["function"])


RECORDS = (Operator("matrices", steps=steps(_emit, "matrices"), restores=restores(_restore, "matrices")),)
