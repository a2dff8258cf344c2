"""Files that are read: regular ones only, and within the memory that a file of their size may take.

A pipe has no end that can be waited for, and a device may have none at all. Whatever reads a path asks here first.
"""

from __future__ import annotations

import io
import os
import stat
from typing import BinaryIO

Path = str | os.PathLike[str]

# Without waiting for a pipe, and bytes as they are: each where the system has it (Windows has the second).
_READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

# The bound of program files, see docs/reliability.md.
_MOST_BYTES, _MOST_PER_BYTE = 64_000_000, 64
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def require_regular(path: Path | int) -> int:
    """The size of a file, by its path or as it is open.

    Raises:
        FileNotFoundError: if there is none.
        io.UnsupportedOperation: (a ValueError and an OSError) if it is a folder, a pipe or a device.

    Example:
        >>> require_regular(os.devnull)
        Traceback (most recent call last):
        ...
        io.UnsupportedOperation: /dev/null is a device, and only regular files are read: copy its content to one
    """
    return _size(os.stat(path), path)


def open_regular(path: Path) -> BinaryIO:
    """A file, open for reading. It is looked at before it is opened, which may wait, and after, when it cannot change.

    Raises:
        OSError: as `require_regular`, or if it cannot be opened.
    """
    require_regular(path)
    handle = os.open(path, _READING)
    try:
        _size(os.fstat(handle), path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _size(found: os.stat_result, path: Path | int) -> int:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise io.UnsupportedOperation(f"{path} is {kind}, and only regular files are read: copy its content to one")
    return found.st_size


class Allowance:
    """The memory that what is in a file may take: a few bytes can stand for gigabytes, by packing or by sharing.

    Args:
        size: of the file, in bytes.

    Example:
        >>> Allowance(1000).take(10**9, "its tensors")
        Traceback (most recent call last):
        ...
        ValueError: the file is damaged: its tensors would take 1000000000 bytes or more of memory, out of proportion to the file
    """  # noqa: E501  # of the message

    def __init__(self, size: int) -> None:
        self._left = _MOST_BYTES + _MOST_PER_BYTE * size

    def take(self, count: int, what: str) -> None:
        """Count so many bytes.

        Raises:
            ValueError: if they are more than is left.
        """
        self._left -= count
        if self._left < 0:
            raise ValueError(
                f"the file is damaged: {what} would take {count} bytes or more of memory, out of proportion to the file"
            )
