"""A program: a quantized model as a list of native steps, called with arrays."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from zeropoint import _native
from zeropoint.atomic_file import replacing
from zeropoint.runtime.nesting import filled, flattened, is_array
from zeropoint.runtime.profile import Profile

__all__ = ["Memory", "Program", "load"]


class Memory(NamedTuple):
    """The memory of a program, in bytes.

    `arena` is for all values of one run; `values` what it would be if none shared memory with another; `file` is the
    stored constants, before they are packed for this CPU.
    """

    arena: int
    values: int
    file: int


class Program:
    """A quantized model, ready to run. Threads may share it, if it has no state.

    Called as the model was, or with one array for each input, in order or by name; gives what the model gave, with
    arrays for tensors.
    Inputs have the buffer protocol, as numpy's arrays, or DLPack, as PyTorch's tensors; those that are contiguous, or
    channels last, are read where they are.

    A program with state (`state` lists it) continues where its last call ended, as a decoder with a cache does, until
    `reset()`. Calls of one program then follow each other; `copy()` gives one with a state of its own.

    Raises:
        TypeError: for the wrong number of inputs, or another dtype.
        ValueError: for a shape that does not fit, with what would.
        RuntimeError: if another call is running with the same state.
    """

    def __init__(self, native: _native.Program) -> None:
        self._native = native
        self._state = native.new_state()
        self._names = [name for name, _, _ in native.inputs]
        self._result = json.loads(native.result) if native.result else 0
        self._arguments = json.loads(native.arguments) if native.arguments else None

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        results = self._native.run(self._ordered(inputs, named), state=self._state)
        return results[0] if self._result == 0 else filled(self._result, results)

    def _ordered(self, inputs: Sequence[Any], named: dict[str, Any]) -> Sequence[Any]:
        if self._arguments is not None:
            one_by_one = len(inputs) + len(named) == len(self._names) and all(map(is_array, (*inputs, *named.values())))
            if not one_by_one:
                return flattened(self._arguments, inputs, named, len(self._names))
        if not named:
            return inputs
        rest = self._names[len(inputs) :]
        if sorted(rest) != sorted(named):
            raise TypeError(f"the program takes {', '.join(self._names)}; got {len(inputs)} and {', '.join(named)}")
        return [*inputs, *(named[name] for name in rest)]

    @property
    def inputs(self) -> list[tuple[str, str, tuple[int | str, ...]]]:
        """Name, dtype and shape of each input; a size that is free is a name, or ``""``."""
        return [
            (name, dtype, tuple(int(n) if n.isdigit() else n for n in shape))
            for name, dtype, shape in self._native.inputs
        ]

    @property
    def state(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, dtype and shape of each tensor that is kept from call to call."""
        return [(name, dtype, tuple(shape)) for name, dtype, shape in self._native.state]

    def reset(self) -> None:
        """Reset the state to its initial values. Raises RuntimeError while a call is running."""
        self._state.reset()

    def copy(self) -> Program:
        """The same program with a state of its own, new. It shares weights, plans and memory for runs with this one."""
        made = copy.copy(self)
        made._state = self._native.new_state()
        return made

    def memory(self, *shapes: Sequence[int]) -> Memory:
        """The memory that inputs of these shapes need; without shapes, those of the example."""
        return Memory(*self._native.memory(list(shapes) or self._native.example_shapes()), self._native.file_bytes)

    def profile(self, *inputs: Any, runs: int = 10) -> Profile:
        """The time of each step: the median of `runs` runs after a warm-up run, each with a new state."""
        timed = [self._native.profile(inputs) for _ in range(runs + 1)]
        return Profile.of(timed[1:] or timed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program file for `load`. If writing fails, an existing file is left unchanged."""
        data = self._native.data()
        with replacing(path) as new:
            new.write_bytes(data)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}: {dtype}{list(shape)}" for name, dtype, shape in self.inputs)
        return f"{type(self).__name__}({shown}; {self._native.steps} steps, {self._native.file_bytes:,} bytes)"


def load(path: str | os.PathLike[str], *, memory_limit: int | None = None) -> Program:
    """Read a program file, check all of it, and pack its weights for this CPU.

    Args:
        memory_limit: the most bytes that the values of one run may take; 8 GiB by default. With more than that, the
            packed weights may take as much, too; else 60 MB and 16 bytes for each byte of the file.

    Raises:
        FormatError: if the file is invalid, with its path, what is wrong and where.
    """
    options = {} if memory_limit is None else {"memory_limit": memory_limit}
    try:
        return Program(_native.Program.read(os.fspath(path), **options))
    except _native.FormatError as error:
        raise _native.FormatError(f"{os.fspath(path)}: {error}") from None
