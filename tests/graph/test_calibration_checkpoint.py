"""Calibration that stops half way goes on where it stopped, and finds the same ranges."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import run_forked
from torch import Tensor, nn

import zeropoint
from zeropoint.graph import calibration_checkpoint
from zeropoint.tensor.safetensors_file import read_safetensors

BATCHES = [torch.randn(8, 16, generator=torch.Generator().manual_seed(seed)) * (1 + seed) for seed in range(6)]


def network(seed: int = 0, between: type[nn.Module] = nn.Identity) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), between(16), nn.Linear(16, 4)).eval()


def stopping(before: int, error: BaseException) -> Iterator[Tensor]:
    yield from BATCHES[:before]
    raise error


def quantized(batches: Any, checkpoint: Path | None, model: nn.Module | None = None, **options: Any) -> nn.Module:
    model = network() if model is None else model
    return zeropoint.to_int8(model, (BATCHES[0],), batches, progress=False, checkpoint=checkpoint, **options)


def ranges(model: nn.Module) -> Tensor:
    return model.get_extra_state()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the disk is gone")], ids=["ctrl-c", "error"])
@pytest.mark.parametrize("before", [1, 4])
def test_resumed_calibration_finds_what_one_run_finds(tmp_path: Path, before: int, error: BaseException) -> None:
    path = tmp_path / "calibration.safetensors"
    with pytest.raises(type(error)):
        quantized(stopping(before, error), path)
    assert path.exists()
    assert torch.equal(ranges(quantized(BATCHES, path)), ranges(quantized(BATCHES, None)))
    assert not path.exists()


def test_batch_that_was_interrupted_is_not_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calibration.safetensors"
    calls: list[int] = []
    observe = zeropoint.HistogramObserver.forward

    def stop(self: Any, x: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return observe(self, x)

    monkeypatch.setattr(zeropoint.HistogramObserver, "forward", stop)
    with pytest.raises(KeyboardInterrupt):
        quantized(BATCHES, path)
    monkeypatch.undo()
    assert torch.equal(ranges(quantized(BATCHES, path)), ranges(quantized(BATCHES, None)))


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "calibration.safetensors"
    with pytest.raises(KeyboardInterrupt, match=r"interrupted after 3 batches.*repeat the call to resume") as stopped:
        quantized(stopping(3, KeyboardInterrupt()), path)
    assert str(path) in str(stopped.value)
    with pytest.raises(KeyboardInterrupt, match=r"interrupted after 3 batches.*checkpoint=path.*convert_graph"):
        quantized(stopping(3, KeyboardInterrupt()), None)


@pytest.mark.parametrize("calls", [2, 7])  # in the first batch, where some observers saw nothing, and later
def test_observers_that_were_interrupted_can_be_converted(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = zeropoint.prepare_graph(network(), zeropoint.get_default_qconfig_mapping(), (BATCHES[0],))
    observe, left = zeropoint.HistogramObserver.forward, [calls]

    def stop(self: Any, x: Tensor) -> Tensor:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return observe(self, x)

    monkeypatch.setattr(zeropoint.HistogramObserver, "forward", stop)
    with pytest.raises(KeyboardInterrupt):
        list(map(prepared, BATCHES))
    monkeypatch.undo()
    if calls == 2:
        with pytest.raises(ValueError, match="saw no data: run the prepared model"):
            zeropoint.convert_graph(prepared)
        prepared(BATCHES[0])
    assert torch.isfinite(zeropoint.convert_graph(prepared)(BATCHES[0])).all()


def test_statistics_of_channels_go_on_too(tmp_path: Path) -> None:
    """Of a norm before a linear layer, whose channels are equalized."""
    path = tmp_path / "calibration.safetensors"
    model = network(0, nn.LayerNorm)
    with pytest.raises(KeyboardInterrupt):
        quantized(stopping(3, KeyboardInterrupt()), path, model)
    assert torch.equal(ranges(quantized(BATCHES, path, model)), ranges(quantized(BATCHES, None, model)))


def test_file_is_written_as_time_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_checkpoint, "_SECONDS", 0.0)
    path = tmp_path / "calibration.safetensors"
    there = []

    def looking() -> Iterator[Tensor]:
        for batch in BATCHES:
            there.append(path.exists())
            yield batch

    quantized(looking(), path)
    assert there == [False, *[True] * (len(BATCHES) - 1)]


def test_recurrent_layers_go_on_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "calibration.safetensors"
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.LSTM(16, 8, batch_first=True)).eval()
    batches = [batch.reshape(2, 4, 16) for batch in BATCHES]

    def stop() -> Iterator[Tensor]:
        yield from batches[:2]
        raise KeyboardInterrupt

    def run(data: Any, file: Path | None) -> nn.Module:
        return zeropoint.to_int8(model, (batches[0],), data, progress=False, checkpoint=file)

    with pytest.raises(KeyboardInterrupt):
        run(stop(), path)
    assert torch.equal(ranges(run(batches, path)), ranges(run(batches, None)))


@pytest.mark.parametrize("other", ["weights", "qconfig"])
def test_checkpoint_of_another_calibration_is_refused(tmp_path: Path, other: str) -> None:
    path = tmp_path / "calibration.safetensors"
    with pytest.raises(KeyboardInterrupt):
        quantized(stopping(2, KeyboardInterrupt()), path)
    kept = path.read_bytes()
    options = {"model": network(1)} if other == "weights" else {"qconfig": zeropoint.default_qconfig}
    with pytest.raises(ValueError, match="belongs to the calibration of another model or qconfig"):
        quantized(BATCHES, path, **options)
    assert path.read_bytes() == kept


def test_file_that_has_seen_more_than_there_is_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.safetensors"
    with pytest.raises(KeyboardInterrupt):
        quantized(stopping(4, KeyboardInterrupt()), path)
    with pytest.raises(ValueError, match="has 4 batches, but calibration has 2"):
        quantized(BATCHES[:2], path)
    assert path.exists()


def test_what_is_no_checkpoint_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a checkpoint")
    with pytest.raises(ValueError, match=r"notes\.txt is not a calibration checkpoint"):
        quantized(BATCHES, path)
    assert path.read_text() == "not a checkpoint"


def test_ctrl_c_while_a_batch_is_noted_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calibration.safetensors"
    observers, calls = calibration_checkpoint._observers, [0]

    def stop(prepared: nn.Module) -> dict[str, Tensor]:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return observers(prepared)

    monkeypatch.setattr(calibration_checkpoint, "_observers", stop)
    with pytest.raises(KeyboardInterrupt):
        quantized(BATCHES, path)
    monkeypatch.undo()
    assert torch.equal(ranges(quantized(BATCHES, path)), ranges(quantized(BATCHES, None)))


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
import zeropoint
from zeropoint.graph import calibration_checkpoint
sys.path[:0] = sys.argv[1:3]
import test_calibration_checkpoint as here

where, path = sys.argv[3], Path(sys.argv[4])
calibration_checkpoint._SECONDS = 0.0
left = [{"between batches": 4, "in a batch": 9, "in a write": 4}[where]]

def die_at(function):
    def called(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return called

batches = here.BATCHES
if where == "between batches":
    batches = map(die_at(lambda batch: batch), batches)
elif where == "in a batch":
    zeropoint.HistogramObserver.forward = die_at(zeropoint.HistogramObserver.forward)
else:
    Path.replace = die_at(Path.replace)  # the new file is written, and has not yet its name
here.quantized(batches, path)
"""


@pytest.mark.parametrize("where", ["between batches", "in a batch", "in a write"])
def test_calibration_that_was_killed_goes_on_to_the_same_bits(where: str, tmp_path: Path) -> None:
    path, tests = tmp_path / "calibration.safetensors", Path(__file__).parents[1]
    killed = run_forked(KILLED, tests, tests / "graph", where, path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert 0 < int(read_safetensors(path)[1]["zeropoint.batches"]) < len(BATCHES)
    assert torch.equal(ranges(quantized(BATCHES, path)), ranges(quantized(BATCHES, None)))
    assert not path.exists()
