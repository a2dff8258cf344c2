"""Functions of bytes: their results for all 256 of them."""

from __future__ import annotations

import torch
from torch import fx

from zeropoint.operators.record import Operator
from zeropoint.operators.steps import GraphBuilder, ProgramStep, StepBuilder, dtype_name, dtype_of, restores, steps


def emit_table(c: StepBuilder, node: fx.Node) -> str:
    """The step of any function of bytes, which the operator itself computes the results of."""
    dtype = c.dtype(node.args[0])
    if dtype not in (torch.uint8, torch.int8):
        raise c.unsupported(f"only uint8 and int8 are supported, got {dtype_name(dtype)}")
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    results = node.target(every, *node.args[1:], **node.kwargs)
    table = c.builder.constant(f"{node}_table", results.view(torch.uint8))
    return c.add("lookup", c.tensor(node.args[0]), table, dtype=dtype_name(results.dtype))


def _emit_lookup(c: StepBuilder, node: fx.Node) -> str:
    x, table = node.args
    if not c.is_parameter(table):
        raise c.unsupported("its table is not a constant")
    stored = c.builder.constant(f"{node}_table", c.parameter(table).view(torch.uint8))
    return c.add("lookup", c.tensor(x), stored, dtype=dtype_name(c.parameter(table).dtype))


def restored_table(r: GraphBuilder, x: fx.Node | None, name: str, dtype: torch.dtype) -> fx.Node:
    """A call that looks bytes up in a table of the file."""
    table = r.constant(name)
    assert table is not None
    return r.call(torch.ops.zeropoint.lookup.default, x, r.stored(name, table.view(dtype)))


def _restore_lookup(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    return restored_table(r, r.tensor(step.inputs[0]), str(step.inputs[1]), dtype_of(step.attributes["dtype"]))


# What operators without a quantized form of their own are, and what tensors of eager mode call.
RECORDS = (
    Operator("lookup", steps=steps(_emit_lookup, "lookup"), restores=restores(_restore_lookup, "lookup")),
    Operator("stored_function", steps=steps(emit_table, "stored_function", "requantize", "exp")),
)
