"""libzeropoint.so, built and installed, and its C API for ctypes: the structs as zeropoint.h declares them."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
MAX_RANK = 8
TYPES = [np.dtype(name) for name in ("uint8", "int8", "int16", "int32", "int64", "float32", "float16", "bool")]
OK, INVALID_ARGUMENT, BAD_SHAPE, BAD_FILE, IO_ERROR, OUT_OF_MEMORY, BUSY, BUFFER_TOO_SMALL, INTERNAL_ERROR = range(9)

_Sizes = ctypes.c_int64 * MAX_RANK


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", _Sizes),
        ("strides", _Sizes),
    ]


class Input(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", _Sizes),
        ("example", _Sizes),
        ("axes", ctypes.c_char_p * MAX_RANK),
    ]


class Options(ctypes.Structure):
    _fields_ = [("memory_limit", ctypes.c_int64), ("reserved", ctypes.c_int64 * 7)]


class Step(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("seconds", ctypes.c_double),
        ("macs", ctypes.c_double),
        ("kernel", ctypes.c_char_p),
    ]


@functools.cache
def installed() -> Path:
    """The directory that the C API was built and installed into."""
    command = ["env", f"PYTHON={sys.executable}", ROOT / "scripts" / "install_c_api.sh", ROOT / "build" / "c_api"]
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=ROOT, timeout=1500)
    assert result.returncode == 0, (result.stdout + result.stderr)[-5000:]
    return Path(result.stdout.strip().splitlines()[-1])


class Library:
    """The functions of libzeropoint.so; those that give text have that as their type."""

    def __init__(self) -> None:
        self.c = ctypes.CDLL(str(installed() / "lib" / "libzeropoint.so"))
        for name in ("zp_version", "zp_last_error", "zp_isa", "zp_program_result"):
            getattr(self.c, name).restype = ctypes.c_char_p
        for name in ("zp_program_input_count", "zp_program_output_count", "zp_program_step_count"):
            getattr(self.c, name).restype = ctypes.c_size_t

    @property
    def last_error(self) -> str:
        return self.c.zp_last_error().decode()

    def load(self, path: Path | str) -> ctypes.c_void_p:
        program = ctypes.c_void_p()
        status = self.c.zp_program_load(str(path).encode(), None, ctypes.byref(program))
        assert status == OK, self.last_error
        return program

    def session(self, program: ctypes.c_void_p) -> ctypes.c_void_p:
        session = ctypes.c_void_p()
        assert self.c.zp_session_create(program, ctypes.byref(session)) == OK, self.last_error
        return session

    def run(self, session: ctypes.c_void_p, inputs: Sequence[np.ndarray], outputs: int) -> list[np.ndarray]:
        """The outputs, copied from the memory of the session."""
        given = (Tensor * len(inputs))(*(tensor_of(x) for x in inputs))
        made = (Tensor * outputs)()
        status = self.c.zp_session_run(session, given, ctypes.c_size_t(len(inputs)), made, ctypes.c_size_t(outputs))
        assert status == OK, self.last_error
        return [array_of(y) for y in made]


def tensor_of(x: np.ndarray) -> Tensor:
    """An array as a tensor of the C API; it must outlive that."""
    strides = [stride // x.itemsize for stride in x.strides]
    return Tensor(x.ctypes.data, x.nbytes, TYPES.index(x.dtype), x.ndim, _Sizes(*x.shape), _Sizes(*strides))


def array_of(y: Tensor) -> np.ndarray:
    """A copy of a tensor of the C API."""
    dtype = TYPES[y.type]
    memory = np.frombuffer(ctypes.string_at(y.data, y.bytes), dtype)
    strides = [stride * dtype.itemsize for stride in y.strides[: y.rank]]
    return np.lib.stride_tricks.as_strided(memory, y.sizes[: y.rank], strides).copy()
