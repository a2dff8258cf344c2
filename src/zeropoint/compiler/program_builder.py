"""A program while it is made: steps between named values, and the tensors that are stored with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from zeropoint.safetensors_header import with_metadata

VERSION = 1
VERSION_WITH_STATE = 2
VERSION_WITH_ARGUMENTS = 3
VERSION_WITH_OTHER_TYPES = 4


@dataclass
class Input:
    """An input: its dtype, its shape, where a size that is free is a name or None, and the shape of an example."""

    name: str
    dtype: str
    shape: list[int | str | None]
    example: list[int]


@dataclass
class State:
    """A tensor that is kept from call to call: which value replaces it, and the constant it begins with, or zeros."""

    dtype: str
    shape: list[int]
    next: str = ""
    initial: str | None = None


@dataclass
class Step:
    """One step: the name of its kind, see native/engine/steps, the values it reads and makes, and its numbers."""

    op: str
    inputs: list[str | None]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)

    def reads(self) -> set[str]:
        """Every value it needs: its inputs, and sizes that are values."""
        read = {name for name in self.inputs if name is not None}
        for value in self.attributes.values():
            read |= {name for name in (value if isinstance(value, list) else [value]) if isinstance(name, Size)}
        return read


class Size(str):
    """The name of a value that is a number."""


def fresh_name(name: str, taken: set[str]) -> str:
    """`name`, or that with a number behind it if it is taken, which it is from now on."""
    made, number = name, 0
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    taken.add(made)
    return made


class ProgramBuilder:
    """Inputs, steps, outputs and constants.

    `result` says how outputs make up what the model gives, `arguments` how inputs make up what it is called with; None
    if that is the inputs one by one.
    """

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.state: dict[str, State] = {}
        self.steps: list[Step] = []
        self.outputs: list[str] = []
        self.result: Any = 0
        self.arguments: Any = None
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}  # of values, for the example; not of all
        self.dtypes: dict[str, str] = {}  # of values, not of all
        self.operators: list[tuple[str, str, str, str]] = []  # of the model: path, operator, way, reason; for people
        self.foreign: list[Any] = []  # what computes the steps that only PyTorch can
        self._by_bytes: dict[Any, str] = {}
        self._names: set[str] = set()

    def results(self) -> list[str]:
        """The values that are read when all steps have run: outputs, and what replaces the state."""
        return [*self.outputs, *(state.next for state in self.state.values())]

    def fresh(self, name: str) -> str:
        """`name`, or that with a number behind it if there is one already."""
        return fresh_name(name, self._names)

    def constant(self, name: str, value: torch.Tensor) -> str:
        """Store a tensor; equal ones are stored once."""
        array = np.asarray(value.detach().cpu().numpy(), order="C")  # ascontiguousarray gives every number an axis
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._by_bytes:
            self._by_bytes[key] = self.fresh(name)
            self.constants[self._by_bytes[key]] = array
            self.shapes[self._by_bytes[key]] = array.shape
        return self._by_bytes[key]

    def add(self, op: str, inputs: list[str | None], name: str | None = None, /, **attributes: Any) -> str:
        """A step with one output, whose name it returns."""
        return self.add_several(op, inputs, [name or op], **attributes)[0]

    def add_several(self, op: str, inputs: list[str | None], names: list[str], /, **attributes: Any) -> list[str]:
        """A step with several outputs."""
        made = [self.fresh(name) for name in names]
        self.steps.append(Step(op, inputs, made, attributes))
        return made

    def data(self) -> bytes:
        """The program file."""
        used = {name for step in self.steps for name in step.reads()} | set(self.results())
        used |= {state.initial for state in self.state.values() if state.initial is not None}
        program: dict[str, Any] = {
            "version": self._version(),
            "inputs": [vars(i) for i in self.inputs],
            "outputs": self.outputs,
            "result": "" if self.result == 0 else json.dumps(self.result),
            "steps": [vars(s) for s in self.steps],
        }
        if self.state:
            program["state"] = [{"name": name, **vars(state)} for name, state in self.state.items()]
        if self.arguments is not None:
            program["arguments"] = json.dumps(self.arguments)
        text = json.dumps(program, separators=(",", ":"), allow_nan=False)
        stored = {name: array for name, array in self.constants.items() if name in used}
        file = save(stored, metadata={"zeropoint.program": text})
        if not self.operators:
            return file
        operators = json.dumps(self.operators, separators=(",", ":"))
        return with_metadata(file, "zeropoint.operators", operators)  # safetensors would write two in any order

    def _version(self) -> int:
        if _has(self.result, "as "):
            return VERSION_WITH_OTHER_TYPES
        if self.arguments is not None or _has(self.result, "constant"):
            return VERSION_WITH_ARGUMENTS
        return VERSION_WITH_STATE if self.state else VERSION


def _has(tree: Any, begin: str) -> bool:
    """Whether there is a part of a kind in it that begins so."""
    if isinstance(tree, int):
        return False
    kind, parts = tree
    if kind not in ("list", "tuple", "dict"):
        return bool(kind.startswith(begin))
    return any(_has(part[1] if kind == "dict" else part, begin) for part in parts)
