"""Files that are written whole or not at all: whatever goes wrong, the file that was there before stays."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where a file that is open is neither renamed nor removed
    fcntl = None  # type: ignore[assignment]

_UNFINISHED = "-unfinished"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """The path of a new file in the folder of `path`, to be written inside the block.

    At the end of the block it is on disk and takes the place of `path`, in one step that other processes see as a
    whole. If the block raises (a full disk, Ctrl-C), it is removed, and what was at `path` is untouched. What a process
    that was killed left is removed by the next one that writes the same file. A link stays a link: the file it points
    to is replaced. What is no ordinary file (a pipe, ``/dev/stdout``) is written directly.

    The new file has the mode of the old one, and no other user can read it before it takes its place.

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
    try:
        new, handle = _created(target, 0o666 if before is None else 0o600)
    except OSError as error:  # of the folder: it is missing, read-only or full
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None
    try:
        yield new
        if before is not None:
            new.chmod(stat.S_IMODE(before.st_mode))
        _to_disk(new)
        new.replace(target)
    except BaseException as error:
        new.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename in (None, os.fspath(new), new):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error  # of the file that was asked for
        raise
    finally:
        if handle is not None:
            os.close(handle)
    if fcntl is not None:  # Windows opens no folder
        _to_disk(target.parent)


def remove_unfinished(path: str | os.PathLike[str]) -> None:
    """Remove what processes that were killed left of a file that they wrote."""
    target = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):  # of the folder: whoever writes there is told
        for entry in os.listdir(target.parent):
            if entry.startswith(f".{target.stem[:40]}-") and entry.endswith(f"{_UNFINISHED}{target.suffix}"):
                _remove_unlocked(target.with_name(entry))


def _created(target: Path, mode: int) -> tuple[Path, int | None]:
    """An empty file, and a handle that holds its lock as long as this process lives; on Windows none."""
    remove_unfinished(target)
    while True:
        new = target.with_name(f".{target.stem[:40]}-{secrets.token_hex(6)}{_UNFINISHED}{target.suffix}")
        handle = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        if fcntl is None:
            os.close(handle)
            return new, None
        with contextlib.suppress(OSError):  # a file system without locks: what is left there is not removed
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return new, handle
        os.close(handle)  # another process took it for a file that was left


def _remove_unlocked(path: Path) -> None:
    with contextlib.suppress(OSError):  # it is being written, or was renamed or removed at this moment
        if fcntl is None:
            return path.unlink()
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(handle)


def _to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a loss of power."""
    handle = os.open(path, os.O_RDONLY if fcntl is not None else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
