"""Whatever reads a path reads regular files only, and refuses a huge file by its header."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Everything that reads a path, and the ending it asks for. The first two are given what their format begins with.
READERS = {
    "runtime.load": ("zeropoint.runtime.load(path)", ".zpt"),
    "load_qtensors": ("zeropoint.load_qtensors(path)", ".safetensors"),
    "compat.load": ("zeropoint.compat.load(path)", ".pt"),
    "compat.load of tensors": ("zeropoint.compat.load(path)", ".safetensors"),
    "compat.load_state_dict": ("zeropoint.compat.load_state_dict(path)", ".pt"),
    "compat.convert": ("zeropoint.compat.convert(path, path + '.new')", ".pt"),
    "compat.load_script": ("zeropoint.compat.load_script(path)", ".pt"),
    "from_onnx": ("zeropoint.from_onnx(path)", ".onnx"),
    "command line": ("zeropoint.cli.data.load_arrays(path)", ".npy"),
    "command line, archives": ("zeropoint.cli.data.load_arrays(path)", ".npz"),
    "command line, tensors": ("zeropoint.cli.data.load_arrays(path)", ".safetensors"),
    "command line, models": ("zeropoint.cli.models.load_model(path)", ".pt"),
}
CODE = """
import resource, sys, zeropoint, zeropoint.compat, zeropoint.cli.data, zeropoint.cli.models, onnx, typer
from zeropoint.compat.script_files import load_script
zeropoint.compat.load_script = load_script
zeropoint.compat.load, zeropoint.compat.script_files  # with all that they import
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path, call in (line.split("\\t") for line in sys.stdin.read().splitlines()):
    try:
        eval(call)
        print("read")
    except (ValueError, OSError, typer.BadParameter) as error:
        print(ascii(f"{type(error).__name__}: {error}"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def outcomes(paths: list[tuple[Path, str]]) -> tuple[list[str], int]:
    """What each call says about its path, and how much memory they took in all, in kB."""
    given = "\n".join(f"{path}\t{call}" for path, call in paths)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE], input=given, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    *said, taken = ran.stdout.splitlines()
    return said, int(taken)


def test_pipes_devices_and_folders_are_refused_by_everything_that_reads_a_path(tmp_path: Path) -> None:
    cases = []
    for number, (call, ending) in enumerate(READERS.values()):
        for kind in ("pipe", "device", "folder"):
            path = tmp_path / f"{number}-{kind}{ending}"
            if kind == "pipe":
                os.mkfifo(path)
            elif kind == "device":
                path.symlink_to("/dev/zero")
            else:
                path.mkdir()
            cases.append((path, call))
    said, taken = outcomes(cases)
    for (path, call), line in zip(cases, said, strict=True):
        assert line != "read", (call, path)
        assert path.name in line, (call, line)
    assert taken < 100_000


def test_a_sparse_file_of_4_gib_is_refused_before_it_is_read(tmp_path: Path) -> None:
    cases = []
    begins = {".pt": b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", ".zpt": b"\x02" + bytes(7) + b"{}"}
    begins[".safetensors"] = begins[".zpt"]
    for number, (call, ending) in enumerate(READERS.values()):
        for begin in {b"", begins.get(ending, b"")}:
            path = tmp_path / f"{number}-{len(begin)}{ending}"
            path.write_bytes(begin)
            os.truncate(path, 4 << 30)
            cases.append((path, call))
    said, taken = outcomes(cases)
    for (path, call), line in zip(cases, said, strict=True):
        assert line != "read", (call, path)
    assert taken < 100_000


@pytest.mark.parametrize("name", ["runtime.load", "compat.load", "from_onnx", "load_qtensors", "compat.load_script"])
def test_a_missing_file_is_said_to_be_missing(name: str, tmp_path: Path) -> None:
    call, ending = READERS[name]
    (line,), _ = outcomes([(tmp_path / f"none{ending}", call)])
    assert "o such file" in line
