"""One copy of the weights: those that are packed for the CPU are left to the file, and read again when needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import zeropoint
from zeropoint import runtime

WIDTH = 1280


def _static() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 8))


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(WIDTH, 256, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.recurrent(x.unsqueeze(1))[0]


MODES: dict[str, tuple[Any, dict[str, Any]]] = {
    "static": (_static, {}),
    "dynamic": (_static, {"mode": "dynamic"}),
    "weight only": (_static, {"mode": "weight_only"}),
    "recurrent": (Sequence, {"mode": "dynamic"}),
}


def made(name: str, path: Path) -> tuple[Any, np.ndarray, np.ndarray]:
    """A loaded program, an input, and what the program gave before it was saved."""
    torch.manual_seed(0)
    make, options = MODES[name]
    x = torch.randn(2, WIDTH)
    compiled = zeropoint.compile(zeropoint.to_int8(make().eval(), (x,), progress=False, **options), (x,))
    compiled.save(path)
    return runtime.load(path), x.numpy(), compiled(x).numpy()


def other_isa() -> str:
    """An instruction set that is not in use: its kernels read the weights of a file again."""
    cpu = zeropoint.cpu_info()
    others = [isa for isa in cpu.available if isa != cpu.isa]
    if not others:
        pytest.skip(f"this CPU has one instruction set, {cpu.isa}")
    return others[0]


@pytest.mark.parametrize("name", MODES)
def test_a_loaded_program_computes_saves_and_changes_its_kernels(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.zpt"
    program, x, expected = made(name, path)
    data = path.read_bytes()
    path.unlink()  # an open file stays what it is
    assert np.array_equal(program(x), expected)
    program.save(tmp_path / "again.zpt")
    assert (tmp_path / "again.zpt").read_bytes() == data
    with zeropoint.use_isa(other_isa()):
        assert np.array_equal(program(x), expected)
    assert np.array_equal(program(x), expected)
    program.save(tmp_path / "again.zpt")
    assert (tmp_path / "again.zpt").read_bytes() == data


def test_a_program_may_be_saved_where_it_came_from(tmp_path: Path) -> None:
    path = tmp_path / "model.zpt"
    program, x, expected = made("static", path)
    for _ in range(2):
        program.save(path)
        assert np.array_equal(runtime.load(path)(x), expected)


@pytest.mark.parametrize("change", ["other bytes", "shorter"])
def test_a_file_that_has_changed_is_noticed(change: str, tmp_path: Path) -> None:
    path = tmp_path / "model.zpt"
    program, x, expected = made("static", path)
    with path.open("r+b") as file:
        if change == "shorter":
            file.truncate(100_000)
        else:
            file.seek(os.path.getsize(path) // 2)
            file.write(b"\x55" * 5000)
    assert np.array_equal(program(x), expected)  # which needs none of it
    with pytest.raises(runtime.FormatError, match="has been changed since"):
        program.save(tmp_path / "again.zpt")
    with zeropoint.use_isa(other_isa()), pytest.raises(runtime.FormatError, match="has been changed since"):
        program(x)
    assert np.array_equal(program(x), expected)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="this system does not say how much memory is in use")
def test_loaded_weights_take_memory_once(tmp_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    path = tmp_path / "model.zpt"
    made("weight only", path)
    before = resident()
    programs = [runtime.load(path) for _ in range(8)]
    each = (resident() - before) / len(programs)
    assert each < 1.5 * path.stat().st_size
