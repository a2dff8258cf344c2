"""Fusion of consecutive element-wise expressions into one step, so that values between them stay in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeropoint.compiler.program_builder import ProgramBuilder, Size, Step

# As native/engine/steps/map.cpp has them, or less: registers of one expression stay in the first cache.
_MOST_INSTRUCTIONS, _MOST_INPUTS = 64, 16


def join_expressions(builder: ProgramBuilder) -> None:
    """An expression that one other reads, and nothing else, becomes a part of it, if both are as large.

    A smaller one stays alone: it would be computed again wherever it is repeated.
    """
    readers: dict[str, int] = {}
    for names in [*(step.reads() for step in builder.steps), builder.results()]:
        for name in names:
            readers[name] = readers.get(name, 0) + 1
    made: dict[str, int] = {}
    kept: dict[int, Step] = {}
    for number, step in enumerate(builder.steps):
        if step.op == "map":
            for operand in list(step.inputs):
                before = kept.get(made.get(str(operand), -1))
                if before is None or readers[str(operand)] != 1 or not _are_as_large(builder, before, step):
                    continue
                joined = _joined(before, step)
                if joined is not None:
                    del kept[made[str(operand)]]
                    step = joined
            made[step.outputs[0]] = number
        kept[number] = step
    builder.steps = list(kept.values())


def _shape(builder: ProgramBuilder, step: Step) -> tuple[int, ...] | None:
    """What the inputs of an expression broadcast to, for the example; None if that is not known."""
    name = step.outputs[0]
    if name not in builder.shapes:
        shapes = [builder.shapes.get(str(i)) for i in step.inputs]
        if any(shape is None for shape in shapes):
            return None
        builder.shapes[name] = np.broadcast_shapes(*(shape for shape in shapes if shape is not None))
    return builder.shapes[name]


def _are_as_large(builder: ProgramBuilder, before: Step, step: Step) -> bool:
    small, large = _shape(builder, before), _shape(builder, step)
    return small is not None and large is not None and np.prod(small) == np.prod(large)


def _joined(before: Step, step: Step) -> Step | None:
    """`step` with the code of `before` in front of its own."""
    inputs = list(dict.fromkeys([*before.inputs, *(name for name in step.inputs if name != before.outputs[0])]))
    code_before, code = before.attributes["code"], step.attributes["code"]
    if len(inputs) > _MOST_INPUTS or len(code_before) + len(code) > _MOST_INSTRUCTIONS:
        return None
    types: dict[Any, str] = {}
    for part in (before, step):
        types.update(zip(part.inputs, part.attributes["types"]))
    sizes: list[Any] = list(dict.fromkeys([*before.attributes.get("sizes", []), *step.attributes.get("sizes", [])]))

    def moved(part: Step, first: int) -> list[list[Any]]:
        places = [
            len(inputs) + len(code_before) - 1 if name == before.outputs[0] else inputs.index(name)
            for name in part.inputs
        ]

        def operand(name: str, value: Any) -> Any:
            if name == "number":
                return value
            if name == "size":
                return sizes.index(part.attributes["sizes"][value])
            return places[value] if value < len(places) else value - len(places) + first

        return [
            [name, dtype, *(operand(name, value) for value in rest)] for name, dtype, *rest in part.attributes["code"]
        ]

    joined = [*moved(before, len(inputs)), *moved(step, len(inputs) + len(code_before))]
    attributes = {"types": [types[name] for name in inputs], "code": joined}
    if sizes:
        attributes["sizes"] = [Size(size) if isinstance(size, str) else size for size in sizes]
    return Step("map", inputs, step.outputs, attributes)
