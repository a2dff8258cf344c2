"""What is written replaces a file as a whole, or leaves it as it was."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
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


def test_without_locks_it_is_the_same(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where a file that is open cannot be renamed: nothing is open when the block ends."""
    monkeypatch.setattr("zeropoint.atomic_file.fcntl", None)
    left = old.with_name(".model-0123456789ab-unfinished.zpt")
    left.write_bytes(b"of a process that was killed")
    with replacing(old) as new:
        new.write_bytes(NEW)
        assert not [link for link in Path("/proc/self/fd").iterdir() if os.path.realpath(link) == os.fspath(new)]
    assert (old.read_bytes(), os.listdir(old.parent)) == (NEW, ["model.zpt"])
    with pytest.raises(KeyboardInterrupt):
        interrupted(old, KeyboardInterrupt())
    assert (old.read_bytes(), os.listdir(old.parent)) == (NEW, ["model.zpt"])


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


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_nobody_else_can_read_the_new_file_before_it_takes_the_place_of_the_old(old: Path, mode: int) -> None:
    old.chmod(mode)
    with replacing(old) as new:
        assert stat.S_IMODE(new.stat().st_mode) == 0o600
        new.write_bytes(NEW)
        assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert stat.S_IMODE(old.stat().st_mode) == mode


def test_a_file_that_was_not_there_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with replacing(tmp_path / "new") as new:
        new.write_bytes(NEW)
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


KILLED = """
import os, signal, sys
from zeropoint.atomic_file import replacing
with replacing(sys.argv[1]) as new:
    new.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next_that_writes(old: Path) -> None:
    for path in (old, old.with_name("new.zpt")):
        subprocess.run([sys.executable, "-c", KILLED, path], check=False)
        assert [name for name in os.listdir(old.parent) if "unfinished" in name]
        with replacing(path) as new:
            new.write_bytes(NEW)
            with replacing(path) as other:  # what is being written is not what was left
                other.write_bytes(OLD)
            assert new.exists()
        assert not [name for name in os.listdir(old.parent) if "unfinished" in name]
        assert path.read_bytes() == NEW


def test_two_that_write_the_same_file_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    path, errors = tmp_path / "model.zpt", []

    def write(content: bytes) -> None:
        try:
            for _ in range(50):
                with replacing(path) as new:
                    new.write_bytes(content)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(content * 1000,)) for content in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert path.read_bytes() in (b"a" * 1000, b"b" * 1000)
    assert os.listdir(tmp_path) == ["model.zpt"]


FULL = """
import resource, signal, sys, torch, zeropoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # as a full disk: the kernel refuses the rest
try:
    zeropoint.save_qtensors({"x": torch.ones(1 << 20)}, sys.argv[1])
except OSError as error:
    print(error)
"""


def test_tensors_that_do_not_fit_on_the_disk_are_an_error_with_the_path(old: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", FULL, old], capture_output=True, text=True, check=False)
    assert str(old) in ran.stdout, ran.stderr
    assert "unfinished" not in ran.stdout
    assert old.read_bytes() == OLD
    assert os.listdir(old.parent) == ["model.zpt"]
