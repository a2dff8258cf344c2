"""The thread pool as Python meets it: any number of threads, several Python threads at once, and fork()."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from side_by_side import in_threads

import zeropoint
from zeropoint.numerics.affine import Beyond, dequantize, fake_quantize, minmax, quantize
from zeropoint.numerics.blocks import per_channel, per_token
from zeropoint.numerics.packing import pack

# Several tasks of the native operators' 32768 elements.
SHAPE = (96, 2048)


@pytest.fixture(autouse=True)
def _restore_threads() -> Iterator[None]:
    before = zeropoint.get_num_threads()
    yield
    zeropoint.set_num_threads(before)


def work() -> list[torch.Tensor]:
    """One call of every kernel that is spread over threads."""
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)) * 10
    outputs = []
    for block in (per_channel(SHAPE, 0), per_channel(SHAPE, 1), per_token(SHAPE), SHAPE):
        count = x.numel() // (block[0] * block[1])
        scale, zero_point = torch.linspace(0.05, 0.2, count), torch.arange(count) % 7
        q = quantize(x, scale, zero_point, block, qmin=0, qmax=255, dtype=torch.uint8)
        outputs += [q, dequantize(q, scale, zero_point, block), *minmax(x, block)]
        outputs += fake_quantize(x, scale, zero_point, block, qmin=0, qmax=255, beyond=Beyond.nan_low)
    return [*outputs, pack(outputs[0] % 16, 4)]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


@pytest.fixture(scope="module")
def expected() -> list[torch.Tensor]:
    before = zeropoint.get_num_threads()
    zeropoint.set_num_threads(1)
    try:
        return work()
    finally:
        zeropoint.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_results_do_not_depend_on_threads(threads: int, expected: list[torch.Tensor]) -> None:
    zeropoint.set_num_threads(threads)
    for _ in range(3):
        assert equal(work(), expected)


@pytest.mark.timeout(120)
def test_concurrent_python_threads(expected: list[torch.Tensor]) -> None:
    zeropoint.set_num_threads(2)
    wrong: list[int] = []

    def run(number: int) -> None:
        for round_ in range(4):
            if number == 0:
                zeropoint.set_num_threads(1 + round_ % 3)  # changes while the others work
            if not equal(work(), expected):
                wrong.append(number)

    in_threads(run, 4)
    assert wrong == []


# In a process of its own: pytest's own threads should not be forked. Torch runs on one thread, since its OpenMP runtime
# does not survive fork(); ours must. The child of a child has another number of threads.
FORK = """
import os, signal, sys, threading
import torch
sys.path[:0] = {tests!r}
import zeropoint
from test_threads import equal, work

torch.set_num_threads(1)
zeropoint.set_num_threads(1)
expected = work()
zeropoint.set_num_threads(3)
assert equal(work(), expected)

def in_child(body):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(0 if body() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def grandchild():
    ok = equal(work(), expected)
    zeropoint.set_num_threads(2)
    in_child(lambda: equal(work(), expected))
    return ok and equal(work(), expected)

in_child(lambda: equal(work(), expected))
in_child(grandchild)
assert equal(work(), expected)

stop = threading.Event()
def busy():
    while not stop.is_set():
        assert equal(work(), expected)
other = threading.Thread(target=busy)
other.start()
for _ in range(3):
    in_child(lambda: equal(work(), expected))  # forked while the pool works for another thread
stop.set()
other.join()
print("alive")
"""


@pytest.mark.timeout(240)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_kernels_work_after_fork() -> None:
    code = FORK.format(tests=[os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))])
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "alive"


# Times of one thread and of eight in turns, so that both meet the same other work.
CROWD = """
import os, statistics, sys, time
import numpy as np
import zeropoint
from zeropoint import runtime

os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
programs, times = {}, {1: [], 8: []}
x = np.random.default_rng(0).standard_normal((64, 256), dtype=np.float32)
for turn in range(30):
    for threads, found in times.items():
        zeropoint.set_num_threads(threads)
        if threads not in programs:
            programs[threads] = runtime.load(sys.argv[1])
        programs[threads](x)
        for _ in range(3):
            start = time.perf_counter()
            programs[threads](x)
            found.append(time.perf_counter() - start)
print(statistics.fmean(times[8]) / statistics.fmean(times[1]))
"""


# It ends by itself, whatever becomes of the test.
BUSY = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


@pytest.mark.timeout(120)
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this platform has no affinity")
def test_more_threads_than_cores_do_not_collapse_beside_other_work(tmp_path: Path) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(6))).eval()
    x = torch.randn(64, 256)
    zeropoint.compile(zeropoint.to_int8(model, (x,), [x], progress=False), (x,)).save(tmp_path / "model.zpt")
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        command = [sys.executable, "-W", "ignore", "-c", CROWD, str(tmp_path / "model.zpt")]
        result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert result.returncode == 0, result.stderr
    # It was 102 while a call waited for threads that had no core to begin on.
    assert float(result.stdout) < 10
