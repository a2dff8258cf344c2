"""Peers: what is installed quantizes, writes a file and runs it; what is not says so."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from few_layers import Layers
from torch import nn

import zeropoint
from zeropoint.interop import peers
from zeropoint.interop.peer_process import Contender, Times, take_turns
from zeropoint.interop.tasks import Task, Unavailable, one_operator_each

NEEDS = {"ONNX Runtime": ("onnx", "onnxruntime", "onnxscript"), "OpenVINO": ("openvino", "nncf")}


@pytest.fixture(scope="module")
def task() -> Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    batches = tuple((torch.randn(4, 16),) for _ in range(8))
    return Task(model, batches[0], batches)


@pytest.mark.parametrize("name", [name for name in peers.PEERS if name not in (*peers.SLOW, "CTranslate2")])
def test_a_peer_gives_nearly_what_the_float_model_gives(name: str, task: Task, tmp_path: Path) -> None:
    is_gone = name == "torch.ao jit" and not hasattr(torch, "ao")  # on a PyTorch without quantization
    if is_gone or any(importlib.util.find_spec(package) is None for package in NEEDS.get(name, ())):
        with pytest.raises(Unavailable, match="no longer has it" if is_gone else "is not installed"):
            peers.written(name, task, tmp_path)
        return
    path = peers.written(name, task, tmp_path)
    assert peers.file_bytes(path) > 500
    ready = peers.PEERS[name].load(path, task.arrays, 1)
    assert ready.setting
    found = np.asarray(ready.call())
    with torch.no_grad():
        wanted = task.model(*task.inputs).numpy()
    assert found.shape == wanted.shape
    assert np.sum(found * wanted) / np.sqrt(np.sum(found**2) * np.sum(wanted**2)) > 0.98


def test_ctranslate2_says_that_it_takes_models_of_transformers_alone(task: Task, tmp_path: Path) -> None:
    known = importlib.util.find_spec("ctranslate2") is not None
    with pytest.raises(Unavailable, match="models of transformers alone" if known else "is not installed"):
        peers.written("CTranslate2", task, tmp_path)


def test_exporters_see_attention_in_parts() -> None:
    before = torch.backends.mha.get_fastpath_enabled()
    with one_operator_each():
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled() == before


def test_a_contender_has_a_process_of_its_own_without_torch(task: Task, tmp_path: Path) -> None:
    path = peers.written(peers.OURS, task, tmp_path)
    with Contender(peers.OURS, path, task.arrays, 1) as contender:
        found = contender.footprint
        assert found.load > 0
        assert found.first > 0
        assert 5e6 < found.peak < 150e6  # a process with torch has more
        assert found.setting.startswith("a program in zeropoint.runtime")
        assert contender.result().shape == (4, 8)
        assert all(0 < seconds < 1 for seconds in contender.turn())


def test_a_process_that_fails_says_why(task: Task, tmp_path: Path) -> None:
    (tmp_path / "broken.zpt").write_bytes(b"no program")
    with pytest.raises(Unavailable, match=r"zeropoint, in a process of its own: .*FormatError"):
        Contender(peers.OURS, tmp_path / "broken.zpt", task.arrays, 1)


class Scripted:
    """Takes so many turns of three calls, then fails."""

    def __init__(self, name: str, turns: int) -> None:
        self.name, self.left = name, turns

    def turn(self) -> list[float]:
        self.left -= 1
        if self.left < 0:
            raise Unavailable(f"{self.name} fell over")
        return [3.0, 1.0, 2.0]


def test_turns_go_on_until_all_have_had_enough_and_without_those_that_fail() -> None:
    times, out = take_turns([Scripted("steady", 100), Scripted("weak", 1)], seconds=0.0, least=7)
    assert list(times) == ["steady"]
    assert len(times["steady"].values) == 9
    assert str(out["weak"]) == "weak fell over"


def test_small_calls_end_when_they_have_had_their_turns_and_time() -> None:
    times, _ = take_turns([Scripted("steady", 1000)], seconds=1e9, least=7, most_seconds=0.1)
    assert 9 <= len(times["steady"].values) < 100


def test_times_have_a_median_and_quartiles() -> None:
    times = Times((4.0, 1.0, 2.0, 3.0, 5.0))
    assert times.median == 3.0
    assert times.quartiles == (2.0, 4.0)


def test_a_file_that_is_not_a_quarter_is_found_out() -> None:
    assert peers.is_quantized("ONNX Runtime", 1_500_000, 5_700_000)
    assert not peers.is_quantized("ONNX Runtime", 5_600_000, 5_700_000)
    assert peers.is_quantized("torch float32", 5_700_000, 5_700_000)


class Recurrent(Layers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


@pytest.mark.filterwarnings("ignore")
def test_onnx_runtime_quantizes_recurrent_layers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Recurrent(lstm=nn.LSTM(64, 256, batch_first=True)).eval(), (torch.randn(1, 4, 64),)
    task = Task(model, x, (x,), dynamic=True)
    if any(importlib.util.find_spec(package) is None for package in NEEDS["ONNX Runtime"]):
        with pytest.raises(Unavailable, match="is not installed"):
            peers.written("ONNX Runtime", task, tmp_path)
        return
    path = peers.written("ONNX Runtime", task, tmp_path)
    floats = sum(4 * p.numel() for p in model.parameters())
    assert peers.is_quantized("ONNX Runtime", peers.file_bytes(path), floats)


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
