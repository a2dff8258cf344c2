"""The archives of ``torch.save`` and ``torch.jit.save``, read within the memory that a file of their size may take."""

from __future__ import annotations

import contextlib
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from zeropoint.regular_file import Allowance, open_regular

File = str | os.PathLike[str] | IO[bytes]


class ZipRecords:
    """What an open archive holds. What is read in all is bounded: PyTorch compresses no tensors."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive = archive
        self.allowance = Allowance(size)
        self.names = archive.namelist()

    def read(self, name: str) -> bytes:
        """The bytes of a record.

        Raises:
            ValueError: if they are damaged, or take more memory than a file of this size may.
        """
        info = self._archive.getinfo(name)
        self.allowance.take(info.file_size, "its records")
        try:
            return self._archive.read(info)
        except zipfile.BadZipFile:
            raise
        except (zlib.error, EOFError, RuntimeError, NotImplementedError, struct.error) as error:
            raise ValueError(f"the file is damaged: cannot read {name}: {error}") from error


def opened(file: File) -> contextlib.AbstractContextManager[Any]:
    """A file, open for reading. A file object stays open afterwards."""
    return open_regular(file) if isinstance(file, (str, os.PathLike)) else contextlib.nullcontext(file)


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
    with opened(file) as stream, zipfile.ZipFile(stream) as archive:
        here = stream.tell()
        size = stream.seek(0, os.SEEK_END)
        stream.seek(here)
        yield ZipRecords(archive, size)
