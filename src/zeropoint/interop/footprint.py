"""What a deployed model takes: a new process reads its file, runs it a few times, and says how long and how much.

``python -m zeropoint.interop.footprint PEER FILE INPUTS.npz THREADS`` is that process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from zeropoint.interop.peers import PEERS
from zeropoint.interop.tasks import Arrays, Unavailable, first_line

__all__ = ["Footprint", "footprint"]

CALLS = 5


@dataclass(frozen=True)
class Footprint:
    """Of one process.

    Args:
        load: seconds to import what the peer needs and to read its file.
        first: seconds of the first call.
        peak: the most bytes that the process had in memory, Python and libraries included.
    """

    load: float
    first: float
    peak: int


def footprint(name: str, path: Path, inputs: Arrays, threads: int) -> Footprint:
    """Start a process that runs the file of a peer.

    Raises:
        Unavailable: if it fails, with the reason.
    """
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "inputs.npz"
        np.savez(arrays, *inputs)
        command = [sys.executable, "-m", __name__, name, str(path), str(arrays), str(threads)]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
        except subprocess.CalledProcessError as error:
            reason = error.stderr.strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
            raise Unavailable(f"{name}, in a process of its own: {reason[0][:160]}") from error
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{name}, in a process of its own: {first_line(error)}") from error
    return Footprint(**json.loads(ran.stdout.splitlines()[-1]))


def _peak() -> int:
    """The most bytes that this process had in memory.

    Linux counts for ``getrusage`` what the parent had when it started the process, too, so its own file is read.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _main(name: str, path: str, arrays: str, threads: str) -> None:
    with np.load(arrays) as stored:
        inputs = tuple(stored[key] for key in stored.files)
    load = PEERS[name].load
    if load is None:
        raise ValueError(f"{name} has no file to start from")
    start = time.perf_counter()
    call = load(Path(path), inputs, int(threads))
    loaded = time.perf_counter()
    call()
    called = time.perf_counter()
    for _ in range(CALLS - 1):
        call()
    print(json.dumps(asdict(Footprint(loaded - start, called - loaded, _peak()))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
