"""What there is to know about a program: its steps, what feeds them, their shapes, memory and times. Needs no torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from zeropoint.runtime import Profile, Program

_TYPES = {"U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F32": "float32",
          "F16": "float16", "BOOL": "bool"}  # fmt: skip


_PARTS = 32  # of a histogram


@dataclass(frozen=True)
class Source:
    """One input of a step. `step` is the step that computes it; -1 if it is a constant, an input or state."""

    name: str
    kind: str  # step, constant, input, state, none
    step: int = -1
    dtype: str = ""
    shape: tuple[int | str, ...] = ()
    nbytes: int = 0


@dataclass(frozen=True)
class StepFacts:
    """One step for inputs of these shapes. `seconds` and what follows is None where nothing was timed."""

    number: int
    op: str
    outputs: tuple[str, ...]
    sources: tuple[Source, ...]
    used_by: tuple[int, ...]
    attributes: dict[str, Any]
    dtype: str
    shape: tuple[int, ...]
    kernel: str
    isa: str
    macs: float
    stored: int  # bytes of weights and other constants
    read: int
    written: int
    seconds: float | None = None
    of_peak: float | None = None
    limit: str = ""
    histogram: tuple[int, ...] = ()  # of its first weight

    @property
    def precision(self) -> str:
        """What it computes on: int8, float, or other if it only moves or counts."""
        read = [s.dtype for s in self.sources if s.kind != "constant" and s.dtype]
        dtypes = {*read[:1], *([self.dtype] if self.dtype else [])}
        if self.kernel in ("gemm", "depthwise") or dtypes & {"uint8", "int8"}:
            return "int8"
        return "float" if any(dtype.startswith("float") for dtype in dtypes) else "other"

    @property
    def name(self) -> str:
        """The name of its first output."""
        return self.outputs[0] if self.outputs else ""

    @property
    def path(self) -> str:
        """The path of the module that it came from; empty if that is the model itself, or if the file does not say."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Block:
    """A stretch of the arena and the instructions, first and last, between which it is in use by `step`."""

    offset: int
    nbytes: int
    first: int
    last: int
    step: int


@dataclass(frozen=True)
class ProgramFacts:
    """A program, step by step, for inputs of these shapes."""

    steps: tuple[StepFacts, ...]
    inputs: tuple[Source, ...]
    state: tuple[Source, ...]
    outputs: tuple[str, ...]
    blocks: tuple[Block, ...]
    instructions: tuple[int, ...]  # the step of each
    arena: int
    values: int
    file: int
    operators: tuple[
        tuple[str, str, str, str], ...
    ] = ()  # of the model: path, operator, way, reason; if the file has it
    copies: float | None = None  # seconds of copies that belong to no step
    profile: Profile | None = None

    @property
    def seconds(self) -> float | None:
        """One run, all steps; None if nothing was timed."""
        return None if self.profile is None else self.profile.seconds


def example_inputs(program: Program) -> list[Any]:
    """Made-up inputs of the shapes that the program was compiled with: normal noise; zeros for integers.

    Example:
        >>> from zeropoint.runtime import load
        >>> [x.dtype.name for x in example_inputs(load("tests/golden/programs/moved.zpt"))]
        ['uint8']
    """
    random = np.random.default_rng(0)
    made: list[Any] = []
    for (_, dtype, _), shape in zip(program.inputs, program.example_shapes):
        if dtype.startswith("float"):
            made.append(random.standard_normal(shape, dtype=np.float32).astype(dtype))
        else:
            made.append(np.zeros(shape, dtype=dtype))
    return made


def program_facts(program: Program, inputs: Sequence[Any], *, runs: int = 5) -> ProgramFacts:
    """Everything about a program for inputs of these shapes.

    Args:
        inputs: one array for each input, in order.
        runs: how often it is run to time the steps; 0: not at all.
    """
    data = program._native.data()
    header, stored, operators = _file(data)
    histograms = _histograms(data)
    steps, instructions, blocks = program._native.layout([list(np.shape(x)) for x in inputs])
    memory = program.memory(*(np.shape(x) for x in inputs))
    profile = program.profile(*inputs, runs=runs) if runs else None
    given = tuple(
        Source(name, "input", -1, dtype, np.shape(x), 0) for (name, dtype, _), x in zip(program.inputs, inputs)
    )
    state = tuple(
        Source(name, "state", -1, dtype, shape, prod(shape) * np.dtype(dtype).itemsize)
        for name, dtype, shape in program.state
    )
    known = {source.name: source for source in (*stored, *given, *state)}
    macs = [0.0] * len(steps)
    for step, count in instructions:
        if step >= 0:
            macs[step] += count
    users: dict[str, list[int]] = {}
    for number, step in enumerate(header["steps"]):
        for name in dict.fromkeys(step["inputs"]):
            users.setdefault(name, []).append(number)
    made = []
    times = _times(profile, len(steps))
    for number, (step, planned) in enumerate(zip(header["steps"], steps)):
        kernel, isa, _, dtype, shape, constant, read, written = planned
        made.append(
            StepFacts(
                number=number,
                op=step["op"],
                outputs=tuple(step["outputs"]),
                sources=tuple(Source("", "none") if n is None else known[n] for n in step["inputs"]),
                used_by=tuple(dict.fromkeys(user for name in step["outputs"] for user in users.get(name, ()))),
                attributes=step.get("attributes", {}),
                dtype=dtype if written else "",
                shape=tuple(shape),
                kernel=kernel,
                isa=isa,
                macs=macs[number],
                stored=constant,
                read=read,
                written=written,
                histogram=next((histograms[n] for n in step["inputs"] if n in histograms), ()),
                **times[number],
            )
        )
        for i, name in enumerate(step["outputs"]):
            known[name] = Source(name, "step", number, *((dtype, tuple(shape), written) if i == 0 else ()))
    return ProgramFacts(
        steps=tuple(made),
        inputs=given,
        state=state,
        outputs=tuple(header["outputs"]),
        blocks=tuple(Block(*block, step=instructions[block[2]][0]) for block in blocks),
        instructions=tuple(step for step, _ in instructions),
        arena=memory.arena,
        values=memory.values,
        file=memory.file,
        operators=operators,
        copies=None if profile is None else sum(row.seconds for row in profile if row.step < 0),
        profile=profile,
    )


def _file(data: bytes) -> tuple[dict[str, Any], list[Source], tuple[tuple[str, str, str, str], ...]]:
    """The program and the constants of a file, which has been checked already; and the operators, which have not."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    program = json.loads(metadata["zeropoint.program"])
    constants = []
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        dtype = _TYPES.get(tensor["dtype"], tensor["dtype"].lower())
        constants.append(Source(name, "constant", -1, dtype, tuple(tensor["shape"]), end - begin))
    return program, constants, _operators(metadata.get("zeropoint.operators", "[]"))


def _histograms(data: bytes) -> dict[str, tuple[int, ...]]:
    """How the values of each weight are spread over their range, in equal parts."""
    (length,) = struct.unpack("<Q", data[:8])
    found = {}
    for name, tensor in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__" or tensor["dtype"] not in ("I8", "F32") or len(tensor["shape"]) < 2:
            continue
        begin, end = (8 + length + offset for offset in tensor["data_offsets"])
        values = np.frombuffer(data[begin:end], _TYPES[tensor["dtype"]])
        values = values[np.isfinite(values)]
        if values.size:
            found[name] = tuple(int(n) for n in np.histogram(values.astype(np.float64), bins=_PARTS)[0])
    return found


def _operators(text: str) -> tuple[tuple[str, str, str, str], ...]:
    """What a file says about the operators of its model; nothing if it is anything else than it must be."""
    try:
        rows = json.loads(text)
        right = isinstance(rows, list) and all(
            isinstance(row, list) and len(row) == 4 and all(isinstance(part, str) for part in row) for row in rows
        )
    except (ValueError, RecursionError):
        right = False
    return tuple(tuple(row) for row in rows) if right else ()


def _times(profile: Profile | None, steps: int) -> list[dict[str, Any]]:
    """Seconds of each step, and what limits its longest part."""
    if profile is None:
        return [{} for _ in range(steps)]
    found: list[dict[str, Any]] = [{"seconds": 0.0} for _ in range(steps)]
    longest = [-1.0] * steps
    for row, limit in zip(profile, profile.limits):
        if row.step < 0:
            continue
        found[row.step]["seconds"] += row.seconds
        if row.seconds > longest[row.step]:
            longest[row.step] = row.seconds
            found[row.step] |= {"of_peak": limit.of_peak, "limit": limit.kind}
    return found
