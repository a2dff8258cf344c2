"""Quantization before values are moved: bytes are reordered instead of floats, and norms give bytes themselves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zeropoint.compiler.def_use import StepUses
from zeropoint.compiler.program_builder import ProgramBuilder, Step

_VIEWS = (
    "reshape",
    "flatten",
    "unflatten",
    "unsqueeze",
    "squeeze",
    "permute",
    "transpose",
    "slice",
    "select",
    "contiguous",
)
_BYTES = ("uint8", "int8")


class _Moves(NamedTuple):
    """Steps that move values before they are quantized, in their order, and what the values were before."""

    steps: list[Step]
    sources: list[str]


def quantize_early(builder: ProgramBuilder) -> None:
    """``reshape, permute, slice, cat ..., quantize`` become ``quantize, reshape, permute, slice, cat ...``.

    Elements are quantized one by one, so that the bytes are the same.
    """
    for quantize in [step for step in builder.steps if step.op == "quantize" and step.attributes["dtype"] in _BYTES]:
        uses = StepUses(builder)
        moves = _moves_before(builder, uses, quantize)
        if moves is not None:
            _swap(builder, uses, quantize, moves)


def _moves_before(builder: ProgramBuilder, uses: StepUses, quantize: Step) -> _Moves | None:
    """What moves values, if nothing else reads that; None where nothing moves them, or from more values."""
    asked, known = {str(quantize.inputs[0]): None}, {id(quantize)}
    moved: list[Step] = []
    for step in reversed(builder.steps):  # all readers of a value come before what makes it
        name = step.outputs[0]
        readers = [reader for reader in uses.readers(name) if reader.op != "size"]
        are_moved = not uses.is_output(name) and all(id(reader) in known for reader in readers)
        if name in asked and are_moved and _is_move(step):
            del asked[name]
            asked |= dict.fromkeys(map(str, _moved_by(step)))
            known.add(id(step))
            moved.insert(0, step)
    sources = list(asked)
    sizes = [builder.shapes.get(name) for name in sources]
    behind = builder.shapes.get(str(quantize.inputs[0]))
    if not moved or behind is None or any(name in builder.constants for name in sources):
        return None
    if sum(np.prod(size) if size is not None else np.inf for size in sizes) > np.prod(behind):
        return None
    return _Moves(moved, sources)


def _is_move(step: Step) -> bool:
    if step.op == "cat":
        return all(table is None for table in step.inputs[len(step.inputs) // 3 :])
    return step.op in _VIEWS


def _moved_by(step: Step) -> list[str | None]:
    return step.inputs[: len(step.inputs) // 3] if step.op == "cat" else step.inputs[:1]


def _swap(builder: ProgramBuilder, uses: StepUses, quantize: Step, moves: _Moves) -> None:
    bytes_of: dict[str, str] = {}

    def named(name: str) -> str:
        bytes_of[name] = builder.fresh(name)
        builder.dtypes[bytes_of[name]] = quantize.attributes["dtype"]
        if name in builder.shapes:
            builder.shapes[bytes_of[name]] = builder.shapes[name]
        return bytes_of[name]

    early = {name: Step("quantize", [name], [named(name)], dict(quantize.attributes)) for name in moves.sources}
    moves_and_quantize = {id(quantize), *(id(step) for step in moves.steps)}
    steps = [early.pop(given.name) for given in builder.inputs if given.name in early]
    for step in builder.steps:
        if id(step) == id(quantize):
            continue
        if id(step) in moves_and_quantize:
            step.inputs = [bytes_of.get(str(name), name) for name in step.inputs]
            (name,) = step.outputs
            step.outputs = quantize.outputs if name == quantize.inputs[0] else [named(name)]
        steps.append(step)
        steps += [early.pop(name) for name in step.outputs if name in early]
    # Sizes are those of the bytes, too, so that the floats are not needed for them.
    for step in (step for step in steps if step.op == "size" and step.inputs[0] in bytes_of):
        source = str(step.inputs[0])
        if source not in moves.sources or all(
            id(r) in moves_and_quantize or r.op == "size" for r in uses.readers(source)
        ):
            step.inputs = [bytes_of[source]]
    builder.steps = steps
