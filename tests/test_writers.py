"""Everything that writes a file: with a full disk, a read-only folder or a kill, the file that was there stays."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from forked import run_forked

# What writes a file, and its ending. Each gets `path`, and `model`, `quantized`, `program` and `x` to write.
WRITERS = {
    "Program.save": ("program.save(path)", ".zpt"),
    "save_qtensors": ("zeropoint.save_qtensors({'x': torch.zeros(20000)}, path)", ".safetensors"),
    "convert": ("torch.save(model, buffer := io.BytesIO()); zeropoint.compat.convert(buffer, path)", ".safetensors"),
    "export_onnx": ("zeropoint.export_onnx(quantized, (x,), path)", ".onnx"),
    "write_report": ("zeropoint.write_report(path, model, quantized, [x], progress=False)", ".html"),
    "write_program_page": ("zeropoint.write_program_page(path, program, timed=False)", ".html"),
    "checkpoint": ("zeropoint.to_int8(model, (x,), stopping(), progress=False, checkpoint=path)", ".checkpoint"),
    "tune": (
        "zeropoint.tune(model, (x,), [x], lambda m: 1.0, 0.5, mixed_precision=False, progress=False, checkpoint=path)",
        ".json",
    ),
    "command run": ("command('run', saved, '-d', arrays, '-o', path)", ".npy"),
    "command migrate": ("command('migrate', path, '--write')", ".py"),
}
CHECKPOINTS = ("checkpoint", "tune")  # they go on from what is there, so they begin with nothing
OLD = b"import torch.ao.quantization\nq = torch.ao.quantization.quantize_dynamic\n" + b"# line\n" * 2000
CODE = """
import io, json, os, resource, shutil, signal, sys, tempfile, torch, zeropoint, zeropoint.compat, numpy as np
from zeropoint.cli.app import app
from typer.testing import CliRunner

how, writers, paths = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
torch.set_num_threads(1)  # children that are forked have no others
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 200), torch.nn.ReLU(), torch.nn.Linear(200, 64)).eval()
x = torch.randn(4, 64)
quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
program = zeropoint.compile(quantized, (x,))
own = tempfile.mkdtemp()
saved, arrays = own + "/program.zpt", own + "/arrays.npy"
program.save(saved)
np.save(arrays, np.ones((500, 64), np.float32))

def stopping():
    yield x
    raise KeyboardInterrupt

def command(*arguments):
    ran = CliRunner().invoke(app, list(arguments))
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    if ran.exit_code:
        raise OSError(ran.stderr)

def outcome(code, path):
    try:
        exec(code, globals(), {"path": path})
        return "written"
    except (OSError, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}"

def killed(code, path):
    child = os.fork()
    if not child:
        def kill(handle):  # written, and not in its place; files that are only for the writer go on
            if os.readlink(f"/proc/self/fd/{handle}").startswith(os.path.dirname(path)):
                os.kill(os.getpid(), signal.SIGKILL)
        os.fsync = kill
        outcome(code, path)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

for name, path in paths.items():  # imports all that is needed, which others may not read
    warm = own + "/file" + os.path.splitext(path)[1]
    if warm.endswith(".py"):
        shutil.copy(path, warm)
    outcome(writers[name], warm)
limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
if how == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # as a full disk: the kernel refuses the rest
elif how == "read-only" and os.getuid() == 0:
    os.chmod(own, 0o755), os.setgid(65534), os.setuid(65534)
said = {name: (killed if how == "killed" else outcome)(writers[name], path) for name, path in paths.items()}
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
print(json.dumps(said))
"""


def made(folder: Path) -> dict[str, Path]:
    """A folder for each writer, with the file that it is to replace."""
    paths = {}
    for number, (writer, (_, ending)) in enumerate(WRITERS.items()):
        paths[writer] = folder / str(number) / f"file{ending}"
        paths[writer].parent.mkdir()
        if writer not in CHECKPOINTS:
            paths[writer].write_bytes(OLD)
    return paths


def outcomes(how: str, paths: dict[str, Path]) -> dict[str, Any]:
    """What each writer says."""
    writers = json.dumps({writer: code for writer, (code, _) in WRITERS.items()})
    ran = run_forked(CODE, how, writers, json.dumps({writer: str(path) for writer, path in paths.items()}))
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


def content(path: Path) -> list[tuple[str, bytes]]:
    """Of the folder of a file."""
    return [(name, (path.parent / name).read_bytes()) for name in os.listdir(path.parent)]


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_what_cannot_be_written_is_an_error_with_the_path(how: str, tmp_path: Path) -> None:
    paths = made(tmp_path)
    before = {writer: content(path) for writer, path in paths.items()}
    if how == "read-only":
        for folder in (tmp_path, *list(tmp_path.parents)[:2]):
            folder.chmod(0o755)
        for path in paths.values():
            path.parent.chmod(0o555)
    for writer, said in outcomes(how, paths).items():
        assert "Error" in said, writer
        assert str(paths[writer]) in said.replace("\n", ""), writer
        assert "unfinished" not in said, writer
        assert content(paths[writer]) == before[writer], writer


def test_a_kill_keeps_the_old_file_and_the_next_writer_removes_what_is_left(tmp_path: Path) -> None:
    paths = made(tmp_path)
    before = {writer: content(path) for writer, path in paths.items()}
    ends = outcomes("killed", paths)
    assert set(ends.values()) == {-signal.SIGKILL}, ends
    for writer, path in paths.items():
        assert len(content(path)) == len(before[writer]) + 1, writer
        assert [part for part in content(path) if part[0] == path.name] == before[writer], writer
    for writer, said in outcomes("again", paths).items():
        assert said == "written" or writer == "checkpoint", writer
        assert os.listdir(paths[writer].parent) == [paths[writer].name], writer
        assert content(paths[writer]) != before[writer], writer
