"""The machine description: read from files like Linux's, and what the thread pool makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import zeropoint
from zeropoint import _native, cpu


def tree(
    root: Path, cores: list[str], caches: dict[str, tuple[str, str, str]], topology: str = "core_cpus_list"
) -> str:
    """A sysfs of CPUs: for each the list of its siblings; caches as index: level, type, size."""
    for number, siblings in enumerate(cores):
        folder = root / f"cpu{number}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology" / topology).write_text(siblings + "\n")
        for index, (level, kind, size) in caches.items():
            cache = folder / "cache" / index
            cache.mkdir(parents=True)
            (cache / "level").write_text(level + "\n")
            (cache / "type").write_text(kind + "\n")
            (cache / "size").write_text(size + "\n")
            (cache / "shared_cpu_list").write_text(f"0-{len(cores) - 1}\n" if level == "3" else siblings + "\n")
    return str(root)


CACHES = {
    "index0": ("1", "Data", "48K"),
    "index1": ("1", "Instruction", "32K"),
    "index2": ("2", "Unified", "2048K"),
    "index3": ("3", "Unified", "105M"),
}


def test_caches_are_those_of_data(tmp_path: Path) -> None:
    found = _native.read_machine(tree(tmp_path, ["0", "1"], CACHES), [0, 1])
    assert (found["l1_bytes"], found["l2_bytes"], found["l3_bytes"]) == (48 << 10, 2 << 20, 105 << 20)
    assert found["l3_cpus"] == 2
    assert found["source"] == "sysfs"


@pytest.mark.parametrize("topology", ["core_cpus_list", "thread_siblings_list"])
@pytest.mark.parametrize(
    ("siblings", "allowed", "cores", "useful"),
    [
        (["0", "1"], [0, 1], 2, 2),
        (["0-1", "0-1"], [0, 1], 1, 2),  # one core with two hyperthreads: both are used
        (["0,2", "1,3", "0,2", "1,3"], [0, 1, 2, 3], 2, 2),
        (["0,2", "1,3", "0,2", "1,3"], [0, 2], 1, 2),
        (["0,2", "1,3", "0,2", "1,3"], [0, 1], 2, 2),
        (["0-1", "0-1", "2-3", "2-3"], [0, 1, 2], 2, 2),
    ],
)
def test_hyperthreads_of_a_core_count_once(
    siblings: list[str], allowed: list[int], cores: int, useful: int, topology: str, tmp_path: Path
) -> None:
    found = _native.read_machine(tree(tmp_path, siblings, CACHES, topology), allowed)
    assert (found["cpus"], found["cores"], found["useful_threads"]) == (len(allowed), cores, useful)


@pytest.mark.parametrize(
    ("level", "kind", "size"),
    [("2", "Unified", ""), ("2", "Unified", "much"), ("2", "Unified", "-4K"), ("9", "Unified", "1K")],
)
def test_what_makes_no_sense_is_assumed(level: str, kind: str, size: str, tmp_path: Path) -> None:
    found = _native.read_machine(tree(tmp_path, ["x-y", "1-"], {"index0": (level, kind, size)}), [0, 1])
    assumed = _native.read_machine(str(tmp_path / "nothing"), [0, 1])
    for name in ("l1_bytes", "l2_bytes", "l3_bytes", "cores"):
        assert found[name] == assumed[name], name


def test_without_files_there_are_still_caches(tmp_path: Path) -> None:
    found = _native.read_machine(str(tmp_path), [3])
    assert (found["cpus"], found["cores"]) == (1, 1)
    assert found["source"] == "assumed"
    assert 0 < found["l1_bytes"] < found["l2_bytes"] < found["l3_bytes"]


def test_cpu_info_has_this_machine() -> None:
    machine = zeropoint.cpu_info().machine
    assert 1 <= machine.cores <= machine.cpus
    assert machine.l1_bytes <= machine.l2_bytes <= machine.l3_bytes
    assert f"{machine.cores} cores" in str(zeropoint.cpu_info())


def test_peaks_are_measured_for_what_the_cpu_has() -> None:
    found, available = cpu.peaks(), zeropoint.cpu_info().available
    for isa in available:
        if isa != "portable":
            assert found.macs[isa] > 1e9, isa
    assert set(found.macs) <= set(available)
    if "avx2" in available:
        assert found.memory > 1e8
        assert found.l1 > found.memory
    assert cpu.peaks() == found


def outputs(threads: int) -> list[Any]:
    """A small network, with one image and with several."""
    zeropoint.set_num_threads(threads)
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, groups=64), nn.Conv2d(64, 96, 1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1536, 200), nn.GELU()).eval()
    data = [torch.randn(8, 3, 40, 40)]
    program = zeropoint.compile(zeropoint.to_int8(model, (data[0],), data, progress=False), (data[0],))
    return [program(data[0]).numpy(), program(data[0][:1]).numpy()]


@pytest.mark.timeout(240)
def test_more_threads_than_cores_give_the_same_bytes() -> None:
    before = zeropoint.get_num_threads()
    try:
        wanted = outputs(1)
        for threads in (2, 4, 8, 16, 32):
            for found, expected in zip(outputs(threads), wanted, strict=True):
                np.testing.assert_array_equal(found, expected, err_msg=f"{threads} threads")
    finally:
        zeropoint.set_num_threads(before)


# Without torch, so that it is our own pool: jobs of 1 to 32 parts in turn, whose threads sleep in between.
POOL = """
import sys, time
import numpy as np
from zeropoint import _native
assert "torch" not in sys.modules
rng = np.random.default_rng(0)
table = rng.integers(0, 256, 256, dtype=np.uint8)
for threads in (1, 2, 4, 8, 16, 32):
    _native.set_num_threads(threads)
    for parts in (1, 32, 2, 7, 1, 16, 3, 40):
        x = rng.integers(0, 256, parts * 65536 + 17, dtype=np.uint8)
        y = np.zeros_like(x)
        _native.lookup(x.ctypes.data, table.ctypes.data, y.ctypes.data, x.size)
        assert np.array_equal(y, table[x]), (threads, parts)
        if parts == 7:
            time.sleep(0.001)
print("alike")
"""


@pytest.mark.timeout(120)
def test_our_own_pool_takes_jobs_of_any_number_of_parts() -> None:
    ran = subprocess.run([sys.executable, "-c", POOL], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "alike"
