"""zeropoint bench"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from zeropoint.cli.data import Batch, Data, Samples, load_tensors
from zeropoint.cli.models import Model, Pickle, load_float
from zeropoint.cli.output import AsJson, note, show, work
from zeropoint.cli.programs import compiled
from zeropoint.cli.quantize import Mode, quantized_form
from zeropoint.interop.peer_process import Contender, InThisProcess, Times, Turns, take_turns
from zeropoint.progress import during

HEADER = ("runs as", "milliseconds", "quartiles", "against float32", "file, MB", "setting")
LEAST = 5  # calls of each
FLOAT, GRAPH, PROGRAM = "torch float32", "zeropoint graph", "zeropoint program"


def bench(
    model: Model,
    data: Data,
    mode: Annotated[Mode, typer.Option("--mode", "-m", help="Quantization mode.")] = Mode.static,
    threads: Annotated[
        int | None, typer.Option("--threads", "-t", min=1, help="Threads for all runtimes; by default all CPUs.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="Time to spend on each measurement.")] = 5.0,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="NAME", help="Skip a runtime; can be repeated.")
    ] = None,
    compare_compiled: Annotated[
        bool, typer.Option("--compile", help="Also torch.compile and torchao; takes minutes and needs a C++ compiler.")
    ] = False,
    batch: Batch = 1,
    samples: Samples = 32,
    pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Compare the speed of the float model, zeropoint, and other installed runtimes, interleaved in one run.

    Each has a process of its own, and the settings that it is quickest with. Peers: torch.ao, ONNX Runtime, OpenVINO
    with NNCF. What is not installed, or cannot take the model, is named with the reason. At the end: why the program is
    not quicker.
    """
    from zeropoint.interop.peers import OURS, PEERS, SLOW, keep_from_masked_amx

    left_out = set(without or ())
    if left_out - set(PEERS):
        raise typer.BadParameter(f"--without accepts {', '.join(PEERS)}, got {', '.join(left_out - set(PEERS))}")
    with work(as_json):
        words = keep_from_masked_amx()
        if words:
            note(words)
        if not compare_compiled:
            left_out.update(SLOW)
        source = load_float(model, pickle)
        batches = load_tensors(data, source, batch, samples)
        peers = [name for name in PEERS if name not in (OURS, FLOAT) and name not in left_out]
        with _threads(threads) as used, tempfile.TemporaryDirectory() as folder:
            found, advice = _times(source, batches, mode, peers, Path(folder), used, seconds)
        from zeropoint.table import rich_table

        first = found[0].times.median
        rows = [
            (
                t.name,
                f"{1e3 * t.times.median:.3f}",
                " ".join(f"{1e3 * q:.3f}" for q in t.times.quartiles),
                f"{first / t.times.median:.2f}x",
                f"{t.size / 1e6:.2f}" if t.size else "",
                t.setting,
            )
            for t in found
        ]
        results = [
            {"runs_as": t.name, "milliseconds": 1e3 * t.times.median, "bytes": t.size, "setting": t.setting}
            | {"quartiles": [1e3 * q for q in t.times.quartiles]}
            for t in found
        ]
        facts = {"threads": used, "batch": len(batches[0][0]), "results": results, "advice": list(advice)}
        show(Group(rich_table(HEADER, rows), *advice), facts, as_json)


@dataclass(frozen=True)
class _Time:
    name: str
    times: Times
    size: int | None  # of the file
    setting: str


def _times(
    source: Any, batches: list[Any], mode: Mode, peers: list[str], folder: Path, threads: int, seconds: float
) -> tuple[list[_Time], tuple[str, ...]]:
    import torch

    from zeropoint.interop.peers import OURS, file_bytes, is_quantized, written
    from zeropoint.interop.tasks import Task, Unavailable, first_line

    x = batches[0]
    sizes: dict[str, int] = {}
    settings = {GRAPH: "in PyTorch"}
    contenders: list[Turns] = []

    def add(name: str, peer: str, write: Callable[[], Path]) -> None:
        try:
            with during(name, progress=True):
                path = write()
                one = processes.enter_context(Contender(peer, path, tuple(t.numpy() for t in x), threads))
        except Unavailable as reason:
            return note(f"skipped: {reason}")
        except Exception as error:  # a peer that cannot take the model is no failure of the command
            return note(f"skipped: {name}: {first_line(error)}")
        one.name = name
        sizes[name], settings[name] = file_bytes(path), one.footprint.setting
        if not is_quantized(peer, sizes[name], sizes.get(FLOAT, 0) or sizes[name]):
            note(f"{name}: its file has {sizes[name] / 1e6:.1f} MB of {sizes[FLOAT] / 1e6:.1f}: not all is quantized")
        contenders.append(one)

    def saved(program: Any) -> Path:
        program.save(folder / "model.zpt")
        return folder / "model.zpt"

    if isinstance(x, dict):
        raise ValueError("bench supports models with positional inputs; this one takes keyword inputs")
    task = Task(source, x, tuple(batches), mode is Mode.dynamic, 8 if mode is Mode.weight_only else None)
    with torch.inference_mode(False), torch.no_grad(), contextlib.ExitStack() as processes:
        quantized = quantized_form(source, batches, mode, None)
        program = compiled(quantized, x)
        add(FLOAT, FLOAT, lambda: written(FLOAT, task, folder))
        contenders.append(InThisProcess(GRAPH, lambda: quantized(*x)))
        add(PROGRAM, OURS, lambda: saved(program))
        for name in peers:
            add(name, name, lambda name=name: written(name, task, folder))  # type: ignore[misc]
        with during("timing", progress=True):
            found, fallen = take_turns(contenders, seconds / len(contenders), LEAST)
        for reason in fallen.values():
            note(f"skipped: {reason}")
        advice = program.profile(*x).advice
    return [_Time(name, times, sizes.get(name), settings[name]) for name, times in found.items()], advice


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
