"""The C++ examples build against the installed package, by CMake and by pkg-config, and give what Python gives."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import c_library
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import zeropoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

EXAMPLES = c_library.ROOT / "examples" / "cpp"


def _run(*command: str | Path, given: bytes = b"", **variables: str) -> bytes:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}
    result = subprocess.run([str(c) for c in command], input=given, capture_output=True, env=environment, timeout=600)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:].decode()
    return result.stdout


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("examples")
    prefix = c_library.installed()
    _run(
        "cmake",
        "-S",
        EXAMPLES,
        "-B",
        build,
        "-G",
        "Ninja",
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_PREFIX_PATH={prefix}",
    )
    _run("cmake", "--build", build)
    return build


class Mobile(nn.Module):
    """An inverted residual between a stem and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU6())
        self.block = nn.Sequential(
            nn.Conv2d(8, 24, 1), nn.ReLU6(), nn.Conv2d(24, 24, 3, 1, 1, groups=24), nn.ReLU6(), nn.Conv2d(24, 8, 1)
        )
        self.head = nn.Linear(8, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        x = x + self.block(x)
        return self.head(x.mean((2, 3)))


class Recurrent(nn.Module):
    """One frame at a time; the state stays in the model."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16), nn.Linear(16, 2)
        self.register_buffer("hidden", torch.zeros(1, 1, 16))
        self.register_buffer("cell", torch.zeros(1, 1, 16))

    def forward(self, frame: Tensor) -> Tensor:
        y, (hidden, cell) = self.lstm(frame, (self.hidden, self.cell))
        self.hidden.copy_(hidden)
        self.cell.copy_(cell)
        return self.head(y)


def test_classify_prints_the_scores_that_python_computes(examples: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    batch = torch.randn(4, 3, 32, 32)
    program = zeropoint.compile(zeropoint.to_int8(Mobile().eval(), (batch,), progress=False), (batch[:1],))
    program.save(tmp_path / "mobile.zpt")
    pixels = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    (tmp_path / "image.ppm").write_bytes(b"P6\n64 48\n255\n" + pixels.tobytes())
    rows = _run(examples / "classify", tmp_path / "mobile.zpt", tmp_path / "image.ppm").decode().splitlines()

    nearest = pixels[np.arange(32) * 48 // 32][:, np.arange(32) * 64 // 32]
    mean = np.array([0.485, 0.456, 0.406], np.float32)
    deviation = np.array([0.229, 0.224, 0.225], np.float32)
    image = (nearest.astype(np.float32) / np.float32(255) - mean) / deviation
    scores = program(np.ascontiguousarray(image.transpose(2, 0, 1)[None]))[0]
    order = np.argsort(-scores, kind="stable")[:5]
    assert [(int(a), np.float32(b)) for a, b in (row.split() for row in rows)] == [(int(i), scores[i]) for i in order]


def test_stream_keeps_the_state_from_frame_to_frame(examples: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    frame = torch.randn(1, 1, 8)
    quantized = zeropoint.to_int8(Recurrent().eval(), (frame,), mode="dynamic", progress=False)
    program = zeropoint.compile(quantized, (frame,))
    program.save(tmp_path / "lstm.zpt")
    frames = np.random.default_rng(0).standard_normal((20, 1, 1, 8)).astype(np.float32)
    found = np.frombuffer(_run(examples / "stream", tmp_path / "lstm.zpt", given=frames.tobytes()), np.float32)
    assert np.array_equal(found, np.concatenate([program(x).ravel() for x in frames]))


def test_pkg_config_finds_the_library_where_its_archive_is_unpacked(tmp_path: Path) -> None:
    archive = _run(c_library.ROOT / "scripts" / "pack_c_api.sh", c_library.installed(), tmp_path).decode().strip()
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    prefix = Path(archive.removesuffix(".tar.gz"))
    assert (prefix / "share" / "licenses" / "zeropoint" / "LICENSE").is_file()
    flags = _run("pkg-config", "--cflags", "--libs", "zeropoint", PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig"))
    source = tmp_path / "version.c"
    source.write_text("#include <stdio.h>\n#include <zeropoint/zeropoint.h>\nint main(void) { puts(zp_version()); }\n")
    _run("cc", source, *flags.decode().split(), "-o", tmp_path / "version")
    printed = _run(tmp_path / "version", LD_LIBRARY_PATH=str(prefix / "lib"))
    assert printed.decode().strip() == zeropoint.__version__


def test_the_rust_crate_has_the_version() -> None:
    assert f'version = "{zeropoint.__version__}"\n' in (c_library.ROOT / "bindings/rust/Cargo.toml").read_text()


def test_packages_have_the_version_however_cmake_is_called(tmp_path: Path) -> None:
    _run("cmake", "-S", c_library.ROOT, "-B", tmp_path, "-DZEROPOINT_PYTHON=OFF", "-DSKBUILD_PROJECT_VERSION=0")
    assert f"Version: {zeropoint.__version__}\n" in (tmp_path / "c_api" / "zeropoint.pc").read_text()
    config = (tmp_path / "c_api" / "zeropointConfigVersion.cmake").read_text()
    assert f'set(PACKAGE_VERSION "{zeropoint.__version__}")' in config


def test_wrong_files_end_in_words(examples: Path, tmp_path: Path) -> None:
    (tmp_path / "noise.zpt").write_bytes(b"noise")
    result = subprocess.run([examples / "stream", tmp_path / "noise.zpt"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stderr.startswith("stream: ")
    assert "not a .zpt file" in result.stderr
