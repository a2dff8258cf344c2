"""Peers: what is installed quantizes, writes a file and runs it; what is not says so."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import zeropoint
from zeropoint.interop import peers
from zeropoint.interop.footprint import footprint
from zeropoint.interop.tasks import Task, Unavailable

NEEDS = {"ONNX Runtime": ("onnx", "onnxruntime", "onnxscript"), "OpenVINO": ("openvino", "nncf")}


@pytest.fixture(scope="module")
def task() -> Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    batches = tuple((torch.randn(4, 16),) for _ in range(8))
    return Task(model, batches[0], batches)


@pytest.mark.parametrize("name", [name for name in peers.PEERS if name not in peers.SLOW])
def test_a_peer_gives_nearly_what_the_float_model_gives(name: str, task: Task, tmp_path: Path) -> None:
    if any(importlib.util.find_spec(package) is None for package in NEEDS.get(name, ())):
        with pytest.raises(Unavailable, match="is not installed"):
            peers.written(name, task, tmp_path)
        return
    path = peers.written(name, task, tmp_path)
    assert path is not None
    assert peers.file_bytes(path) > 500
    found = np.asarray(peers.ready(name, task, path, 1)())
    with torch.no_grad():
        wanted = task.model(*task.inputs).numpy()
    assert found.shape == wanted.shape
    assert np.sum(found * wanted) / np.sqrt(np.sum(found**2) * np.sum(wanted**2)) > 0.98


def test_what_runs_has_a_footprint_without_torch(task: Task, tmp_path: Path) -> None:
    path = peers.written(peers.OURS, task, tmp_path)
    assert path is not None
    found = footprint(peers.OURS, path, task.arrays, 1)
    assert found.load > 0
    assert found.first > 0
    assert 5e6 < found.peak < 150e6  # a process with torch has more


def test_a_process_that_fails_says_why(task: Task, tmp_path: Path) -> None:
    (tmp_path / "broken.zpt").write_bytes(b"no program")
    with pytest.raises(Unavailable, match=r"zeropoint, in a process of its own: .*FormatError"):
        footprint(peers.OURS, tmp_path / "broken.zpt", task.arrays, 1)


def test_torch_ao_refuses_exported_graphs(task: Task, tmp_path: Path) -> None:
    exported = torch.export.export(task.model, task.inputs).module()
    with pytest.raises(Unavailable, match="not exported graphs"):
        peers.written("torch.ao jit", Task(exported, task.inputs, task.calibration), tmp_path)


@pytest.mark.parametrize(("masked", "given"), [(True, ""), (False, ""), (True, "DEFAULT")])
def test_peers_are_kept_from_amx_only_where_it_is_masked(
    masked: bool, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Info:
        amx_is_masked = masked

    monkeypatch.setattr(peers, "cpu_info", Info)
    monkeypatch.setenv(peers.MASK, given)
    if not given:
        monkeypatch.delenv(peers.MASK)
    words: Any = peers.keep_from_masked_amx()
    expected = given or ("AVX512_CORE_FP16" if masked else None)
    assert os.environ.get(peers.MASK) == expected
    assert (expected or "") in words
    monkeypatch.setenv(peers.MASK, "")  # so that what was set goes with the test


def test_masked_amx_is_found_in_the_notes() -> None:
    info = zeropoint.cpu_info()
    assert info.amx_is_masked == any("leaf" in n.lower() or "palette" in n.lower() for n in info.notes)
