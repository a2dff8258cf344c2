"""zeropoint bench"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from zeropoint.cli.data import Batch, Data, Samples, load_tensors
from zeropoint.cli.models import Model, Pickle, load_model
from zeropoint.cli.output import AsJson, note, show, work
from zeropoint.cli.programs import compiled
from zeropoint.cli.quantize import Mode, quantized_form

__all__ = ["bench"]

HEADER = ("runs as", "milliseconds", "against float32")


def bench(
    model: Model,
    data: Data,
    mode: Annotated[Mode, typer.Option("--mode", "-m", help="How it is quantized.")] = Mode.static,
    threads: Annotated[
        int | None, typer.Option("--threads", "-t", min=1, help="For everybody; all CPUs by default.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="To spend on timing.")] = 5.0,
    compare_compiled: Annotated[
        bool, typer.Option("--compile", help="Also torch.compile, which needs a C++ compiler.")
    ] = False,
    batch: Batch = 1,
    samples: Samples = 32,
    pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Time a model in float, quantized by zeropoint, and by what else is installed; all take turns in one run."""
    with work(as_json):
        source = load_model(model, pickle)
        batches = load_tensors(data, source, batch, samples)
        with _threads(threads) as used:
            times = _times(source, batches, mode, seconds, compare_compiled)
        first = times[0][1]
        from zeropoint.report.table import rich_table

        rows = [(name, f"{ms:.3f}", f"{first / ms:.2f}x") for name, ms in times]
        results = [{"runs_as": name, "milliseconds": ms} for name, ms in times]
        show(rich_table(HEADER, rows), {"threads": used, "batch": len(batches[0][0]), "results": results}, as_json)


def _times(source: Any, batches: list[Any], mode: Mode, seconds: float, with_compile: bool) -> list[tuple[str, float]]:
    import torch

    from zeropoint.report.timing import alternating

    calls: list[tuple[str, Callable[[], object]]] = []
    x = batches[0]

    def add(name: str, make: Callable[[], Any]) -> None:
        try:
            made = make()
            made(*x)
            calls.append((name, lambda: made(*x)))
        except Exception as error:  # a peer that cannot take the model is no failure of ours
            note(f"{name}: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}")

    with torch.inference_mode(False), torch.no_grad():
        quantized = quantized_form(source, batches, mode, None)
        add("float32, torch", lambda: source)
        add("int8, zeropoint graph", lambda: quantized)
        add("int8, zeropoint program", lambda: compiled(quantized, x))
        if mode is Mode.static:
            add("int8, torch.ao", lambda: _torch_ao(source, batches))
        if with_compile:
            add("float32, torch.compile", lambda: torch.compile(source))
        found = alternating([call for _, call in calls], seconds)
    return [(name, ms) for (name, _), ms in zip(calls, found)]


def _torch_ao(source: Any, batches: list[Any]) -> Any:
    from zeropoint.interop import torch_ao

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch_ao.quantize_graph(source, batches)


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
