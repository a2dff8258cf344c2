"""GGUF files: what they say about a model, and its tensors, read where they are.

A file is ``GGUF``, a version, the counts of tensors and of entries, the entries (key, type, value), a row for each
tensor (name, sizes with the innermost first, type, offset), and behind a boundary the bytes of the tensors. Files are
untrusted: every count and size is held against what is left of the file before memory is taken.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from zeropoint.regular_file import Path, open_regular

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_ENTRIES, _MOST_TENSORS, _MOST_AXES, _MOST_NAME = 1 << 16, 1 << 16, 4, 1 << 16
# Type number -> name, elements and bytes of a block.
FORMATS = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}


class GgufError(ValueError):
    """A file that is no GGUF file, or is damaged."""


@dataclass(frozen=True)
class GgufTensor:
    """A tensor: its sizes with the outermost first, the name of its format, and its bytes, block after block."""

    shape: tuple[int, ...]
    format: str
    data: np.ndarray

    def blocks(self) -> np.ndarray:
        """The bytes as rows, one for each block."""
        size = next(size for name, _, size in FORMATS.values() if name == self.format)
        return self.data.reshape(-1, size)


class _Reader:
    """A position in the bytes of a file that never passes their end."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def take(self, count: int, what: str) -> memoryview:
        if count > len(self.data) - self.at:
            raise GgufError(f"the file ends inside {what}: {count} bytes are needed at byte {self.at}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def text(self, what: str) -> str:
        length = self.number("Q", what)
        try:
            return str(self.take(length, what), "utf-8")
        except UnicodeDecodeError:
            raise GgufError(f"{what} is no UTF-8 text") from None

    def texts(self, count: int, what: str) -> list[str]:
        """Many texts, quickly."""
        found, at, data = [], self.at, self.data
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > len(data):
                raise GgufError(f"the file ends inside {what}")
            (length,) = unpack(data, at)
            if length > len(data) - at - 8:
                raise GgufError(f"the file ends inside {what}: a text of {length} bytes at byte {at}")
            found.append(bytes(data[at + 8 : at + 8 + length]).decode("utf-8", "replace"))
            at += 8 + length
        self.at = at
        return found

    def value(self, kind: int, what: str) -> Any:
        if kind == _STRING:
            return self.text(what)
        if kind == _ARRAY:
            return self.array(what)
        if kind not in _NUMBERS:
            raise GgufError(f"{what} has the unknown type {kind}")
        return self.number(_NUMBERS[kind], what)

    def array(self, what: str) -> Any:
        kind, count = self.number("I", what), self.number("Q", what)
        if kind == _STRING:
            if count > (len(self.data) - self.at) // 8:
                raise GgufError(f"{what} has {count} texts, more than the file can hold")
            return self.texts(count, what)
        if kind not in _NUMBERS:
            raise GgufError(f"{what} is a list of the unknown type {kind}")
        dtype = np.dtype("<" + _NUMBERS[kind])
        return np.frombuffer(self.take(count * dtype.itemsize, what), dtype).copy()


class Gguf:
    """An open GGUF file.

    Args:
        path: a regular file.

    Raises:
        OSError: if it cannot be read.
        GgufError: if it is no GGUF file or is damaged; the message says what is wrong and where.
    """

    def __init__(self, path: Path) -> None:
        with open_regular(path) as file:
            if file.seek(0, 2) < 24:
                raise GgufError(f"{path} is no GGUF file: it has {file.tell()} bytes")
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self.metadata: dict[str, Any] = {}
        self._rows: dict[str, tuple[tuple[int, ...], str, int, int]] = {}
        try:
            self._read(_Reader(data))
        except GgufError as error:
            raise GgufError(f"{path}: {error}") from None

    def _read(self, reader: _Reader) -> None:
        if bytes(reader.take(4, "the header")) != _MAGIC:
            raise GgufError("not a GGUF file: it does not begin with 'GGUF'")
        version = reader.number("I", "the header")
        if version not in _VERSIONS:
            raise GgufError(f"version {version} of GGUF is not supported, only {_VERSIONS}")
        tensors, entries = reader.number("Q", "the header"), reader.number("Q", "the header")
        if tensors > _MOST_TENSORS or entries > _MOST_ENTRIES:
            raise GgufError(f"{tensors} tensors and {entries} entries are more than any model has")
        for _ in range(entries):
            key = reader.text("the name of an entry")
            if len(key) > _MOST_NAME or key in self.metadata:
                raise GgufError(f"the entry {key[:80]!r} is there twice, or its name is too long")
            self.metadata[key] = reader.value(reader.number("I", "an entry"), f"the entry {key[:80]!r}")
        rows = [self._row(reader) for _ in range(tensors)]
        boundary = self.metadata.get("general.alignment", 32)
        if not isinstance(boundary, int) or not 1 <= boundary <= 1 << 16:
            raise GgufError(f"an alignment of {boundary!r} is none")
        begin = -(-reader.at // boundary) * boundary
        for name, shape, form, size, offset in rows:
            if name in self._rows:
                raise GgufError(f"the tensor {name[:80]!r} is there twice")
            if begin + offset + size > len(reader.data):
                raise GgufError(f"the tensor {name[:80]!r} of shape {shape} lies outside the file")
            self._rows[name] = shape, form, begin + offset, size
        self._data = reader.data

    @staticmethod
    def _row(reader: _Reader) -> tuple[str, tuple[int, ...], str, int, int]:
        name = reader.text("the name of a tensor")
        what = f"the tensor {name[:80]!r}"
        axes = reader.number("I", what)
        if not 0 < axes <= _MOST_AXES or len(name) > _MOST_NAME:
            raise GgufError(f"{what} has {axes} axes")
        shape = tuple(reader.number("Q", what) for _ in range(axes))[::-1]
        kind, offset = reader.number("I", what), reader.number("Q", what)
        if kind not in FORMATS:
            supported = ", ".join(name for name, _, _ in FORMATS.values())
            raise GgufError(f"{what} has the type {kind}, which is not supported; these are: {supported}")
        form, elements, size = FORMATS[kind]
        count = math.prod(shape)
        if not 0 < count < 1 << 40 or shape[-1] % elements:
            raise GgufError(f"{what} of shape {shape} cannot be blocks of {elements}")
        return name, shape, form, count // elements * size, offset

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self._rows)

    def tensor(self, name: str) -> GgufTensor:
        """A tensor; its bytes are those of the file, which must not change meanwhile."""
        shape, form, begin, size = self._rows[name]
        return GgufTensor(shape, form, np.frombuffer(self._data, np.uint8, size, begin))
