"""What the modules of a program compute, and how alike that of two programs is. Needs no torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from zeropoint import _native
from zeropoint.report.program_facts import ProgramFacts
from zeropoint.runtime import Program

MOST = 120.0  # dB: above it, values differ by the rounding of float32


def module_values(program: Program, facts: ProgramFacts, inputs: Sequence[Any]) -> dict[str, Any]:
    """The last tensor that each module computes, by its path; none if the program cannot give them."""
    names = {step.path or step.op: step.name for step in facts.steps if step.dtype}
    if not names:
        return {}
    try:
        native = _native.Program(
            _with_outputs(program._native.data(), list(names.values())), program._native.memory_limit
        )
        found = native.run(list(inputs), state=native.new_state())
    except (ValueError, MemoryError):  # values that are kept until the end can be more than the limit allows
        return {}
    return dict(zip(names, found if isinstance(found, (list, tuple)) else [found]))


def _with_outputs(data: bytes, names: list[str]) -> bytes:
    """A program file that gives these values."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    program = json.loads(header["__metadata__"]["zeropoint.program"])
    program |= {"outputs": names, "result": json.dumps(["list", list(range(len(names)))]) if len(names) > 1 else ""}
    header["__metadata__"] = {"zeropoint.program": json.dumps(program)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def likeness(a: Any, b: Any) -> float | None:
    """How alike two tensors are up to scale and zero point, in dB: ``-10 log10(1 - r^2)`` of their correlation r.

    So bytes can be compared with floats. None if the tensors have other shapes, or one does not vary.

    Example:
        >>> likeness(np.array([0, 100, 200], np.uint8), np.array([-1.0, 0.0, 1.0]))
        120.0
        >>> round(likeness(np.array([0, 90, 200], np.uint8), np.array([-1.0, 0.0, 1.0])), 1)
        24.8
    """
    if np.shape(a) != np.shape(b):
        return None
    x, y = (np.asarray(v, np.float64).reshape(-1) for v in (a, b))
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    if np.array_equal(x, y) and x.size:
        return MOST
    x, y = x - x.mean() if x.size else x, y - y.mean() if y.size else y
    energy = float(x @ x) * float(y @ y)
    if energy == 0:
        return None
    rest = 1 - float(x @ y) ** 2 / energy
    return min(MOST, -10 * float(np.log10(max(rest, 1e-300))))
