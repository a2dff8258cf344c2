"""Runs one runtime of a benchmark in a process of its own.

Its threads are its own: no other runtime's threads spin on its cores, and none of its settings reaches another.
``python -m zeropoint.interop.peer_process PEER FILE INPUTS.npz THREADS REALTIME`` is that process. It says in one line
of JSON how it began, then reads one order per line, and answers each with a line.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from zeropoint.interop.peers import PEERS
from zeropoint.interop.tasks import Arrays, Unavailable

SETTLE = 0.02  # seconds between two turns, in which the threads of the last one stop spinning
TURN = 0.1  # seconds of calls in one turn
MOST_CALLS = 200  # in one turn
LONGEST = 900.0  # seconds until a contender that says nothing is ended


@dataclass(frozen=True)
class Footprint:
    """How a process began.

    Args:
        load: seconds to import what the peer needs and to read its file.
        first: seconds of the first call.
        peak: the most bytes that the process had in memory, Python and libraries included.
        setting: how the peer runs, in words.
        together: calls that are under way at the same time; a time is that of all, divided by them.
    """

    load: float
    first: float
    peak: int
    setting: str
    together: int


@dataclass(frozen=True)
class Times:
    """Seconds of one contender's calls."""

    values: tuple[float, ...]

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.values, q))

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    @property
    def quartiles(self) -> tuple[float, float]:
        return self.quantile(0.25), self.quantile(0.75)


class Turns(Protocol):
    """Whoever takes turns."""

    @property
    def name(self) -> str: ...

    def turn(self) -> list[float]:
        """Seconds of each of some calls."""


@dataclass(frozen=True)
class InThisProcess:
    """A call that takes turns with the contenders, without a process of its own."""

    name: str
    call: Callable[[], object]

    def turn(self) -> list[float]:
        """As `Contender.turn`."""
        self.call()
        return list(timed(self.call))


class Contender:
    """A process that runs the file of a peer; to be closed.

    Args:
        realtime: its calls have priority over whatever else the machine does, which Linux must allow.

    Raises:
        Unavailable: if it fails, with the reason.
    """

    def __init__(self, name: str, path: Path, inputs: Arrays, threads: int, realtime: bool = False) -> None:
        self.name = name
        self._folder = tempfile.TemporaryDirectory()
        self._errors = open(Path(self._folder.name) / "errors", "w+")  # noqa: SIM115  # closed in close
        arrays = Path(self._folder.name) / "inputs.npz"
        np.savez(arrays, *inputs)
        command = [sys.executable, "-m", __name__, name, str(path), str(arrays), str(threads), str(int(realtime))]
        # What a peer takes from the environment; the caller may have set it for itself.
        counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ZEROPOINT_NUM_THREADS"), str(threads))
        pipe = subprocess.PIPE
        environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")} | counts
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, env=environment
        )
        try:
            self.footprint = Footprint(**self._answer())
        except BaseException:
            self.close()
            raise

    def turn(self) -> list[float]:
        """Seconds of each of some calls, one after the other, behind one that is not counted."""
        return self._order({"do": "turn"})["seconds"]

    def result(self) -> Any:
        """What a call gives: the first output, as an array."""
        path = Path(self._folder.name) / "result.npy"
        self._order({"do": "result", "path": str(path)})
        return np.load(path)

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()
        self._folder.cleanup()

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _order(self, what: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        try:
            print(json.dumps(what), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._failure() from None
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        watch = threading.Timer(LONGEST, self._process.kill)
        watch.start()
        try:
            for line in self._process.stdout:
                if line.startswith("{"):  # libraries print, too
                    return json.loads(line)
        finally:
            watch.cancel()
        raise self._failure()

    def _failure(self) -> Unavailable:
        code = self._process.wait()
        self._errors.seek(0)
        reason = self._errors.read().strip().splitlines()[-1:] or [f"exit code {code}"]
        return Unavailable(f"{self.name}, in a process of its own: {reason[0][:160]}")


def take_turns(
    contenders: Sequence[Turns], seconds: float, least: int, most_seconds: float = math.inf
) -> tuple[dict[str, Times], dict[str, Unavailable]]:
    """Times of all, turn by turn until each had so many seconds and calls; and why those that fell out did.

    Args:
        most_seconds: when it ends at the latest, if each has had its calls. Small calls need many turns for a second.
    """
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    out: dict[str, Unavailable] = {}
    end = time.perf_counter() + most_seconds
    while True:
        waiting = [
            c for c in contenders
            if c.name not in out
            and (len(times[c.name]) < least or (sum(times[c.name]) < seconds and time.perf_counter() < end))
        ]  # fmt: skip
        if not waiting:
            return {name: Times(tuple(values)) for name, values in times.items() if name not in out}, out
        # All of them as long as one is waiting, so that a slow moment of the machine hits all.
        for c in (c for c in contenders if c.name not in out):
            time.sleep(SETTLE)
            try:
                times[c.name] += c.turn()
            except Unavailable as reason:
                out[c.name] = reason


def _peak() -> int:
    """The most bytes that this process had in memory.

    Linux counts for ``getrusage`` what the parent had when it started the process, too, so its own file is read.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextlib.contextmanager
def priority(realtime: bool) -> Iterator[None]:
    """All threads of this process before those of others, while it lasts: a neighbour's work is not measured then."""

    def schedule(policy: int, priority: int) -> None:
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread), policy, os.sched_param(priority))

    if not realtime:
        yield
        return
    schedule(os.SCHED_FIFO, 10)
    try:
        yield
    finally:
        schedule(os.SCHED_OTHER, 0)


def timed(call: Any) -> Iterator[float]:
    """Seconds of calls, until a turn is over."""
    end = time.perf_counter() + TURN
    for _ in range(MOST_CALLS):
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        yield now - start
        if now > end:
            return


def _first(result: Any) -> Any:
    """The first array of what a call gives."""
    while isinstance(result, (tuple, list, Mapping)):
        result = next(iter(result.values() if isinstance(result, Mapping) else result))
    return result


def _main(name: str, path: str, arrays: str, threads: str, realtime: str) -> None:
    with np.load(arrays) as stored:
        inputs = tuple(stored[key] for key in stored.files)

    def say(what: Any) -> None:
        print(json.dumps(what), flush=True)

    start = time.perf_counter()
    ready = PEERS[name].load(Path(path), inputs, int(threads))
    loaded = time.perf_counter()
    with priority(realtime == "1"):
        begun = time.perf_counter()
        ready.call()
        called = time.perf_counter()
        for _ in range(2):
            ready.call()
    began = {"load": loaded - start, "first": called - begun, "peak": _peak()}
    say(began | {"setting": ready.setting, "together": ready.together})
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "turn":
            with priority(realtime == "1"):
                ready.call()
                seconds = [s / ready.together for s in timed(ready.call)]
            say({"seconds": seconds})
        else:
            np.save(order["path"], np.asarray(_first(ready.call())))
            say({"written": order["path"]})


if __name__ == "__main__":
    _main(*sys.argv[1:])
