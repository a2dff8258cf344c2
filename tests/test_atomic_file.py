"""What is written replaces a file as a whole, or leaves it as it was."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

import zeropoint
from zeropoint.atomic_file import replacing

OLD, NEW = b"the old file", b"the new one, longer than the old"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "model.zpt"
    path.write_bytes(OLD)
    return path


def test_new_file_takes_the_place_of_the_old_and_nothing_else_is_left(old: Path) -> None:
    with replacing(old) as new:
        new.write_bytes(NEW)
        assert old.read_bytes() == OLD
        assert new.suffix == ".zpt"
    assert old.read_bytes() == NEW
    assert os.listdir(old.parent) == ["model.zpt"]


def interrupted(path: Path, error: BaseException) -> None:
    with replacing(path) as new:
        new.write_bytes(NEW[:4])
        raise error


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()], ids=["full", "ctrl-c"])
def test_error_while_writing_keeps_the_old_file(old: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        interrupted(old, error)
    assert old.read_bytes() == OLD
    assert os.listdir(old.parent) == ["model.zpt"]


def test_full_disk_keeps_the_program_that_was_saved_before(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short write: the file system takes half of the data and then refuses."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4)).eval()
    x = torch.randn(8, 4)
    program = zeropoint.compile(zeropoint.to_int8(model, (x,), [x], progress=False), (x,))
    program.save(old)
    saved = old.read_bytes()

    def short(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "write_bytes", short)
    with pytest.raises(OSError, match="No space left"):
        program.save(old)
    assert old.read_bytes() == saved
    assert torch.equal(torch.from_numpy(zeropoint.runtime.load(old)(x.numpy())), program(x))
    assert os.listdir(old.parent) == ["model.zpt"]


def test_mode_of_the_old_file_and_links_to_it_stay(old: Path) -> None:
    old.chmod(0o640)
    link = old.with_name("latest.zpt")
    link.symlink_to(old.name)
    with replacing(link) as new:
        new.write_bytes(NEW)
    assert link.is_symlink()
    assert old.read_bytes() == NEW
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_pipe_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with replacing(pipe) as new:
        new.write_bytes(NEW)
    reader.join()
    assert got == [NEW]


def test_missing_folder_is_said_with_the_path_that_was_given(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "model.zpt"
    with pytest.raises(FileNotFoundError) as caught, replacing(path):
        pass
    assert caught.value.filename == str(path)
