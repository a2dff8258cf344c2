"""The archives of ``torch.save`` and ``torch.jit.save``, read within the memory that a file of their size may take."""

from __future__ import annotations

import contextlib
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

__all__ = ["File", "ZipRecords", "zip_records"]

File = str | os.PathLike[str] | IO[bytes]

# The bound of program files, see docs/reliability.md. PyTorch compresses no tensors: what holds more is made to.
_MOST_BYTES, _MOST_PER_BYTE = 64_000_000, 64


class ZipRecords:
    """What an open archive holds. What is read in all is bounded: a few bytes can stand for gigabytes, or be shared."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive = archive
        self._left = _MOST_BYTES + _MOST_PER_BYTE * size
        self.names = archive.namelist()

    def read(self, name: str) -> bytes:
        """The bytes of a record.

        Raises:
            ValueError: if they are damaged, or take more memory than a file of this size may.
        """
        info = self._archive.getinfo(name)
        self._left -= info.file_size
        if self._left < 0:
            raise ValueError(
                f"the file is damaged: its records would take {info.file_size} bytes and more of memory, which is out "
                "of proportion to the file"
            )
        try:
            return self._archive.read(info)
        except zipfile.BadZipFile:
            raise
        except (zlib.error, EOFError, RuntimeError, NotImplementedError, struct.error) as error:
            raise ValueError(f"the file is damaged: cannot read {name}: {error}") from error


@contextlib.contextmanager
def zip_records(file: File) -> Iterator[ZipRecords]:
    """The records of a file. A file object is read from where it stands, and stays open.

    Raises:
        zipfile.BadZipFile: if it is no archive.

    Example:
        >>> import io
        >>> made = io.BytesIO()
        >>> with zipfile.ZipFile(made, "w") as archive:
        ...     archive.writestr("a", b"bytes")
        >>> with zip_records(made) as records:
        ...     records.names, records.read("a")
        (['a'], b'bytes')
    """
    with zipfile.ZipFile(file) as archive:
        if isinstance(file, (str, os.PathLike)):
            size = os.path.getsize(file)
        else:
            here = file.tell()
            size = file.seek(0, os.SEEK_END)
            file.seek(here)
        yield ZipRecords(archive, size)
