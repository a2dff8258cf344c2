"""A program file while it is made, without PyTorch: steps by name, and tensors that are made when they are written.

Tensors lie on boundaries of 64 bytes, so that their bytes can be used where the file is mapped.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zeropoint.atomic_file import replacing

_LINE = 64
_VERSION_WITH_STATE = 2
_DTYPES = {"uint8": "U8", "float16": "F16", "float32": "F32", "int64": "I64"}

Maker = Callable[[], np.ndarray]


@dataclass
class ProgramFile:
    """Inputs, state, steps and outputs of a program, as docs/file-format.md has them, and its tensors."""

    inputs: list[dict[str, Any]] = field(default_factory=list)
    state: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    _tensors: dict[str, tuple[str, tuple[int, ...], Maker]] = field(default_factory=dict)

    def add(self, op: str, inputs: Sequence[str | None], outputs: Sequence[str], /, **attributes: Any) -> str:
        """A step; gives the name of its first output."""
        self.steps.append({"op": op, "inputs": list(inputs), "outputs": list(outputs), "attributes": attributes})
        return outputs[0]

    def tensor(self, name: str, dtype: str, shape: Sequence[int], make: Maker) -> str:
        """A tensor that `make` gives when it is written."""
        if name in self._tensors:
            raise ValueError(f"there are two tensors {name!r}")
        self._tensors[name] = dtype, tuple(shape), make
        return name

    def array(self, name: str, array: np.ndarray) -> str:
        """A tensor that is there."""
        return self.tensor(name, str(array.dtype), array.shape, lambda: array)

    def program(self) -> dict[str, Any]:
        """Inputs, state, steps and outputs as JSON has them."""
        program = {"version": _VERSION_WITH_STATE, "inputs": self.inputs, "outputs": self.outputs, "result": ""}
        found: dict[str, Any] = json.loads(json.dumps(program | {"steps": self.steps, "state": self.state}))
        return found

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The sizes of all tensors."""
        return {name: shape for name, (_, shape, _) in self._tensors.items()}

    def write(self, path: str | os.PathLike[str], metadata: Mapping[str, str]) -> None:
        """Write the file; `metadata` are more entries of its header."""
        text = json.dumps(self.program(), separators=(",", ":"), allow_nan=False)
        header: dict[str, Any] = {"__metadata__": {"zeropoint.program": text, **metadata}}
        at = 0
        for name, size in self._order():
            dtype, shape, _ = self._tensors[name]
            header[name] = {"dtype": _DTYPES[dtype], "shape": shape, "data_offsets": [at, at + size]}
            at += size
        made = json.dumps(header, separators=(",", ":")).encode()
        made += b" " * (-(len(made) + 8) % _LINE)
        with replacing(path) as new, new.open("wb") as file:
            file.write(struct.pack("<Q", len(made)) + made)
            for name, size in self._order():
                array = np.ascontiguousarray(self._tensors[name][2]())
                assert array.nbytes == size, name
                assert str(array.dtype) == self._tensors[name][0], name
                array.tofile(file)

    def _order(self) -> list[tuple[str, int]]:
        """Names and bytes: those that fill whole lines come first, in the order in which they are read."""
        sizes = [(name, self._bytes(name)) for name in self._tensors]
        return sorted(sizes, key=lambda row: row[1] % _LINE != 0)

    def _bytes(self, name: str) -> int:
        dtype, shape, _ = self._tensors[name]
        return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
