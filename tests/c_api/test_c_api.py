"""The C API gives the bytes of the Python runtime, refuses mistakes in words, and keeps its binary interface."""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading
from pathlib import Path

import c_library
import golden_programs
import large_files
import numpy as np
import pytest
import torch
from c_library import Input, Library, Options, Step, Tensor, tensor_of

import zeropoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # the first test may build the library

PATHS = golden_programs.paths()
IMAGE = next(path for path in PATHS if path.stem == "image")
# What ABI version 1 exports. A function may be added here; none may go or change.
EXPORTED = {
    "zp_abi_version", "zp_version", "zp_last_error", "zp_isa", "zp_num_threads", "zp_set_num_threads",
    "zp_program_load", "zp_program_load_memory", "zp_program_free", "zp_program_input_count",
    "zp_program_output_count", "zp_program_step_count", "zp_program_input", "zp_program_result",
    "zp_session_create", "zp_session_free", "zp_session_reset", "zp_session_describe_outputs", "zp_session_run",
    "zp_session_profile",
}  # fmt: skip


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


def test_exactly_the_declared_functions_are_exported() -> None:
    path = c_library.installed() / "lib" / "libzeropoint.so"
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1].split("@")[0] for line in listed.splitlines() if " T " in line} == EXPORTED
    header = (c_library.installed() / "include" / "zeropoint" / "zeropoint.h").read_text()
    assert set(re.findall(r"ZP_API [^;(]*?(zp_\w+)\(", header)) == EXPORTED


def test_structs_have_the_layout_of_abi_version_1(library: Library, tmp_path: Path) -> None:
    assert library.c.zp_abi_version() == 1
    structs = {"zp_tensor": Tensor, "zp_input": Input, "zp_options": Options, "zp_step": Step}
    assert [ctypes.sizeof(struct) for struct in structs.values()] == [152, 208, 64, 40]
    checks = [f'_Static_assert(sizeof({name}) == {ctypes.sizeof(s)}, "");' for name, s in structs.items()]
    checks += [
        f'_Static_assert(offsetof({name}, {field}) == {getattr(struct, field).offset}, "");'
        for name, struct in structs.items()
        for field, _ in struct._fields_
    ]
    source = tmp_path / "layout.c"
    source.write_text("#include <zeropoint/zeropoint.h>\n" + "\n".join(checks) + "\nint main(void) { return 0; }\n")
    include = c_library.installed() / "include"
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
    compiled = subprocess.run(["cc", *strict, f"-I{include}", source], capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_kept_program_gives_the_kept_bytes_through_c(library: Library, path: Path) -> None:
    inputs, expected = golden_programs.arrays_of(path)
    program = library.load(path)
    session = library.session(program)
    library.c.zp_program_free(program)  # the session keeps what it needs
    found = library.run(session, [np.ascontiguousarray(x) for x in inputs], len(expected))
    library.c.zp_session_free(session)
    for y, wanted in zip(found, expected, strict=True):
        assert y.dtype == wanted.dtype
        assert y.shape == wanted.shape
        assert np.ascontiguousarray(y).tobytes() == wanted.tobytes()


def test_a_program_describes_its_inputs(library: Library) -> None:
    program = library.load(IMAGE)
    described = Input()
    assert library.c.zp_program_input_count(program) == 1
    assert library.c.zp_program_input(program, ctypes.c_size_t(0), ctypes.byref(described)) == c_library.OK
    assert described.name == b"image"
    assert c_library.TYPES[described.type] == np.float32
    (example,), _ = golden_programs.arrays_of(IMAGE)
    assert described.rank == example.ndim
    for size, axis, n in zip(described.sizes, described.axes, described.example[: described.rank]):
        assert size in (-1, n)
        assert (axis is None) == (size == n)
    assert library.c.zp_program_step_count(program) > 3
    assert (
        library.c.zp_program_input(program, ctypes.c_size_t(1), ctypes.byref(described)) == c_library.INVALID_ARGUMENT
    )
    assert library.last_error == "the program has 1 inputs, there is no input 1"
    library.c.zp_program_free(program)


def test_a_program_from_memory_is_that_of_the_file(library: Library) -> None:
    data = IMAGE.read_bytes()
    program = ctypes.c_void_p()
    status = library.c.zp_program_load_memory(data, ctypes.c_size_t(len(data)), None, ctypes.byref(program))
    assert status == c_library.OK
    session = library.session(program)
    inputs, expected = golden_programs.arrays_of(IMAGE)
    assert library.run(session, inputs, 1)[0].tobytes() == expected[0].tobytes()
    library.c.zp_session_free(session)
    library.c.zp_program_free(program)


@pytest.mark.parametrize("layout", ["transposed", "reversed", "every second", "channels last"])
def test_inputs_of_any_layout_are_read(library: Library, layout: str) -> None:
    program = library.load(IMAGE)
    session = library.session(program)
    (x,), expected = golden_programs.arrays_of(IMAGE)
    if layout == "transposed":
        x = np.ascontiguousarray(x.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
    elif layout == "reversed":
        x = np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    elif layout == "every second":
        x = np.repeat(x, 2, axis=-1)[..., ::2]
    else:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert not x.flags.c_contiguous
    assert np.array_equal(library.run(session, [x], 1)[0], expected[0])
    library.c.zp_session_free(session)
    library.c.zp_program_free(program)


def test_outputs_go_to_memory_of_the_caller(library: Library) -> None:
    program = library.load(IMAGE)
    session = library.session(program)
    (x,), (expected,) = golden_programs.arrays_of(IMAGE)
    one, given, output = ctypes.c_size_t(1), tensor_of(x), Tensor()
    described = library.c.zp_session_describe_outputs(session, ctypes.byref(given), one, ctypes.byref(output), one)
    assert described == c_library.OK
    assert (output.bytes, output.sizes[: output.rank]) == (expected.nbytes, list(expected.shape))
    memory = np.full(expected.shape, np.nan, np.float32)
    output.data = memory.ctypes.data
    output.bytes = expected.nbytes - 1
    status = library.c.zp_session_run(session, ctypes.byref(given), one, ctypes.byref(output), one)
    assert status == c_library.BUFFER_TOO_SMALL
    assert output.bytes == expected.nbytes
    assert np.isnan(memory).all()
    status = library.c.zp_session_run(session, ctypes.byref(given), one, ctypes.byref(output), one)
    assert status == c_library.OK
    assert memory.tobytes() == expected.tobytes()
    library.c.zp_session_free(session)
    library.c.zp_program_free(program)


def shifted(x: np.ndarray, offset: int) -> np.ndarray:
    """A copy at an address that is `offset` bytes above a multiple of 64."""
    memory = np.zeros(x.nbytes + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    copied = memory[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
    copied[...] = x
    return copied


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_memory_at_any_address_is_read_and_written_or_refused(library: Library, path: Path) -> None:
    inputs, expected = golden_programs.arrays_of(path)
    data = np.frombuffer(path.read_bytes(), np.uint8)
    whole, size = shifted(data, 1), ctypes.c_size_t(len(data))
    program = ctypes.c_void_p()
    address = ctypes.c_void_p(whole.ctypes.data)
    assert library.c.zp_program_load_memory(address, size, None, ctypes.byref(program)) == c_library.OK
    counts = ctypes.c_size_t(len(inputs)), ctypes.c_size_t(len(expected))
    for offset in range(1, 16):
        session = library.session(program)
        xs = [shifted(np.ascontiguousarray(x), offset) for x in inputs]
        ys = [shifted(np.zeros_like(y), offset) for y in expected]
        given, made = (Tensor * len(xs))(*map(tensor_of, xs)), (Tensor * len(ys))(*map(tensor_of, ys))
        status = library.c.zp_session_run(session, given, counts[0], made, counts[1])
        if all(offset % array.itemsize == 0 for array in (*xs, *ys)):
            assert status == c_library.OK, library.last_error
            assert [y.tobytes() for y in map(c_library.array_of, made)] == [y.tobytes() for y in expected]
        else:
            assert status == c_library.INVALID_ARGUMENT
            assert "is not on a boundary of its elements" in library.last_error
        library.c.zp_session_free(session)
    library.c.zp_program_free(program)


class Sum(torch.nn.Module):
    """A layer on the sum of all it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.layer(self.total)


def test_sessions_have_states_of_their_own(library: Library, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    quantized = zeropoint.to_int8(Sum(), (torch.from_numpy(x),), mode="dynamic", progress=False)
    python = zeropoint.compile(quantized, (torch.from_numpy(x),))
    python.save(tmp_path / "sum.zpt")
    once, twice = python(x), python(x)
    assert not np.array_equal(once, twice)
    program = library.load(tmp_path / "sum.zpt")
    first, second = library.session(program), library.session(program)
    assert np.array_equal(library.run(first, [x], 1)[0], once)
    assert np.array_equal(library.run(first, [x], 1)[0], twice)
    assert np.array_equal(library.run(second, [x], 1)[0], once)
    assert library.c.zp_session_reset(first) == c_library.OK
    assert np.array_equal(library.run(first, [x], 1)[0], once)
    for session in (first, second):
        library.c.zp_session_free(session)
    library.c.zp_program_free(program)


def test_threads_share_a_program_with_a_session_each(library: Library) -> None:
    program = library.load(IMAGE)
    inputs, expected = golden_programs.arrays_of(IMAGE)
    wrong: list[str] = []

    def work() -> None:
        session = library.session(program)
        for _ in range(50):
            if library.run(session, inputs, 1)[0].tobytes() != expected[0].tobytes():
                wrong.append("other bytes")
        library.c.zp_session_free(session)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    library.c.zp_program_free(program)


def test_a_profile_has_a_row_for_each_step(library: Library) -> None:
    program = library.load(IMAGE)
    session = library.session(program)
    (x,), _ = golden_programs.arrays_of(IMAGE)
    given, count = tensor_of(x), ctypes.c_size_t(0)
    assert (
        library.c.zp_session_profile(session, ctypes.byref(given), ctypes.c_size_t(1), None, ctypes.byref(count)) == 0
    )
    rows = (Step * count.value)()
    assert (
        library.c.zp_session_profile(session, ctypes.byref(given), ctypes.c_size_t(1), rows, ctypes.byref(count)) == 0
    )
    assert count.value == len(rows) >= 3
    assert {b"quantize", b"conv"} <= {row.op for row in rows}
    assert all(row.seconds >= 0 for row in rows)
    assert sum(row.macs for row in rows) > 0
    library.c.zp_session_free(session)
    library.c.zp_program_free(program)


def test_mistakes_are_statuses_with_words(library: Library, tmp_path: Path) -> None:
    program = ctypes.c_void_p()
    missing, noise = tmp_path / "missing.zpt", tmp_path / "noise.zpt"
    noise.write_bytes(b"no program at all" * 10)
    assert library.c.zp_program_load(str(missing).encode(), None, ctypes.byref(program)) == c_library.IO_ERROR
    assert "No such file" in library.last_error
    assert library.c.zp_program_load(str(noise).encode(), None, ctypes.byref(program)) == c_library.BAD_FILE
    assert "not a .zpt file" in library.last_error
    assert library.c.zp_program_load(None, None, ctypes.byref(program)) == c_library.INVALID_ARGUMENT
    assert library.last_error == "path is NULL"
    assert program.value is None
    assert library.c.zp_set_num_threads(0) == c_library.INVALID_ARGUMENT

    program = library.load(IMAGE)
    session = library.session(program)
    (x,), _ = golden_programs.arrays_of(IMAGE)

    def run(given: Tensor, count: int = 1, outputs: int = 1) -> int:
        room = (Tensor * max(outputs, 1))()
        counts = ctypes.c_size_t(count), ctypes.c_size_t(outputs)
        return library.c.zp_session_run(session, ctypes.byref(given), counts[0], room, counts[1])

    assert run(tensor_of(x.astype(np.int64))) == c_library.INVALID_ARGUMENT
    assert library.last_error == "input 'image' must be of type float32, got int64"
    assert run(tensor_of(x), count=0) == c_library.INVALID_ARGUMENT
    assert library.last_error == "the program takes 1 inputs, got 0"
    assert run(tensor_of(x), outputs=2) == c_library.INVALID_ARGUMENT
    assert run(tensor_of(np.zeros((1, 4, 8, 8), np.float32))) == c_library.BAD_SHAPE
    without = tensor_of(x)
    without.data = None
    assert run(without) == c_library.INVALID_ARGUMENT
    assert library.last_error == "the data of input 'image' is NULL"
    for field, value in (("rank", 9), ("rank", -1), ("type", 99)):
        wrong = tensor_of(x)
        setattr(wrong, field, value)
        assert run(wrong) == c_library.INVALID_ARGUMENT
    odd = tensor_of(x)
    odd.data += 1
    assert run(odd) == c_library.INVALID_ARGUMENT
    huge = tensor_of(x)
    huge.sizes[0] = 1 << 60
    assert run(huge) == c_library.BAD_SHAPE
    repeated = tensor_of(x)  # one image, a few billion times: copied once it fits, and not before
    repeated.sizes[0], repeated.strides[0] = 1 << 32, 0
    assert run(repeated) == c_library.BAD_SHAPE
    assert "memory limit" in library.last_error
    assert run(tensor_of(x)) == c_library.OK
    library.c.zp_session_free(session)
    library.c.zp_program_free(program)
    small = Options(memory_limit=16)
    assert library.c.zp_program_load(str(IMAGE).encode(), ctypes.byref(small), ctypes.byref(program)) != c_library.OK
    library.c.zp_session_free(None)
    library.c.zp_program_free(None)


def test_packed_weights_are_limited_as_in_python(library: Library, tmp_path: Path) -> None:
    path, program = tmp_path / "packed_often.zpt", ctypes.c_void_p()
    path.write_bytes(large_files.packed_often())
    assert library.c.zp_program_load(str(path).encode(), None, ctypes.byref(program)) == c_library.BAD_FILE
    assert "out of proportion to the file" in library.last_error
    trusted = Options(memory_limit=(8 << 30) + 1)
    assert library.c.zp_program_load(str(path).encode(), ctypes.byref(trusted), ctypes.byref(program)) == c_library.OK
    library.c.zp_program_free(program)
