"""zeropoint run"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from zeropoint.atomic_file import replacing
from zeropoint.cli.data import Batch, Data, Samples, load_batches, load_tensors
from zeropoint.cli.models import Model, Pickle, load_model
from zeropoint.cli.output import AsJson, show, work
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
        found = None
        if model.endswith(".zpt"):
            batches = load_batches(data, source, batch, samples)
            results = [_arrays(source(*b)) for b in batches]
            found = source.profile(*batches[0]) if profile else None
        else:
            results = _run_torch(source, load_tensors(data, source, batch, samples))
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
            args, kwargs = call_of(b)
            results.append(_arrays(model(*args, **kwargs)))
    return results


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
