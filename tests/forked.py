"""Programs in processes of their own that find PyTorch imported: one process imports it, once, and forks for each.

Importing PyTorch takes three seconds. zeropoint is not imported. Tests of the order of imports start an interpreter of
their own.
"""

from __future__ import annotations

import atexit
import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

_SERVER = """
import atexit, json, os, sys, traceback, types
import torch

def child(task):
    for number, name in enumerate((os.devnull, task["out"], task["err"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.stdin = open(0)
    os.chdir(task["cwd"])
    sys.argv, sys.path[0] = ["-c", *task["arguments"]], ""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    code = 0
    try:
        exec(compile(task["code"], "<string>", "exec"), vars(main))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)

for line in iter(sys.stdin.readline, ""):
    pid = os.fork()
    if pid == 0:
        child(json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@functools.cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.communicate)  # it ends when nobody can write to it
    return server


def run_forked(code: str, *arguments: object, cwd: Path | str = ".") -> subprocess.CompletedProcess[str]:
    """Run the code as ``python -W ignore -c`` does, where PyTorch is imported."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        task = {"code": code, "arguments": [str(a) for a in arguments], "cwd": str(Path(cwd).resolve())}
        server.stdin.write(json.dumps({**task, "out": str(out), "err": str(err)}) + "\n")
        server.stdin.flush()
        returned = int(server.stdout.readline())
        return subprocess.CompletedProcess(code, returned, out.read_text(), err.read_text())


def run_script(path: Path, *arguments: object, under_compat: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program's file as ``python -W ignore`` does, or ``python -W ignore -m zeropoint.compat``."""
    if under_compat:
        return run_forked(
            "import sys\nfrom zeropoint.compat.__main__ import main\nmain(sys.argv[1:])", path, *arguments
        )
    code = (
        "import os, runpy, sys\ndel sys.argv[0]\nsys.path[0] = os.path.dirname(sys.argv[0])\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return run_forked(code, path, *arguments)
