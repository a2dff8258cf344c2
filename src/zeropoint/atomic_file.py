"""Files that are written whole or not at all: whatever goes wrong, the file that was there before stays."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """The path of a new file in the folder of `path`, to be written inside the block.

    At the end of the block it is on disk and takes the place of `path`, in one step that other processes see as a
    whole. If the block raises (a full disk, Ctrl-C), it is removed, and what was at `path` is untouched. A link stays a
    link: the file it points to is replaced. What is no ordinary file (a pipe, ``/dev/stdout``) is written directly.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/model.zpt") as new:
        ...         _ = new.write_bytes(b"program")
        ...     os.listdir(folder)
        ['model.zpt']
    """
    target = Path(os.path.realpath(path))
    before = target.stat() if target.exists() else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        yield Path(path)
        return
    new = target.with_name(f".{target.stem}-{secrets.token_hex(6)}{target.suffix}")
    try:
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except OSError as error:  # of the folder: it is missing, read-only or full
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None
    try:
        yield new
        if before is not None:
            new.chmod(stat.S_IMODE(before.st_mode))
        _to_disk(new)
        new.replace(target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _to_disk(target.parent)


def _to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
