"""The header of safetensors files, read before their tensors: what it does not account for is not read at all."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from zeropoint.regular_file import Path, open_regular, require_regular

T = TypeVar("T")

_LENGTH_BYTES, _MOST_HEADER_BYTES = 8, 100_000_000  # as in safetensors


def read_header(path: Path) -> dict[str, Any]:
    """What a file says about its tensors, and its metadata, under ``__metadata__``.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not a whole safetensors file.
    """
    with open_regular(path) as file:
        return _header(file, path)


def read_whole(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a file, and its header.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not a whole safetensors file.
    """
    with open_regular(path) as file:
        header = _header(file, path)
        file.seek(0)
        return file.read(), header


def with_metadata(file: bytes, name: str, text: str) -> bytes:
    """The bytes of a file with one more entry of metadata, behind the others."""
    (length,) = struct.unpack("<Q", file[:_LENGTH_BYTES])
    header = json.loads(file[_LENGTH_BYTES : _LENGTH_BYTES + length])
    header["__metadata__"][name] = text
    made = json.dumps(header, separators=(",", ":")).encode()
    made += b" " * (-len(made) % 8)  # the data behind it is aligned
    return struct.pack("<Q", len(made)) + made + file[_LENGTH_BYTES + length :]


def _header(file: BinaryIO, path: Path) -> dict[str, Any]:
    size = require_regular(file.fileno())
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if not 0 < length <= min(size - _LENGTH_BYTES, _MOST_HEADER_BYTES):
        raise _damaged(path, f"a header of {length} bytes does not fit in a file of {size}")
    try:
        header = json.loads(file.read(length))
        metadata = header.get("__metadata__", {})
        is_right = all(isinstance(value, str) for value in metadata.values())
        end = max((_end(entry) for name, entry in header.items() if name != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"its header is not right ({type(error).__name__})") from error
    if not is_right or _LENGTH_BYTES + length + end != size:
        raise _damaged(path, f"its tensors end at byte {_LENGTH_BYTES + length + end}, the file at {size}")
    return header


def _end(entry: Any) -> int:
    """Where a tensor ends."""
    begin, end = entry["data_offsets"]
    numbers = begin, end, *entry["shape"]
    if not isinstance(entry["dtype"], str) or not all(type(n) is int and n >= 0 for n in numbers):
        raise TypeError(entry)
    return end


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{os.fspath(path)} is not a whole safetensors file: {why}")


def read_entry(path: Path, entry: str, made: Callable[[Any], T], what: str, maker: str) -> T:
    """What `made` makes of an entry of a file's metadata, which is JSON.

    Raises:
        ValueError: if the file is no `what`, which `maker` creates; or if the entry is damaged.
    """
    text = read_header(path).get("__metadata__", {}).get(entry)
    if text is None:
        raise ValueError(f"{path} is no {what}: create one with {maker}")
    try:
        return made(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: what it says about its {what} is not right") from error
