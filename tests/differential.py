"""``python tests/differential.py [--count 300] [--first 0] [--seconds 500] [--forms 1]``: random models, in many ways.

Each model is quantized and compiled, or quantized in up to `--forms` ways: to capture it takes most of the time. What
PyTorch gives for the quantized graph is right. The program must give the same bytes on every instruction set of this
CPU, with one thread and with two, for inputs at every alignment, contiguous and channels last, with batches that it was
not made for, in new memory, and after it was saved and loaded.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import golden_programs
import numpy as np
import torch
from random_models import RandomModel

import zeropoint
from zeropoint import _native
from zeropoint.compiler.errors import Unsupported
from zeropoint.graph.workflow import float_graph
from zeropoint.runtime.program import Program

# Names of zeropoint; None is the default of the mode.
_QCONFIGS = {
    "static": (
        None,
        "default_qconfig",
        "default_per_channel_symmetric_qnnpack_qconfig",
        "default_symmetric_qnnpack_qconfig",
        "default_quint8_weight_qconfig",
    ),
    "dynamic": (None, "per_token_dynamic_qconfig", "per_channel_dynamic_qconfig", "float16_dynamic_qconfig"),
    "weight_only": (None,),
}
# Of random models, by their kind.
_MODES = {
    **dict.fromkeys(("sequence", "tokens", "vector"), ("static", "static", "dynamic", "weight_only")),
    "bags": ("static", "weight_only"),  # which stay float in dynamic mode, where they have no step
    "image": ("static", "static", "static", "dynamic"),
    "signal": ("static",),
    "volume": ("static",),
}


@dataclass
class Outcome:
    """What became of a model: "equal", "unsupported" (its operators have no steps), or "wrong", and then why."""

    seed: int
    result: str = "equal"
    words: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    runs: int = 0
    unsupported: str = ""
    decibels: float = float("inf")  # of the quantized graph against the float model
    steps: set[str] = field(default_factory=set)  # kinds that the program has


def _aligned(x: torch.Tensor, offset: int, channels_last: bool) -> np.ndarray[Any, Any]:
    """A copy that begins `offset` elements behind a boundary of 64 bytes."""
    values = x.numpy()
    order = (0, *range(2, values.ndim), 1) if channels_last else tuple(range(values.ndim))
    moved = values.transpose(order)
    room = np.empty(moved.size + 32, values.dtype)
    start = (-room.ctypes.data // room.itemsize) % (64 // room.itemsize) + offset
    placed = room[start : start + moved.size].reshape(moved.shape)
    placed[...] = moved
    return placed.transpose(np.argsort(order))


def _bytes(value: Any) -> list[tuple[tuple[int, ...], bytes]]:
    parts = value if isinstance(value, (list, tuple)) else [value]
    arrays = [np.ascontiguousarray(part.numpy() if isinstance(part, torch.Tensor) else part) for part in parts]
    # Neither the sign nor the payload of a NaN is part of any contract.
    return [(a.shape, np.where(np.isnan(a), np.float32(np.nan), a).tobytes()) for a in arrays]


def _distance(got: Any, want: Any) -> str:
    pairs = zip(*([v] if not isinstance(v, (list, tuple)) else list(v) for v in (got, want)))
    apart = [np.asarray(a, np.float64) - np.asarray(b, np.float64) for a, b in pairs]
    return ", ".join(f"{np.count_nonzero(a)} of {a.size} differ, most {np.abs(a).max(initial=0):.3g}" for a in apart)


def _decibels(got: Any, want: Any) -> float:
    """The least signal-to-noise ratio of the results."""
    pairs = zip(*(list(v) if isinstance(v, tuple) else [v] for v in (got, want)))
    return min(float(20 * torch.log10(w.norm() / (g - w).norm().clamp_min(1e-30))) for g, w in pairs)


def compare(seed: int) -> Outcome:
    """One model in all ways that it can be computed."""
    return _compared(RandomModel(seed), seed, seed)


def compare_forms(seed: int, most: int) -> Iterator[Outcome]:
    """One model, captured once and quantized in up to `most` ways: outcomes of each."""
    model = RandomModel(seed)
    example = model.inputs(2, torch.Generator().manual_seed(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = float_graph(model, example)
    seen: set[tuple[str, str | None]] = set()
    for number in range(seed, seed + 4 * max(map(len, _QCONFIGS.values()))):
        form = _form(model, number)
        if form not in seen and len(seen) < most:
            seen.add(form)
            with mock.patch.object(
                importlib.import_module("zeropoint.graph.to_int8"), "float_graph", return_value=copy.deepcopy(graph)
            ):
                outcome = _compared(model, seed, number)
            yield outcome


def _form(model: RandomModel, number: int) -> tuple[str, str | None]:
    """Mode and qconfig, by a number."""
    modes = _MODES[model.kind]
    mode = modes[number % len(modes)]
    # Convolutions have no weights of 16 bits.
    names = [name for name in _QCONFIGS[mode] if model.has_linear_layers or name != "float16_dynamic_qconfig"]
    return mode, names[number // 4 % len(names)]


def _compared(model: RandomModel, seed: int, number: int) -> Outcome:
    outcome = Outcome(seed)
    outcome.words = [model.kind, *model.words]
    generator = torch.Generator().manual_seed(seed)
    mode, name = _form(model, number)
    example, *batches = [model.inputs(2, generator) for _ in range(3)]
    outcome.words.append(f"{mode}, {name}")
    given: dict[str, Any] = {"calibration": [example, *batches]} if mode == "static" else {}
    if name is not None:
        given["qconfig"] = getattr(zeropoint, name)
    if model.kind in ("tokens", "bags") and mode != "dynamic":
        given["policy"] = {"embedding_bits": (8, 4)[seed % 2]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = zeropoint.to_int8(model, example, mode=mode, progress=False, **given)
        try:
            program = zeropoint.compile(quantized, example)
        except Unsupported as error:
            outcome.result, outcome.unsupported = "unsupported", str(error)
            return outcome
    data = program._native.data()
    outcome.steps = {step["op"] for step in golden_programs.text_of(data)["steps"]}
    with torch.no_grad():
        outcome.decibels = _decibels(quantized(*example), model(*example))

    def tried(called: Program, where: str, x: Any, want: Any, expected: Any) -> None:
        outcome.runs += 1
        got = called(x)
        if _bytes(got) != expected:
            outcome.wrong.append(f"{where}: {_distance(got, want)}")

    threads = zeropoint.get_num_threads()
    try:
        for batch in (2, 1, 3):
            (x,) = model.inputs(batch, generator)
            with torch.no_grad():
                want = quantized(x)
            expected = _bytes(want)
            for level in zeropoint.cpu_info().available:
                with zeropoint.use_isa(level):
                    for count in (1, 2):
                        zeropoint.set_num_threads(count)
                        where = f"batch {batch}, {level}, {count} threads"
                        tried(program, where, x.numpy(), want, expected)
                        tried(program, f"{where}, alignment {seed % 16}", _aligned(x, seed % 16, False), want, expected)
            tried(Program(_native.Program(data)), f"batch {batch}, loaded", x.numpy(), want, expected)
            if x.dim() in (4, 5):
                tried(program, f"batch {batch}, channels last", _aligned(x, 0, True), want, expected)
            for offset in range(16):
                tried(program, f"batch {batch}, alignment {offset}", _aligned(x, offset, False), want, expected)
    finally:
        zeropoint.set_num_threads(threads)
    if outcome.wrong:
        outcome.result = "wrong"
    return outcome


def _tried(seed: int, forms: int) -> Iterator[Outcome]:
    """Outcomes of a model; whatever is raised is one, too."""
    try:
        yield from [compare(seed)] if forms == 1 else compare_forms(seed, forms)
    except Exception as error:
        where = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-5:]]
        text = f"{type(error).__name__}: {str(error)[:300]} ({' '.join(where)})"
        yield Outcome(seed, "error", wrong=[text])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--forms", type=int, default=1, help="ways to quantize each model, which is captured once")
    parser.add_argument("--far", type=float, default=0.0, help="name models whose quantized graph has fewer decibels")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    runs, models, begin = 0, 0, time.monotonic()
    for seed in range(options.first, options.first + options.count):
        if time.monotonic() - begin > options.seconds:
            break
        models += 1
        for outcome in _tried(seed, options.forms):
            found[outcome.result] += 1
            runs += outcome.runs
            kinds.update(outcome.steps)
            if outcome.result in ("wrong", "error"):
                print(f"{outcome.result.upper()} seed {seed}: {'; '.join(outcome.words)}")
                for line in outcome.wrong[:12]:
                    print(f"    {line}")
            if outcome.decibels < options.far:
                print(f"far, seed {seed}: {outcome.decibels:.1f} dB: {'; '.join(outcome.words)}")
            if outcome.result == "unsupported":
                print(f"unsupported, seed {seed}: {outcome.unsupported.splitlines()[0][:200]}")
            sys.stdout.flush()
    print(f"{models} models from seed {options.first}, {sum(found.values())} programs, {dict(found)}, {runs} runs")
    print(f"{len(kinds)} kinds of steps: {', '.join(f'{kind} {n}' for kind, n in kinds.most_common())}")
    print(f"{found['wrong'] + found['error']} wrong")
    return 1 if found["wrong"] + found["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
