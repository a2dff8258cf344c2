"""The table of SECURITY.md is true: every "yes" in it is tried with files that attack it, in a process of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import hostile_files
from forked import run_forked

ROOT = Path(__file__).parents[1]
COLUMNS = ["executes nothing", "bounded memory", "bounded time", "refuses devices and pipes"]
SECONDS = 10  # for one file, on a busy machine
MEGABYTES = 64 + 150  # beside 64 bytes for each byte of the file: what imports and tables of a first call take

# How each entry point is called, with `path`.
ENTRIES = {
    "`zeropoint.runtime.load`": "zeropoint.runtime.load(path)",
    "`zeropoint.sentence_encoder.load`": "zeropoint.sentence_encoder.load(path)",
    "`zeropoint inspect`": "command('inspect', path)",
    "`zeropoint show --no-time`": "command('show', path, '--no-time', '-o', folder + '/page.html')",
    "`zeropoint export`": "command('export', path, '-o', folder + '/made.onnx')",
    "`zeropoint run`": "command('run', path, '-d', arrays)",
    "`zeropoint run --data`": "command('run', program, '-d', path)",
    "`zeropoint.load_qtensors`": "zeropoint.load_qtensors(path)",
    "`zeropoint.compat.load`": "zeropoint.compat.load(path)",
    "`zeropoint.compat.load_state_dict`": "zeropoint.compat.load_state_dict(path)",
    "`zeropoint convert`": "command('convert', path, folder + '/made.safetensors')",
    "`zeropoint.compat.load_script`": "load_script(path)",
    "`zeropoint quantize`": "command('quantize', path, '-d', rows, '-o', folder + '/made.zpt')",
    "`zeropoint quantize --pickle`": "command('quantize', path, '--pickle', '-d', rows, '-o', folder + '/made.zpt')",
    "`zeropoint.from_onnx`": "zeropoint.from_onnx(path)",
    "`zeropoint.generation.compile_decoder`": "zeropoint.generation.compile_decoder(path, folder + '/made.zpt')",
    "`zeropoint.generation.load`": "zeropoint.generation.load(path, in_place=True)",
    "`zeropoint.generation.export_gguf`": "zeropoint.generation.export_gguf(path, folder + '/made.gguf')",
    "`zeropoint migrate`": "command('migrate', path)",
    "`zeropoint.to_int8(checkpoint=...)`": "zeropoint.to_int8(model, (x,), [x], progress=False, checkpoint=path)",
    "`zeropoint.tune(checkpoint=...)`": (
        "zeropoint.tune(model, (x,), [x], lambda m: 1.0, 0.5, mixed_precision=False, progress=False, checkpoint=path)"
    ),
    "the server of `examples/serving`": "answered(path)",
}
CODE = """
import asyncio, json, os, resource, signal, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, onnx, tokenizers, torch, zeropoint.generation
import zeropoint, zeropoint.compat, zeropoint.interop.exported_file, zeropoint.cli.models
from typer.testing import CliRunner
from zeropoint.cli.app import app
from zeropoint.compat.script_files import load_script
examples, program, folder, jobs = *sys.argv[1:4], json.loads(sys.argv[4])
arrays = folder + "/given.npy"
np.save(arrays, np.ones((4, 3, 8, 8), np.float32))
rows = folder + "/rows.npy"
np.save(rows, np.ones((4, 4), np.float32))
torch.set_num_threads(1)
x = torch.ones(2, 4)
model = torch.nn.Sequential(torch.nn.Linear(4, 4)).eval()
zeropoint.to_int8(model, (x,), [x], progress=False)  # with all that it imports
os.environ["MODEL"] = program
sys.path.insert(0, examples)
import server

def command(*arguments):
    ran = CliRunner().invoke(app, list(arguments))
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    if ran.exit_code:
        raise ValueError(ran.stderr)

def answered(path):
    sent = []

    async def receive():
        with open(path, "rb") as file:
            return {"type": "http.request", "body": file.read(), "more_body": False}

    async def send(message):
        sent.append(message)

    for address in ("/predict", "/v2/models/image/infer"):
        sent.clear()
        asyncio.run(server.app({"type": "http", "method": "POST", "path": address, "headers": []}, receive, send))
        assert sent[0]["status"] == 400, sent

def tried(call, paths):
    now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 30), -1))
    for path in paths:
        begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        signal.alarm(60)
        try:
            exec(call, globals(), {"path": path, "folder": folder})
            said = "read"
        except (ValueError, TypeError, NotImplementedError, OSError, RuntimeError) as error:
            said = f"{type(error).__name__}: {error}"
        taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        yield path, said[:300], time.monotonic() - begin, taken

for call, paths in jobs:
    print(flush=True)
    child = os.fork()
    if not child:
        for found in tried(call, paths):
            print(json.dumps(found), flush=True)
        os._exit(0)
    print(json.dumps(["end", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]), flush=True)
"""


def rows() -> list[tuple[str, str, dict[str, str]]]:
    """The kind of input, the entry point, and what is said of it."""
    text = (ROOT / "SECURITY.md").read_text()
    table = text[text.index(f"| input | through | {' | '.join(COLUMNS)} |") :].split("\n\n")[0]
    found = []
    for line in table.splitlines()[2:]:
        kind, entry, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        found.append((kind, entry, dict(zip(COLUMNS, cells, strict=True))))
    return found


Found = tuple[str, str, float, int]  # the file, what the entry point says of it, and the seconds and megabytes it takes


def tried(jobs: list[tuple[str, list[Path]]], folder: Path) -> list[list[Found]]:
    """What each entry point makes of its files, in a process for each."""
    program = ROOT / "tests" / "golden" / "programs" / "image.zpt"
    given = json.dumps([(ENTRIES[entry], [str(path) for path in paths]) for entry, paths in jobs])
    ran = run_forked(CODE, ROOT / "examples" / "serving", program, folder, given)
    assert ran.returncode == 0, ran.stderr[-3000:]
    results = []
    for (entry, _), text in zip(jobs, ran.stdout.split("\n\n"), strict=True):
        *found, end = [json.loads(line) for line in text.strip().splitlines()]
        assert end == ["end", 0], (entry, found[-1:], end, ran.stderr[-3000:])
        results.append(found)
    return results


def files_of(kind: str, folder: Path, made: Path) -> list[Path]:
    ending, make = hostile_files.KINDS[kind]
    paths = []
    for number, data in enumerate(make(made).values()):
        paths.append(folder / f"{number}{ending}")
        paths[-1].write_bytes(data)
    return paths


def no_files(kind: str, folder: Path) -> list[Path]:
    """A pipe, a device and a folder."""
    paths = [folder / f"{name}{hostile_files.KINDS[kind][0]}" for name in ("pipe", "device", "folder")]
    os.mkfifo(paths[0])
    paths[1].symlink_to("/dev/zero")
    paths[2].mkdir()
    return paths[:2] if kind == "Python source" else paths  # a folder of source is read


def test_every_kind_and_every_entry_point_has_a_row_that_says_yes_or_no() -> None:
    assert {kind for kind, _, _ in rows()} == set(hostile_files.KINDS)
    assert {entry for _, entry, _ in rows()} == set(ENTRIES)
    assert {cell for _, _, cells in rows() for cell in cells.values()} <= {"yes", "no promise", "-"}
    assert len({(kind, entry) for kind, entry, _ in rows()}) == len(rows())
    for _, _, cells in rows():  # what is not tried cannot be promised
        assert cells["executes nothing"] == "yes" or {cells["bounded memory"], cells["bounded time"]} == {"no promise"}


def test_what_the_table_promises_holds(tmp_path: Path) -> None:
    made, hostile, others, jobs = tmp_path / "made", {}, {}, []
    for number, kind in enumerate(hostile_files.KINDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        hostile[kind], others[kind] = files_of(kind, folder, made), no_files(kind, folder)
    for kind, entry, cells in rows():
        attacks = hostile[kind] if cells["executes nothing"] == "yes" else []
        jobs.append((entry, attacks + (others[kind] if cells["refuses devices and pipes"] == "yes" else [])))
    broken = []
    for (kind, entry, cells), found in zip(rows(), tried(jobs, tmp_path), strict=True):
        for path, said, seconds, megabytes in found:
            size = os.stat(path).st_size / 1e6
            if cells["bounded time"] == "yes" and seconds > SECONDS:
                broken.append(f"{kind}, {entry}: {path} takes {seconds} seconds: {said}")
            if cells["bounded memory"] == "yes" and megabytes > MEGABYTES + 64 * size:
                broken.append(f"{kind}, {entry}: {path} takes {megabytes} MB: {said}")
            if Path(path) in others[kind] and said == "read":
                broken.append(f"{kind}, {entry}: {path} is read")
    assert not made.exists(), "code of a file was executed"
    assert not broken


def test_the_check_sees_code_that_runs(tmp_path: Path) -> None:
    """With --pickle there is no promise, for a reason."""
    made = tmp_path / "made"
    paths = files_of("TorchScript (`.pt`)", tmp_path, made)
    tried([("`zeropoint quantize --pickle`", paths[:1])], tmp_path)
    assert made.exists()
