"""``python scripts/soak.py [SECONDS]``: load, run and drop programs in eight threads, and watch the memory.

The programs are those of the tests that keep no state, with their kept inputs and results. Prints seconds, runs, loads
and resident MB. It fails if the memory at the end is more than 2 MB above that after half of the runs, or if a result
is another one than was kept.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import zeropoint.runtime as runtime

PROGRAMS = Path(__file__).resolve().parents[1] / "tests" / "golden" / "programs"
THREADS = 8
MOST_GROWTH = 2 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def arrays_in(result: Any) -> list[np.ndarray]:
    if isinstance(result, np.ndarray):
        return [result]
    return [array for part in (result.values() if isinstance(result, dict) else result) for array in arrays_in(part)]


@dataclass
class Subject:
    path: Path
    program: runtime.Program
    inputs: list[np.ndarray]
    expected: list[bytes]

    @classmethod
    def of(cls, path: Path) -> Subject:
        kept = load_file(path.with_suffix(".safetensors"))
        inputs, outputs = ([kept[n] for n in sorted(kept) if n.startswith(kind)] for kind in ("input", "output"))
        return cls(path, runtime.load(path), inputs, [x.tobytes() for x in outputs])

    def is_right(self, program: runtime.Program) -> bool:
        return [x.tobytes() for x in arrays_in(program(*self.inputs))] == self.expected


def main(seconds: float) -> int:
    subjects = [subject for path in sorted(PROGRAMS.glob("*.zpt")) if not (subject := Subject.of(path)).program.state]
    begin = time.monotonic()
    wrong: list[tuple[str, int]] = []
    runs, loads = [0] * THREADS, [0] * THREADS

    def work(thread: int) -> None:
        turn = thread
        while time.monotonic() - begin < seconds:
            subject = subjects[turn % len(subjects)]
            program = subject.program
            if turn // len(subjects) % 16 == thread:
                program, loads[thread] = runtime.load(subject.path), loads[thread] + 1
            if not subject.is_right(program):
                wrong.append((subject.path.name, turn))
            if turn % 7 == 0:
                with contextlib.suppress(ValueError):  # a plan for another batch, which some refuse
                    program(*(np.repeat(x[:1], 1 + turn % 23, axis=0) for x in subject.inputs))
            runs[thread] += 1
            turn += 1

    def watched(thread: int) -> None:
        try:
            work(thread)
        except Exception as error:
            wrong.append((repr(error), thread))

    threads = [threading.Thread(target=watched, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    samples = [(0, resident())]
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(1.0, seconds / 20))
        elapsed = time.monotonic() - begin
        samples.append((sum(runs), resident()))
        if int(elapsed) % 30 == 0 or elapsed > seconds:
            print(
                f"{elapsed:6.0f} s {sum(runs):9d} runs {sum(loads):7d} loads {resident() / 2**20:8.1f} MB", flush=True
            )
    gc.collect()
    half = next(memory for done, memory in samples if done >= sum(runs) // 2)
    growth = resident() - half
    print(f"{len(subjects)} programs, {sum(runs)} runs, {sum(loads)} loads")
    print(f"memory {growth / 2**20:+.2f} MB in the second half of the runs, {len(wrong)} wrong {wrong[:3] or ''}")
    return 1 if wrong or growth > MOST_GROWTH else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0))
