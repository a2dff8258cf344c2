"""What goes wrong around programs: files that change, memory that ends, batches of any size, values without a range."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import golden_programs
import numpy as np
import pytest
import torch
from forked import run_forked
from torch import nn

import zeropoint
from zeropoint import runtime

IMAGE = golden_programs.FOLDER / "image.zpt"


# Processes that a shell started in the background ignore SIGINT, and so would their children.
HEARD = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


def run_python(code: str, *arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", HEARD + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose weights are worth giving back: 4 MB."""
    model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)).eval()
    data = [torch.randn(4, 1024) for _ in range(2)]
    quantized = zeropoint.to_int8(model, (data[0],), data, progress=False)
    path = tmp_path_factory.mktemp("large") / "large.zpt"
    zeropoint.compile(quantized, (data[0],)).save(path)
    return path


# --------------------------------------------------------------------------------------------------------------- files

SHORTENED = """
    import os, sys, numpy as np, zeropoint, zeropoint.runtime as runtime
    path, left = sys.argv[1], int(sys.argv[2])
    program, x = runtime.load(path), np.ones((3, 1024), np.float32)
    before = program(x).tobytes()
    os.truncate(path, left)
    assert program(x).tobytes() == before
    assert program(np.ones((5, 1024), np.float32)).shape == (5, 1024)  # a plan for another batch
    for use in (program._native.data, lambda: runtime.load(path)):
        try:
            use()
        except runtime.FormatError as error:
            print(error)
    found = zeropoint.cpu_info()  # weights are packed anew for another level
    with zeropoint.use_isa("portable" if found.isa != "portable" else found.available[-1]):
        try:
            program(x)
        except runtime.FormatError as error:
            print(error)
    assert program(x).tobytes() == before
"""


@pytest.mark.parametrize("left", [0, 4096, 1 << 20])
def test_a_file_that_is_shortened_does_not_end_the_process(large: Path, tmp_path: Path, left: int) -> None:
    path = tmp_path / "program.zpt"
    path.write_bytes(large.read_bytes())
    ran = run_python(SHORTENED, path, left)
    assert ran.returncode == 0, ran.stderr
    changed, damaged, again = ran.stdout.splitlines()
    assert "has been changed since: load it again" in changed
    assert "has been changed since: load it again" in again
    assert str(path) in damaged


FORKED = """
    import os, signal, sys, threading, numpy as np, zeropoint, zeropoint.runtime as runtime
    program, x = runtime.load(sys.argv[1]), np.ones((2, 1024), np.float32)
    expected, stop = program(x).tobytes(), False

    def work():
        while not stop:  # each change reads the weights from the file, packs them, and gives them back
            with zeropoint.use_isa("portable"):
                program(x)
            program(x)

    thread = threading.Thread(target=work)
    thread.start()
    codes = set()
    for _ in range(30):
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # one that waits for ever ends here
            right = program(x).tobytes() == expected
            with zeropoint.use_isa("portable"):
                right = right and program(x).tobytes() == expected
            os._exit(0 if right else 1)
        codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop = True
    thread.join()
    print(codes)
"""


def test_a_fork_while_weights_are_read_again(large: Path) -> None:
    ran = run_python(FORKED, large)
    assert ran.stdout.strip() == "{0}", ran.stderr


def test_a_file_that_is_replaced_is_not_mixed_with_the_new_one(large: Path, tmp_path: Path) -> None:
    path = tmp_path / "program.zpt"
    path.write_bytes(large.read_bytes())
    program, x = runtime.load(path), np.ones((2, 1024), np.float32)
    before = program(x)
    other = tmp_path / "other"
    other.write_bytes(IMAGE.read_bytes())
    other.replace(path)
    np.testing.assert_array_equal(program(x), before)
    # The old file is open as long as the program needs it.
    with zeropoint.use_isa("portable"):
        np.testing.assert_array_equal(program(x), before)
    program.save(tmp_path / "saved.zpt")
    assert (tmp_path / "saved.zpt").read_bytes() == large.read_bytes()


def test_tensors_that_were_read_do_not_need_their_file(tmp_path: Path) -> None:
    """They were a map of the file once: reading them ended the process with SIGBUS."""
    code = """
        import os, sys, torch, zeropoint
        q = zeropoint.quantize_per_tensor(torch.randn(1 << 20), 0.05, 0, zeropoint.qint8)
        zeropoint.save_qtensors({"x": torch.ones(1 << 20), "q": q}, sys.argv[1])
        read = zeropoint.load_qtensors(sys.argv[1])
        os.truncate(sys.argv[1], 4096)
        assert float(read["x"].sum()) == 1 << 20 and torch.equal(read["q"].int_repr(), q.int_repr())
    """
    ran = run_python(code, tmp_path / "tensors.safetensors")
    assert ran.returncode == 0, (ran.returncode, ran.stderr)


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero", "/proc/self/mem", "/", "/proc/self/cmdline"])
def test_what_is_no_file_is_refused(path: str) -> None:
    with pytest.raises((OSError, runtime.FormatError), match=re.escape(path)):
        runtime.load(path)


def test_every_length_of_a_file_but_its_own_is_refused(tmp_path: Path) -> None:
    data = IMAGE.read_bytes()
    path = tmp_path / "short.zpt"
    for length in [*range(0, 300, 7), *range(300, len(data), 331), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(runtime.FormatError, match=r"short\.zpt"):
            runtime.load(path)


def test_a_file_that_may_only_be_read_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "program.zpt"
    path.write_bytes(IMAGE.read_bytes())
    path.chmod(stat.S_IRUSR)
    program = runtime.load(path)
    program.save(tmp_path / "copy.zpt")
    assert (tmp_path / "copy.zpt").read_bytes() == IMAGE.read_bytes()


def test_a_pipe_without_a_writer_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    begin = time.monotonic()
    with pytest.raises(OSError, match="pipe"):
        runtime.load(tmp_path / "pipe")
    assert time.monotonic() - begin < 5


# -------------------------------------------------------------------------------------------------------------- memory

STARVED = """
    import resource, sys, numpy as np, zeropoint.runtime as runtime
    path, wanted = sys.argv[1], sys.argv[2]
    x = np.ones((2, 3, 8, 8), np.float32)
    expected = runtime.load(path)(x).tobytes()
    now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    big = np.ones((3000, 3, 64, 64), np.float32)  # 147 MB, and more for what is computed from it
    program = runtime.load(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (8 << 20), hard))
    try:
        if wanted == "call":
            program(big)
        else:
            with open(path, "rb") as file:
                data = file.read()
            runtime.load(sys.argv[3])
        print("enough memory")
    except MemoryError:
        print("MemoryError")
    assert program(x).tobytes() == expected
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert program(x).tobytes() == expected
    if wanted == "call":
        assert program(big).shape[0] == 3000
    else:
        runtime.load(sys.argv[3])
"""


@pytest.mark.parametrize("wanted", ["call", "load"])
def test_memory_that_ends_is_a_memory_error_and_the_program_goes_on(wanted: str, tmp_path: Path) -> None:
    huge = tmp_path / "huge.zpt"  # 64 MB of a constant
    header, program, data = golden_programs.parts_of(IMAGE.read_bytes())
    header["more"] = {"dtype": "U8", "shape": [64 << 20], "data_offsets": [len(data), len(data) + (64 << 20)]}
    huge.write_bytes(golden_programs.joined(header, program, data + bytes(64 << 20)))
    ran = run_python(STARVED, IMAGE, wanted, huge)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "MemoryError"


def arrays_in(result: Any) -> list[Any]:
    parts = list(result.values()) if isinstance(result, dict) else result
    return [array for part in parts for array in arrays_in(part)] if isinstance(parts, (list, tuple)) else [parts]


@pytest.mark.parametrize("name", [path.stem for path in golden_programs.paths()])
def test_a_batch_of_none_gives_none_or_is_refused(name: str) -> None:
    path = golden_programs.FOLDER / f"{name}.zpt"
    program = runtime.load(path)
    given, _ = golden_programs.arrays_of(path)
    free = [isinstance(shape[0], str) if shape else False for _, _, shape in program.inputs]
    if not any(free):
        return
    empty = [x[:0] if is_free else x for x, is_free in zip(given, free)]
    try:
        result = program(*empty)
    except ValueError:  # some have no result for it: a mean of nothing, a window that does not fit
        return
    assert all(isinstance(part, np.ndarray) for part in arrays_in(result))


@pytest.mark.parametrize("batch", [1 << 22, 1 << 31, 1 << 40, 1 << 52])
def test_more_elements_than_fit_are_refused_in_words(batch: int) -> None:
    """Before any memory is taken for them: the array is one number, and a copy of it would not be."""
    program = runtime.load(IMAGE, memory_limit=1 << 30)
    x = np.broadcast_to(np.float32(1), (batch, 3, 8, 8))
    begin = time.monotonic()
    with pytest.raises(ValueError, match=r"bytes|elements|out of range"):
        program(x)
    with pytest.raises(ValueError, match=r"bytes|elements|out of range"):
        program(torch.as_tensor(np.float32(1)).expand(batch, 3, 8, 8))
    assert time.monotonic() - begin < 5


# -------------------------------------------------------------------------------------------------------------- values


def test_nan_and_infinity_are_what_the_quantized_graph_makes_of_them() -> None:
    """docs/numerics.md: NaN is quantized as 0, infinity as the end of the range."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    data = [torch.randn(8, 4) for _ in range(2)]
    quantized = zeropoint.to_int8(model, (data[0],), data, progress=False)
    program = zeropoint.compile(quantized, (data[0],))
    x = torch.tensor(
        [
            [float("nan"), 1.0, -1.0, 0.5],
            [float("inf"), 1.0, -1.0, 0.5],
            [-float("inf"), 1.0, -1.0, 0.5],
            [3e38, -3e38, float("nan"), float("inf")],
            [0.0, 1.0, -1.0, 0.5],
            [1e6, 1.0, -1.0, 0.5],
            [-1e6, 1.0, -1.0, 0.5],
        ]
    )
    expected = quantized(x)
    assert torch.isfinite(expected).all()
    for level in zeropoint.cpu_info().available:
        with zeropoint.use_isa(level):
            assert torch.equal(torch.as_tensor(program(x.numpy())), expected), level
    assert torch.equal(expected[1], expected[5])  # an infinity is as far as any value far outside
    assert torch.equal(expected[2], expected[6])


@pytest.mark.parametrize("which", ["single", "several"])
@pytest.mark.parametrize("index", [-1, 1000, 2**62])
def test_an_index_without_a_row_is_a_value_error(which: str, index: int) -> None:
    path = golden_programs.FOLDER / "chosen.zpt"
    program = runtime.load(path)
    given, expected = golden_programs.arrays_of(path)
    names = [name for name, _, _ in program.inputs]
    wrong = [x.copy() for x in given]
    wrong[names.index(which)].flat[-1] = index
    with pytest.raises(ValueError, match=rf"index {index} is out of range for a table of \d+ rows"):
        program(*wrong)
    for found, right in zip(arrays_in(program(*given)), expected, strict=True):
        np.testing.assert_array_equal(found, right)


# ------------------------------------------------------------------------------------------------------------- signals

INTERRUPTED = """
    import os, signal, sys, torch, zeropoint
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    stops = sys.argv[2] == "stop"

    def batches():
        for i in range(20):
            if i == 12 and stops:
                os.kill(os.getpid(), signal.SIGINT)
            yield torch.randn(16, 4, generator=torch.Generator().manual_seed(i))

    try:
        quantized = zeropoint.to_int8(model, (torch.ones(1, 4),), batches(), progress=False, checkpoint=sys.argv[1])
    except KeyboardInterrupt:
        print("interrupted", os.path.exists(sys.argv[1]))
        sys.exit(0)
    print(quantized(torch.arange(8.0).reshape(2, 4)).tolist(), os.path.exists(sys.argv[1]))
"""


def test_a_calibration_that_a_signal_stops_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    path = tmp_path / "calibration"
    program = HEARD + textwrap.dedent(INTERRUPTED)
    stopped = run_forked(program, path, "stop")
    assert stopped.stdout.strip() == "interrupted True", stopped.stderr
    resumed, whole = run_forked(program, path, "go on"), run_forked(program, tmp_path / "other", "go on")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == whole.stdout
    assert resumed.stdout.strip().endswith("False")


@pytest.mark.parametrize("batch", [1, 16, 256])
def test_python_ends_while_a_thread_that_nobody_waits_for_runs_a_program(batch: int) -> None:
    """Python ends such threads where they ask for its lock, which was SIGABRT in the middle of a call."""
    code = """
        import sys, threading, time, numpy as np, zeropoint.runtime as runtime
        program, x = runtime.load(sys.argv[1]), np.ones((int(sys.argv[2]), 3, 32, 32), np.float32)

        def work():
            while True:
                program(x)

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
    """
    ran = run_python(code, IMAGE, batch)
    assert ran.returncode == 0, ran.stderr


def test_a_signal_during_a_call_reaches_python_when_it_ends() -> None:
    code = """
        import signal, sys, threading, time, os, numpy as np, zeropoint.runtime as runtime
        program, x = runtime.load(sys.argv[1]), np.ones((64, 3, 32, 32), np.float32)
        expected = program(x).tobytes()
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                program(x)
        except KeyboardInterrupt:
            print(program(x).tobytes() == expected)
    """
    ran = run_python(code, IMAGE)
    assert ran.stdout.strip() == "True", ran.stderr
    assert signal.getsignal(signal.SIGINT) is not None
