"""Programs in long-lived processes: memory that does not grow, threads, forks, arrays of other libraries."""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import golden_programs
import numpy as np
import pytest
import torch
from side_by_side import in_threads

import zeropoint
from zeropoint import runtime

IMAGE = golden_programs.FOLDER / "image.zpt"


@functools.cache
def program() -> runtime.Program:
    return runtime.load(IMAGE)


def images(batch: int, size: int = 8) -> np.ndarray:
    return np.random.default_rng(batch).standard_normal((batch, 3, size, size), dtype=np.float32)


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not say how much memory is in use")
@pytest.mark.parametrize("runs", [10_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.thorough])])
def test_memory_stays_flat(runs: int) -> None:
    model, x = program(), images(1)
    for _ in range(1000):
        model(x)
    gc.collect()
    before = resident()
    for _ in range(runs):
        model(x)
    assert resident() - before < 1 << 20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not say how much memory is in use")
def test_memory_stays_flat_over_shapes_and_loads() -> None:
    def once() -> None:
        model = runtime.load(IMAGE)
        for batch in range(1, 20):
            model(images(batch))
        with pytest.raises(ValueError, match="shape"):
            model(images(1)[0])
        with pytest.raises(runtime.FormatError):
            runtime.load(IMAGE, memory_limit=1)

    for _ in range(10):
        once()
    gc.collect()
    before = resident()
    for _ in range(100):
        once()
    gc.collect()
    assert resident() - before < 2 << 20


def test_threads_with_different_shapes() -> None:
    model = program()
    shapes = [(1, 8), (2, 9), (3, 16), (5, 12)]
    expected = [model(images(*shape)) for shape in shapes]
    start, wrong = threading.Barrier(len(shapes)), []

    def work(which: int) -> None:
        start.wait()
        x = images(*shapes[which])
        for i in range(150):
            if i % 10 == which:  # plans come and go meanwhile
                model(images(1 + i % 17, 8 + i % 3))
            if not np.array_equal(model(x), expected[which]):
                wrong.append(which)

    in_threads(work, len(shapes))
    assert not wrong


def test_threads_while_the_number_of_threads_changes() -> None:
    model, x = program(), images(4)
    expected, before, wrong = model(x), zeropoint.get_num_threads(), []
    until = time.monotonic() + 1.0

    def work() -> None:
        while time.monotonic() < until:
            if not np.array_equal(model(x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for n in range(1, 200):
            zeropoint.set_num_threads(n % 3 + 1)
            time.sleep(0.002)
    finally:
        for thread in threads:
            thread.join()
        zeropoint.set_num_threads(before)
    assert not wrong


def run_python(code: str, **environment: str) -> str:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        "import numpy as np, os, sys, zeropoint.runtime as runtime\n" + code,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


FORK = """
x = np.ones((4, 3, 8, 8), np.float32)
{before}
child = os.fork()
model = runtime.load({path!r}) if {late} else model
y = model(x)
if child == 0:
    os._exit(0 if y.tobytes() == runtime.load({path!r})(x).tobytes() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(
    ("before", "late"),
    [
        (f"model = runtime.load({str(IMAGE)!r})", False),
        (f"model = runtime.load({str(IMAGE)!r}); model(x)", False),
        ("", True),
    ],
    ids=["loaded before", "run before", "loaded after"],
)
def test_programs_run_after_a_fork(before: str, late: bool) -> None:
    assert run_python(FORK.format(before=before, late=late, path=str(IMAGE)), ZEROPOINT_NUM_THREADS="2") == "0"


BUSY_FORKS = """
import threading, signal
model = runtime.load({path!r})
x = np.ones((1, 3, 8, 8), np.float32)
expected = model(x).tobytes()
stop = False

def work(number):
    size = number
    while not stop:  # new shapes, so that the program is locked while they are planned
        size = size % 40 + 4
        model(np.ones((number, 3, size, size), np.float32))

threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
for thread in threads:
    thread.start()
codes = []
for _ in range(60):
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # one that waits for ever ends here
        os._exit(0 if all(model(x).tobytes() == expected for _ in range(2)) else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop = True
print(set(codes))
"""


def test_a_fork_while_other_threads_use_the_program() -> None:
    """The child has none of them, and must not wait for what they held."""
    assert run_python(BUSY_FORKS.format(path=str(IMAGE)), ZEROPOINT_NUM_THREADS="2") == "{0}"


def test_the_environment_sets_the_number_of_threads() -> None:
    code = "import zeropoint; print(zeropoint.get_num_threads(), 'torch' in sys.modules)"
    assert run_python(code, ZEROPOINT_NUM_THREADS="3") == "3 False"
    code = f"x = np.ones((4, 3, 8, 8), np.float32); print(runtime.load({str(IMAGE)!r})(x).tobytes().hex())"
    results = {run_python(code, ZEROPOINT_NUM_THREADS=n) for n in ("1", "2")}
    assert len(results) == 1


def test_tensors_of_pytorch_are_read_where_they_are() -> None:
    model, x = program(), images(2)
    expected = model(x)
    assert np.array_equal(model(torch.from_numpy(x)), expected)
    channels_last = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
    assert model(channels_last).shape == expected.shape
    assert np.array_equal(model(torch.from_numpy(x)[:, :, ::2, ::2]), model(x[:, :, ::2, ::2]))
    result = torch.from_dlpack(model(torch.from_numpy(x)))
    assert np.array_equal(result.numpy(), expected)
    assert np.array_equal(model(torch.from_numpy(x).requires_grad_()), expected)
    assert np.array_equal(model(torch._neg_view(torch.from_numpy(-x))), expected)
    assert np.array_equal(model(torch.from_numpy(x).as_subclass(Subclass)), expected)
    assert np.array_equal(model(torch.nn.Parameter(torch.from_numpy(x))), expected)
    assert np.array_equal(model(torch.from_numpy(x[:1]).expand(3, -1, -1, -1)), np.repeat(model(x[:1]), 3, axis=0))


class Subclass(torch.Tensor):
    """With memory, as PyTorch's own tensors."""


def test_tensors_of_pytorch_that_do_not_fit() -> None:
    model, x = program(), torch.zeros(2, 3, 8, 8)
    for wrong, message in [
        (x.double(), r"must be an array of float32, got torch\.float64"),
        (x.to("meta"), "must be an array of float32, got one whose memory cannot be read"),
        (x.to_sparse(), "must be an array of float32, got one whose memory cannot be read"),
        (zeropoint.quantize_per_tensor(x, 0.1, 0, zeropoint.quint8), "quantized arrays"),
    ]:
        with pytest.raises(TypeError, match=message):
            model(wrong)
    with pytest.raises(ValueError, match="has shape"):
        model(x[0])


def test_what_only_has_dlpack_is_an_array_too() -> None:
    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    x = images(2)
    assert np.array_equal(program()(Foreign(x)), program()(x))


def test_other_ways_to_lie_in_memory() -> None:
    model, x = program(), images(3)
    expected = model(x)
    for name, array in {
        "reversed": x[::-1].copy()[::-1],
        "fortran": np.asfortranarray(x),
        "part": np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))[:, :, 1:-1, 1:-1],
        "channels last": x.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2),
        "memoryview": memoryview(x),
    }.items():
        found = model(array)
        assert found.shape == expected.shape, name
        assert np.array_equal(found, expected) or name == "channels last"  # whose means are rounded otherwise
    same = np.broadcast_to(x[:1], (3, 3, 8, 8))
    assert np.array_equal(model(same), np.repeat(model(x[:1]), 3, axis=0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.float32(3e38), np.float32(1e-45)])
def test_extreme_values_give_what_they_are_clamped_to(value: float) -> None:
    y = program()(np.full((1, 3, 8, 8), value, np.float32))
    assert np.isfinite(y).all()


@pytest.mark.parametrize("batch", [0, 1])
def test_results_belong_to_the_caller(batch: int) -> None:
    model, x = program(), images(2)[:batch]
    first = model(x)
    assert first.flags.writeable
    assert first.flags.owndata or first.base is not None
    first[...] = 7
    assert not np.array_equal(model(x), first) or batch == 0
