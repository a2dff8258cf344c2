"""Programs without PyTorch: files, inputs that fit, inputs that do not."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import in_threads
from torch import nn

import zeropoint
from zeropoint import runtime


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.relu(self.conv(image)).mean([2, 3]))


@functools.cache
def made() -> tuple[Any, Any]:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    quantized = zeropoint.to_int8(Small().eval(), (x,), dynamic_shapes="all", progress=False)
    return quantized, zeropoint.compile(quantized, (x,))


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape or (2, 3, 8, 8), dtype=np.float32)


def test_a_file_runs_where_torch_is_not(tmp_path: Path) -> None:
    quantized, program = made()
    x = images()
    program.save(tmp_path / "small.zpt")
    np.save(tmp_path / "x.npy", x)
    code = (
        "import sys\n"
        "sys.modules['torch'] = None  # importing it now raises\n"
        "import numpy, zeropoint.runtime\n"
        f"program = zeropoint.runtime.load({str(tmp_path / 'small.zpt')!r})\n"
        f"numpy.save({str(tmp_path / 'y.npy')!r}, program(numpy.load({str(tmp_path / 'x.npy')!r})))\n"
        "loaded = {name.split('.')[0] for name in sys.modules} & {'safetensors', 'scipy', 'rich'}\n"
        "assert not loaded, loaded\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    with torch.no_grad():
        assert np.array_equal(np.load(tmp_path / "y.npy"), quantized(torch.from_numpy(x)).numpy())


def test_saved_and_loaded_programs_are_the_same_file(tmp_path: Path) -> None:
    _, program = made()
    program.save(tmp_path / "one.zpt")
    runtime.load(tmp_path / "one.zpt").save(tmp_path / "two.zpt")
    assert (tmp_path / "one.zpt").read_bytes() == (tmp_path / "two.zpt").read_bytes()


def test_inputs_are_described() -> None:
    _, program = made()
    ((name, dtype, shape),) = program.inputs
    assert (name, dtype, shape[1]) == ("image", "float32", 3)
    assert all(isinstance(n, str) for n in (shape[0], *shape[2:]))
    assert "image: float32" in repr(program)


def test_inputs_may_be_named_and_lie_anyhow() -> None:
    program = runtime.Program(made()[1]._native)
    x = images(2, 3, 8, 8)
    expected = program(x)
    assert isinstance(expected, np.ndarray)
    assert np.array_equal(program(image=x), expected)
    turned = np.ascontiguousarray(x.transpose(3, 1, 0, 2)).transpose(2, 1, 3, 0)
    assert not turned.flags.c_contiguous
    assert np.array_equal(program(turned), expected)
    unaligned = np.empty(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    unaligned[...] = x
    assert np.array_equal(program(unaligned), expected)
    x.flags.writeable = False
    assert np.array_equal(program(x), expected)


def test_results_are_new_arrays() -> None:
    program = runtime.Program(made()[1]._native)
    x = images()
    first = program(x)
    kept = first.copy()
    program(x + 1)
    assert np.array_equal(first, kept)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ((), TypeError, "takes 1 inputs, got 0"),
        ((images(), images()), TypeError, "takes 1 inputs, got 2"),
        ((images().astype(np.float64),), TypeError, "image.*float32"),
        ((images().astype(">f4"),), TypeError, "image.*float32"),
        (([[1.0]],), TypeError, "image.*list"),
        ((None,), TypeError, "image.*None"),
        ((np.ma.masked_array(images(), mask=images() > 0),), TypeError, r"image.*masked array.*filled\(value\)"),
        ((images(2, 4, 8, 8),), ValueError, r"image.*\(2, 4, 8, 8\)"),
        ((images(2, 3, 8),), ValueError, r"image.*\(2, 3, 8\)"),
        ((images(2, 3, 8, 0)[:, :, :, :0],), ValueError, "empty|small"),
    ],
)
def test_inputs_that_do_not_fit(inputs: Any, error: type[Exception], message: str) -> None:
    program = runtime.Program(made()[1]._native)
    with pytest.raises(error, match=message):
        program(*inputs)


def test_named_inputs_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="takes image"):
        made()[1](picture=images())


def test_an_empty_batch_gives_an_empty_result() -> None:
    assert runtime.Program(made()[1]._native)(images(0, 3, 8, 8)[:0]).shape == (0, 5)


def test_nan_and_infinity_are_values_like_others() -> None:
    quantized, program = made()
    x = images()
    x[0, 0, 0, :3] = [np.nan, np.inf, -np.inf]
    with torch.no_grad():
        assert np.array_equal(runtime.Program(program._native)(x), quantized(torch.from_numpy(x)).numpy())


def test_threads_share_a_program() -> None:
    program = runtime.Program(made()[1]._native)
    inputs = [images(n, 3, 8, 8) for n in (1, 2, 3, 4)]
    expected = [program(x) for x in inputs]
    wrong = []

    def work(first: int) -> None:
        for i in range(200):
            which = (first + i) % len(inputs)
            if not np.array_equal(program(inputs[which]), expected[which]):
                wrong.append(which)

    in_threads(work, 4)
    assert not wrong


def test_many_shapes_are_planned_and_forgotten() -> None:
    program = runtime.Program(made()[1]._native)
    shapes = [(n % 5 + 1, 3, n % 7 + 4, n % 11 + 4) for n in range(60)]
    expected = {shape: program(images(*shape)) for shape in shapes}
    for shape in shapes:
        assert np.array_equal(program(images(*shape)), expected[shape])


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = zeropoint.get_num_threads()
    zeropoint.set_num_threads(1)
    yield
    zeropoint.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")  # every thread takes something for itself
def test_memory_limit_is_kept(tmp_path: Path) -> None:
    _, program = made()
    program.save(tmp_path / "small.zpt")
    limited = runtime.load(tmp_path / "small.zpt", memory_limit=20_000)
    limited(images())
    with pytest.raises(ValueError, match="limit"):
        limited(images(8, 3, 64, 64))
    with pytest.raises(runtime.FormatError, match="limit"):
        runtime.load(tmp_path / "small.zpt", memory_limit=100)


def test_profile_lists_every_step() -> None:
    program = runtime.Program(made()[1]._native)
    profile = program.profile(images(), runs=3)
    assert [row.op for row in profile] == ["quantize", "conv", "mean", "linear"]
    assert profile[1].macs == 2 * 8 * 8 * 8 * 27
    assert [row.kernel for row in profile] == ["quantize", "gemm", "", "gemm"]
    assert {row.isa for row in profile if row.kernel} <= set(zeropoint.cpu_info().available)
    assert [row.precision for row in profile] == ["float32", "int8", "int8", "int8"]
    assert [row.dtype_out for row in profile] == ["uint8"] * 3 + ["float32"]
    assert profile[1].shape == (2, 8, 8, 8)
    assert "2x8x8x8" in str(profile)
    assert "% int8" in str(profile)
    assert '"ph": "X"' in profile.trace()


@pytest.mark.parametrize("path", ["missing.zpt", "."])
def test_paths_that_are_no_files(path: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"zpt|irectory"):
        runtime.load(tmp_path / path)
