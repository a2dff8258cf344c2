"""Programs made smaller while they are built, without changing a byte of what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from zeropoint.compiler.attention import fuse_attention, split_attention
from zeropoint.compiler.def_use import Fresh
from zeropoint.compiler.early_quantize import quantize_early
from zeropoint.compiler.expression_tables import tabulate_expressions
from zeropoint.compiler.float_stages import (
    fuse_dynamic_functions,
    fuse_functions,
    fuse_norms,
    join_dynamic_layers,
    split_dynamic_layers,
    split_functions,
    split_norms,
)
from zeropoint.compiler.fuse_expressions import join_expressions
from zeropoint.compiler.program_builder import ProgramBuilder, Step

_LAYERS = ("linear", "conv")
_PAIRS = ("add", "multiply")


class Fusion(NamedTuple):
    """Steps that become fewer: what is looked for, what takes its place, what does it, and what undoes it.

    `split` gives the steps that a fused one stands for, in their order; None for a step that is no such fusion.
    """

    replaces: str
    by: str
    apply: Callable[[ProgramBuilder], None]
    split: Callable[[Step, Fresh], list[Step] | None] | None = None


def simplify(builder: ProgramBuilder, fusions: Sequence[Fusion] | None = None) -> None:
    """Drop steps with unread results, and fuse those that follow each other. Tests leave out some of the fusions."""
    _drop_dead(builder)
    for fusion in FUSIONS if fusions is None else fusions:
        fusion.apply(builder)
        _drop_dead(builder)  # which would count as readers of what is left


def split(steps: Sequence[Step], fresh: Fresh) -> list[Step]:
    """The steps without fusions: those that operators of graphs are, one by one."""
    made: list[Step] = []
    for step in steps:
        parts = next((p for f in FUSIONS if f.split is not None and (p := f.split(step, fresh)) is not None), None)
        made += [step] if parts is None else split(parts, fresh)
    return made


def _readers(builder: ProgramBuilder) -> dict[str, int]:
    """How often each value is read; the program's results count."""
    count: dict[str, int] = {}
    for names in [*([n for n in step.inputs if n is not None] for step in builder.steps), builder.results()]:
        for name in names:
            count[name] = count.get(name, 0) + 1
    return count


def _fold_tables(builder: ProgramBuilder) -> None:
    """A table behind a layer or behind another table, which nothing else reads, becomes part of it."""
    makers: dict[str, Step] = {}
    readers = _readers(builder)
    kept: list[Step] = []
    renamed: dict[str, str] = {}
    for step in builder.steps:
        step.inputs = [renamed.get(name, name) if name is not None else None for name in step.inputs]
        before = makers.get(step.inputs[0] or "") if step.op == "lookup" else None
        if before is not None and readers[str(step.inputs[0])] == 1 and _absorb(builder, before, step):
            renamed[step.outputs[0]] = before.outputs[0]
            readers[before.outputs[0]] = readers.get(step.outputs[0], 0)
            continue
        kept.append(step)
        makers.update(dict.fromkeys(step.outputs, step))
    builder.steps = kept
    builder.outputs = [renamed.get(name, name) for name in builder.outputs]
    for state in builder.state.values():
        state.next = renamed.get(state.next, state.next)


def _absorb(builder: ProgramBuilder, before: Step, step: Step) -> bool:
    table = builder.constants[str(step.inputs[1])]
    if before.op == "lookup":
        if before.attributes["dtype"] == "bool":
            return False
        before.inputs[1] = _stored(builder, table[builder.constants[str(before.inputs[1])]])
        before.attributes["dtype"] = step.attributes["dtype"]
        return True
    if before.op not in _LAYERS or before.attributes["dtype"] != step.attributes["dtype"]:
        return False
    dtype = np.dtype(before.attributes["dtype"])
    if before.inputs[5] is not None:
        before.inputs[5] = _stored(builder, table[builder.constants[str(before.inputs[5])]])
        return True
    low, high = before.attributes["low"], before.attributes["high"]
    integers = np.arange(low, high + 1).astype(dtype)
    results = table[integers.view(np.uint8)].view(dtype)
    if np.array_equal(results, np.clip(integers, results[0], results[-1])):  # a clamp: the layer has one already
        before.attributes["low"], before.attributes["high"] = int(results[0]), int(results[-1])
    else:
        before.inputs[5] = step.inputs[1]
    return True


def _stored(builder: ProgramBuilder, table: np.ndarray) -> str:
    return builder.constant("table", torch.from_numpy(np.ascontiguousarray(table)))


def _fold_pairs(builder: ProgramBuilder) -> None:
    """A sum or product of a layer's result that nothing else reads becomes part of the layer: of two, of the later one.

    The layer then runs where the sum was: what it is added to has been computed by then. If that is of another shape,
    or lies otherwise in memory, which is known when the program is planned, one is computed after the other.
    """
    readers = _readers(builder)
    made: dict[str, int] = {}  # by which of the steps
    kept: dict[int, Step] = {}
    for number, step in enumerate(builder.steps):
        operands = step.inputs if step.op in _PAIRS else []
        layers = [made[n] for n in operands if n in made and readers[n] == 1 and _takes(kept[made[n]])]
        if layers:
            layer = kept.pop(max(layers))
            swapped = step.inputs[1] == layer.outputs[0]
            attributes = {f"then_{name}": value for name, value in step.attributes.items()}
            attributes |= layer.attributes | {"then": step.op, "then_swapped": swapped}
            step = Step(layer.op, [*layer.inputs, step.inputs[0 if swapped else 1]], step.outputs, attributes)
        kept[number] = step
        made.update(dict.fromkeys(step.outputs, number))
    builder.steps = list(kept.values())


def _takes(step: Step) -> bool:
    """Whether its result is bytes of a layer that a sum can be folded into."""
    return step.op in _LAYERS and step.attributes["dtype"] != "float32" and "then" not in step.attributes


def _split_pair(step: Step, fresh: Fresh) -> list[Step] | None:
    a = step.attributes
    if step.op not in _LAYERS or "then" not in a:
        return None
    result = fresh(step.outputs[0])
    layer = {name: value for name, value in a.items() if not name.startswith("then")}
    pair = {name.removeprefix("then_"): value for name, value in a.items() if name.startswith("then_")}
    operands = [result, step.inputs[6]]
    operands = operands[::-1] if pair.pop("swapped") else operands
    return [Step(step.op, step.inputs[:6], [result], layer), Step(a["then"], operands, step.outputs, pair)]


def _split_table(step: Step, fresh: Fresh) -> list[Step] | None:
    if step.op not in _LAYERS or step.inputs[5] is None or "then" in step.attributes:
        return None
    result, dtype = fresh(step.outputs[0]), {"dtype": step.attributes["dtype"]}
    layer = Step(step.op, [*step.inputs[:5], None], [result], step.attributes)
    return [layer, Step("lookup", [result, step.inputs[5]], step.outputs, dtype)]


def _drop_dead(builder: ProgramBuilder) -> None:
    needed = set(builder.results())
    kept = []
    for step in reversed(builder.steps):
        if needed & set(step.outputs) or step.op == "require":
            kept.append(step)
            needed |= step.reads()
    builder.steps = kept[::-1]


# In this order: an expression that has been joined with another is no mask of attention any more.
FUSIONS: tuple[Fusion, ...] = (
    Fusion("moves before quantize", "moves behind it", quantize_early),
    Fusion("dequantize, maps of it alone, quantize", "a table", tabulate_expressions),
    Fusion("a table behind a layer or a table", "that layer or table", _fold_tables, _split_table),
    Fusion("a sum or product behind a layer", "that layer", _fold_pairs, _split_pair),
    Fusion(
        "matmul, dequantize, map, float_softmax, quantize, matmul, transpose", "attention", fuse_attention,
        split_attention,
    ),
    Fusion("linear to float32, a function, quantize", "linear with a function", fuse_functions, split_functions),
    Fusion("linear_dynamic, a function", "linear_dynamic with a function", fuse_dynamic_functions),
    Fusion(
        "linear_dynamic of one input", "linear_dynamic with many results", join_dynamic_layers, split_dynamic_layers
    ),
    Fusion("a sum, float_layer_norm, quantize", "float_layer_norm", fuse_norms, split_norms),
    Fusion("a map that reads a map", "one map", join_expressions),
)  # fmt: skip
