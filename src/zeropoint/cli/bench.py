"""zeropoint bench"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from zeropoint.cli.data import Batch, Data, Samples, load_tensors
from zeropoint.cli.models import Model, Pickle, load_model
from zeropoint.cli.output import AsJson, note, show, work
from zeropoint.cli.programs import compiled
from zeropoint.cli.quantize import Mode, quantized_form
from zeropoint.progress import during

__all__ = ["bench"]

HEADER = ("runs as", "milliseconds", "against float32", "file, MB")
FLOAT, GRAPH, PROGRAM = "torch float32", "zeropoint graph", "zeropoint program"


def bench(
    model: Model,
    data: Data,
    mode: Annotated[Mode, typer.Option("--mode", "-m", help="How it is quantized.")] = Mode.static,
    threads: Annotated[
        int | None, typer.Option("--threads", "-t", min=1, help="For everybody; all CPUs by default.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="To spend on timing.")] = 5.0,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="NAME", help="Leave out a peer; may be repeated.")
    ] = None,
    compare_compiled: Annotated[
        bool, typer.Option("--compile", help="Also torch.compile and torchao: minutes, and a C++ compiler.")
    ] = False,
    batch: Batch = 1,
    samples: Samples = 32,
    pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Time a model in float, quantized by zeropoint, and by what else is installed; all take turns in one run.

    Peers: torch.ao, ONNX Runtime, OpenVINO with NNCF. What is not installed, or cannot take the model, is named with
    the reason.
    """
    from zeropoint.interop.peers import OURS, PEERS, SLOW, keep_from_masked_amx

    left_out = set(without or ())
    if left_out - set(PEERS):
        raise typer.BadParameter(f"--without takes {', '.join(PEERS)}, got {', '.join(left_out - set(PEERS))}")
    with work(as_json):
        words = keep_from_masked_amx()
        if words:
            note(words)
        if not compare_compiled:
            left_out.update(SLOW)
        source = load_model(model, pickle)
        batches = load_tensors(data, source, batch, samples)
        peers = [name for name in PEERS if name not in (OURS, FLOAT) and name not in left_out]
        with _threads(threads) as used, tempfile.TemporaryDirectory() as folder:
            found = _times(source, batches, mode, peers, Path(folder), used, seconds)
        first = found[0].milliseconds
        from zeropoint.report.table import rich_table

        rows = [
            (t.name, f"{t.milliseconds:.3f}", f"{first / t.milliseconds:.2f}x", f"{t.size / 1e6:.2f}" if t.size else "")
            for t in found
        ]
        results = [{"runs_as": t.name, "milliseconds": t.milliseconds, "bytes": t.size} for t in found]
        show(rich_table(HEADER, rows), {"threads": used, "batch": len(batches[0][0]), "results": results}, as_json)


@dataclass(frozen=True)
class _Time:
    name: str
    milliseconds: float
    size: int | None  # of the file


def _times(
    source: Any, batches: list[Any], mode: Mode, peers: list[str], folder: Path, threads: int, seconds: float
) -> list[_Time]:
    import torch

    from zeropoint.interop.peers import file_bytes, ready, written
    from zeropoint.interop.tasks import Task, Unavailable, first_line
    from zeropoint.report.timing import alternating

    calls: list[tuple[str, Callable[[], object], int | None]] = []
    x = batches[0]

    def add(name: str, make: Callable[[], tuple[Callable[[], Any], int | None]]) -> None:
        try:
            with during(name, progress=True):
                call, size = make()
                call()
            calls.append((name, call, size))
        except Unavailable as reason:
            note(f"left out: {reason}")
        except Exception as error:  # a peer that cannot take the model is no failure of ours
            note(f"left out: {name}: {first_line(error)}")

    def program() -> tuple[Callable[[], Any], int]:
        made = compiled(quantized, x)
        made.save(folder / "model.zpt")
        return lambda: made(*x), file_bytes(folder / "model.zpt")

    def peer(name: str) -> tuple[Callable[[], Any], int | None]:
        if mode is Mode.weight_only or isinstance(x, dict):
            raise Unavailable(f"{name}: it is not compared in mode weight_only, nor for a model called with keywords")
        task = Task(source, x, tuple(batches), mode is Mode.dynamic)
        path = written(name, task, folder)
        return ready(name, task, path, threads), None if path is None else file_bytes(path)

    with torch.inference_mode(False), torch.no_grad():
        quantized = quantized_form(source, batches, mode, None)
        add(FLOAT, lambda: (lambda: source(*x), None))
        add(GRAPH, lambda: (lambda: quantized(*x), None))
        add(PROGRAM, program)
        for name in peers:
            add(name, lambda name=name: peer(name))  # type: ignore[misc]
        with during("timing", progress=True):
            found = alternating([call for _, call, _ in calls], seconds)
    return [_Time(name, ms, size) for (name, _, size), ms in zip(calls, found)]


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[int]:
    import torch

    import zeropoint

    before = torch.get_num_threads(), zeropoint.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
        zeropoint.set_num_threads(count)
    try:
        yield zeropoint.get_num_threads()
    finally:
        torch.set_num_threads(before[0])
        zeropoint.set_num_threads(before[1])
