"""A program: a quantized model as a list of native steps, called with arrays."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from zeropoint import _native
from zeropoint.atomic_file import replacing
from zeropoint.html_table import html_table
from zeropoint.runtime.nesting import filled, flattened, is_array
from zeropoint.runtime.profile import Profile


class Memory(NamedTuple):
    """The memory of a program, in bytes.

    `arena` holds all values of one run; `values` is its size without memory reuse; `file` is the size of the stored
    constants, before they are packed for this CPU.
    """

    arena: int
    values: int
    file: int


def _given_as(dtype: str, array: Any) -> Any:
    """An array as one of another dtype; complex numbers are made of the pairs along the last axis."""
    if not dtype.startswith("complex"):
        return array.astype(dtype)
    if array.dtype != "float32" or array.shape[-1:] != (2,):
        raise ValueError(f"expected pairs of float32 as a complex result, got {array.dtype} {array.shape}")
    return array.copy("C").view("complex64")[..., 0].astype(dtype, copy=False)


class Program:
    """A quantized model, ready to run. Several threads can share it if it has no state.

    Call it like the model, or with one array for each input, in order or by name. It returns what the model returned,
    with arrays instead of tensors. Inputs support the buffer protocol (numpy arrays) or DLPack (PyTorch tensors).
    Contiguous and channels-last inputs are read in place.

    A program with state (see `state`), such as a decoder with a KV cache, continues where its last call ended, until
    `reset()`. Concurrent calls then need one `copy()` each.

    Raises:
        TypeError: for a wrong number of inputs or a wrong dtype.
        ValueError: for a wrong shape; the message shows the expected one.
        RuntimeError: if another call with the same state is running.
    """

    def __init__(self, native: _native.Program) -> None:
        self._native = native
        self._state = native.new_state()
        self._names = [name for name, _, _ in native.inputs]
        self._result = json.loads(native.result) if native.result else 0
        self._arguments = json.loads(native.arguments) if native.arguments else None

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        results = self._native.run(self._ordered(inputs, named), state=self._state)
        return results[0] if self._result == 0 else filled(self._result, results, _given_as)

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
        """Name, dtype and shape of each input. A dynamic size is a name, or ``""``."""
        return [
            (name, dtype, tuple(int(n) if _is_size(n) else n for n in shape))
            for name, dtype, shape in self._native.inputs
        ]

    @property
    def outputs(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, dtype and shape of each output, for inputs of the shapes of the example inputs."""
        found = self._native.outputs(self.example_shapes)
        return [(name, dtype, tuple(shape)) for name, dtype, shape in found]

    @property
    def example_shapes(self) -> list[list[int]]:
        """The shapes of the inputs that the program was compiled with: sizes that surely fit each other."""
        return self._native.example_shapes()

    @property
    def state(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, dtype and shape of each state tensor."""
        return [(name, dtype, tuple(shape)) for name, dtype, shape in self._native.state]

    def reset(self) -> None:
        """Reset the state to its initial values. Raises RuntimeError while a call is running."""
        self._state.reset()

    def copy(self) -> Program:
        """The same program with its own, new state. It shares weights, plans and working memory with this one."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._state = self._native.new_state()
        return made

    def __copy__(self) -> Program:
        """A `copy()` whose state has the values of this one."""
        made = self.copy()
        if self.state:
            made._state.set_values(self._state.values())
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        return copy.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """The file and the values of the state: what another process, or another machine, needs."""
        values = self._state.values() if self.state else []
        return _restored, (type(self), self._native.data(), self._native.memory_limit, self._extras(), values)

    def _extras(self) -> dict[str, Any]:
        """What the constructor takes besides the native program."""
        return {}

    def memory(self, *shapes: Sequence[int]) -> Memory:
        """The memory for inputs of these shapes; by default, the shapes of the example inputs."""
        return Memory(*self._native.memory(list(shapes) or self.example_shapes), self._native.file_bytes)

    def profile(self, *inputs: Any, runs: int = 10) -> Profile:
        """The time of each step: the median of `runs` runs after a warm-up run, each with a new state."""
        timed = [self._native.profile(inputs) for _ in range(runs + 1)]
        return Profile.of(timed[1:] or timed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program file for `load`. If writing fails, an existing file is left unchanged."""
        data = self._native.data()
        with replacing(path) as new:
            new.write_bytes(data)

    def _repr_html_(self) -> str:
        rows = [("input", name, dtype, "×".join(map(str, shape))) for name, dtype, shape in self.inputs]
        rows += [("output", name, dtype, "×".join(map(str, shape))) for name, dtype, shape in self.outputs]
        rows += [("state", name, dtype, "×".join(map(str, shape))) for name, dtype, shape in self.state]
        about = f"{self._native.steps} steps, {self._native.file_bytes:,} bytes of constants"
        return html_table(("", "name", "dtype", "shape"), rows, about)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}: {dtype}{list(shape)}" for name, dtype, shape in self.inputs)
        return f"{type(self).__name__}({shown}; {self._native.steps} steps, {self._native.file_bytes:,} bytes)"


def _restored(kind: type[Program], data: bytes, limit: int, extras: dict[str, Any], values: list[bytes]) -> Program:
    """A program that was pickled. Like every pickle, it comes from a place that is trusted."""
    made = kind(_native.Program(data, limit), **extras)
    if values:
        made._state.set_values(values)
    return made


def _is_size(text: str) -> bool:
    """Whether it is a fixed size; names may be of any letters, and some of those are digits elsewhere."""
    return text.isascii() and text.isdigit() and len(text) < 20


def load(path: str | os.PathLike[str], *, memory_limit: int | None = None, in_place: bool = True) -> Program:
    """Load a program file, validate it, and pack its weights for this CPU.

    Args:
        memory_limit: the largest number of bytes for the values of one run; 8 GiB by default. With a larger limit,
            packed weights can use as much; otherwise they can use 60 MB plus 16 bytes for each byte of the file.
        in_place: use weights that are stored as the kernels read them, those of language models, where the file is
            mapped; it must not change while the program is in use. Else they are copied to memory with large pages.

    Raises:
        FormatError: if the file is invalid; the message has the path, the problem and its location.
    """
    options = {} if memory_limit is None else {"memory_limit": memory_limit}
    try:
        return Program(_native.Program.read(os.fspath(path), in_place=in_place, **options))
    except _native.FormatError as error:
        raise _native.FormatError(f"{os.fspath(path)}: {error}") from None
