"""``python scripts/soak.py [SECONDS]``: load, run and drop programs in eight threads, and watch the memory.

Prints seconds, runs, loads and resident MB. It fails if the memory at the end is more than 2 MB above that after a
tenth of the time, or if a result differs from the first.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

import zeropoint.runtime as runtime

PROGRAMS = Path(__file__).resolve().parents[1] / "tests" / "golden" / "programs"
THREADS = 8
MOST_GROWTH = 2 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(seconds: float) -> int:
    paths = [PROGRAMS / f"{name}.zpt" for name in ("image", "residual", "upsampled", "volume", "signal")]
    shared = [runtime.load(path) for path in paths]
    shapes = [[int(n) if str(n).isdigit() else 8 for n in program.inputs[0][2]] for program in shared]
    inputs = [np.random.default_rng(i).standard_normal(shape, dtype=np.float32) for i, shape in enumerate(shapes)]

    def bytes_of(program: runtime.Program, x: np.ndarray) -> bytes:
        result = program(x)
        parts = result.values() if isinstance(result, dict) else [result]
        return b"".join(part.tobytes() for part in parts)

    expected = [bytes_of(program, x) for program, x in zip(shared, inputs)]
    begin, wrong = time.monotonic(), []
    runs, loads = [0] * THREADS, [0] * THREADS

    def work(thread: int) -> None:
        turn = thread
        while time.monotonic() - begin < seconds:
            which = turn % len(paths)
            program = shared[which]
            if turn % 16 == 0:
                program, loads[thread] = runtime.load(paths[which]), loads[thread] + 1
            if bytes_of(program, inputs[which]) != expected[which]:
                wrong.append((paths[which].name, turn))
            if turn % 7 == 0:  # a plan for another batch
                bytes_of(program, np.repeat(inputs[which][:1], 1 + turn % 23, axis=0))
            runs[thread] += 1
            turn += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    settled = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(1.0, seconds / 20))
        elapsed = time.monotonic() - begin
        if settled == 0 and elapsed > seconds / 10:
            gc.collect()
            settled = resident()
        if int(elapsed) % 30 == 0 or elapsed > seconds:
            print(
                f"{elapsed:6.0f} s {sum(runs):9d} runs {sum(loads):7d} loads {resident() / 2**20:8.1f} MB", flush=True
            )
    for thread in threads:
        thread.join()
    gc.collect()
    growth = resident() - settled
    print(f"{sum(runs)} runs, {sum(loads)} loads, memory {growth / 2**20:+.2f} MB since a tenth of the time")
    print(f"{len(wrong)} wrong")
    return 1 if wrong or growth > MOST_GROWTH else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0))
