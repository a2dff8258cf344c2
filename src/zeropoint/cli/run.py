"""zeropoint run"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from zeropoint.atomic_file import replacing
from zeropoint.cli.data import Batch, Data, Samples, as_tensors, load_batches, sample_count
from zeropoint.cli.models import Model, Pickle, fixed_batch, load_model
from zeropoint.cli.named import is_named
from zeropoint.cli.output import AsJson, note, show, work
from zeropoint.cli.paths import require_other, writable


def run(
    model: Model,
    data: Data,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .npy or .npz file for the outputs.", callback=writable(".npy", ".npz")),
    ] = None,
    batch: Batch = 8,
    samples: Samples = 1_000_000,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Also show the time and the bottleneck of each step of a program."),
    ] = False,
    pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Run a model on data and save the outputs. A .zpt program runs without PyTorch."""
    if profile and not model.endswith(".zpt"):
        raise typer.BadParameter(f"--profile needs a .zpt program, got {model}: create one with zeropoint quantize")
    require_other(output, model, data)
    with work(as_json):
        source = load_model(model, pickle)
        batches = load_batches(data, source, batch, samples, rest=True)
        size = None if is_named(data) else fixed_batch(source)
        rest = sample_count(batches[-1])
        if size is not None and rest < size:
            batches[-1] = _filled(batches[-1], size)
        if model.endswith(".zpt"):
            results = [_arrays(source(*b)) for b in batches]
        else:
            results = _run_torch(source, batches)
        if size is not None and rest < size:
            results[-1] = _of_first(results[-1], rest, size)
        found = source.profile(*batches[0]) if profile else None
        joined = [np.concatenate(parts) for parts in zip(*results)]
        if output is not None:
            _write(output, joined)
        facts = [
            {"shape": list(a.shape), "dtype": str(a.dtype), "low": float(a.min()), "high": float(a.max())}
            for a in joined
        ]
        lines = [f"{f['dtype']}{f['shape']} from {f['low']:.4g} to {f['high']:.4g}" for f in facts]
        if output is not None:
            lines.append(f"wrote {output}")
        told: dict[str, Any] = {"results": facts, "output": None if output is None else str(output)}
        if found is not None:
            lines += ["", str(found)]
            told["profile"] = _profile_facts(found)
        show("\n".join(lines), told, as_json)


def _profile_facts(profile: Any) -> dict[str, Any]:
    steps = [
        {
            "op": row.op,
            "name": row.name,
            "microseconds": row.seconds * 1e6,
            "gmacs": row.gmacs,
            "precision": row.precision,
        }
        | {"of_peak": limit.of_peak, "limit": limit.kind}
        for row, limit in zip(profile, profile.limits)
    ]
    return {"microseconds": profile.seconds * 1e6, "steps": steps, "advice": list(profile.advice)}


def _run_torch(model: Any, batches: list[Any]) -> list[list[Any]]:
    import torch

    from zeropoint.graph.to_int8 import call_of

    results = []
    with torch.inference_mode():
        for b in batches:
            args, kwargs = call_of(as_tensors(b))
            results.append(_arrays(model(*args, **kwargs)))
    return results


def _filled(batch: Any, size: int) -> Any:
    """A batch with copies of its last sample up to the size that the model has fixed."""
    return tuple(np.concatenate([v, np.repeat(v[-1:], size - len(v), axis=0)]) for v in batch)


def _of_first(arrays: list[Any], count: int, size: int) -> list[Any]:
    """The results of the first samples of a filled batch."""
    if any(array.ndim == 0 or len(array) != size for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise ValueError(
            f"the model has a fixed batch size of {size}, the last batch has {count} samples, and results of shape "
            f"{shapes} cannot be cut to them: pass a multiple of {size} samples, as with --samples"
        )
    note(f"the model has a fixed batch size of {size}: the last {count} samples ran with copies of the last one")
    return [array[:count] for array in arrays]


def _arrays(value: Any) -> list[Any]:
    """What a model gave, as arrays."""
    if hasattr(value, "dtype"):
        return [np.asarray(value)]
    parts = value.values() if hasattr(value, "values") else value
    return [array for part in parts for array in _arrays(part)]


def _write(path: Path, arrays: list[Any]) -> None:
    if path.suffix != ".npz" and len(arrays) != 1:
        raise ValueError(f"the model returns {len(arrays)} arrays: use an output that ends in .npz")
    with replacing(path) as new, new.open("wb") as file:
        if path.suffix == ".npz":
            np.savez(file, *arrays)
        else:
            np.save(file, arrays[0])
