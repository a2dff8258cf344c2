"""Compiled programs against everything that ships 8-bit models on CPUs today (src/zeropoint/interop/peers.py).

Each row is one model and batch size. Every contender has a process of its own and the settings it is quickest with;
they take turns on the same input. Under a row: ours in GMAC/s and as a part of the instruction's peak, measured in the
same run, and what limits it; and for everybody how alike the result is to that of the float model (cosine), what is
deployed (MB), seconds to load it (imports included), the time of the first call, the most memory, and the setting. A
peer whose file is not about a quarter of the float one is marked: it has not quantized everything.

`torch.compile` takes minutes for these models: ``--without slow`` leaves it out, ``--without peers`` all of them,
and ``--only`` chooses rows.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import zeropoint
from bench import models, vision
from bench.timing import OURS, How, Result, Row
from zeropoint.interop.peer_process import Contender, priority, take_turns
from zeropoint.interop.peers import FLOAT, PEERS, SLOW, file_bytes, is_quantized, written
from zeropoint.interop.tasks import Task, Unavailable, first_line

Inputs = Callable[[int], tuple[Tensor, ...]]


def floats(*shape: int) -> Inputs:
    return lambda batch: (torch.randn(batch, *shape),)


def bags(batch: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, 100_000, (batch, 20)),)


def token(batch: int) -> tuple[Tensor, ...]:
    """A word behind 128 others."""
    d = models.Decoder
    before = (d.LAYERS, batch, d.HEADS, 128, d.WIDTH // d.HEADS)
    return torch.randint(0, d.WORDS, (batch, 1)), torch.randn(before), torch.randn(before)


@dataclass(frozen=True)
class Case:
    """A model, what it is called with, and how it is quantized.

    Args:
        asked_amx: the ratio that is asked of us where there is AMX; elsewhere 1.
        samples: for calibration.
        like: a model that is quantized in the same way, which a brief run takes instead.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Inputs
    batches: tuple[int, ...] = (1, 16)
    asked_amx: float = 1.5
    dynamic: bool = False
    weight_bits: int | None = None
    samples: int = 64
    like: str = ""


RESNET, MINILM, GPT2 = "ResNet-18 224x224", "MiniLM encoder, 128 tokens", "GPT-2 small, one token, int8 weights"
CASES = (
    Case(RESNET, models.resnet18, floats(3, 224, 224), asked_amx=2.0),
    Case("MobileNetV2 ReLU6 224x224", models.mobilenet_v2_relu6, floats(3, 224, 224), like=RESNET),
    Case("EfficientNet-B0 224x224", vision.efficientnet_b0, floats(3, 224, 224), like=RESNET),
    Case("YOLO-like 640x640", vision.Detector, floats(3, 640, 640), (1,), samples=4, like=RESNET),
    Case("U-Net 256x256", vision.UNet, floats(3, 256, 256), (1,), samples=8, like=RESNET),
    Case(MINILM, models.encoder, floats(128, 384), asked_amx=2.0),
    Case(
        "BERT-base encoder, 384 tokens", models.bert_base, floats(384, 768), (1,), asked_amx=2.0, samples=8, like=MINILM
    ),
    Case("voice encoder LSTM, 160 frames", models.VoiceEncoder, floats(160, 40), dynamic=True),
    Case("voice encoder GRU, 160 frames", models.VoiceEncoderGru, floats(160, 40), dynamic=True),
    Case("MLP 784-512-512-10", models.mlp, floats(784), asked_amx=2.0),
    Case("CREPE full", models.Crepe, floats(1024), like=RESNET),
    Case("embedding bags of 20, 100000x128", models.Bags, bags, (64,), weight_bits=8),
    Case(GPT2, models.Decoder, token, (1,), weight_bits=8),
    Case("GPT-2 small, one token, int4 weights", models.Decoder, token, (1,), weight_bits=4, like=GPT2),
)
ALONE = "zeropoint, one thread"
ROUNDS = 30  # times that each contender is run, at least


def rows() -> Iterator[Row]:
    amx = zeropoint.cpu_info().isa == "amx"
    threads = torch.get_num_threads()
    for case in CASES:
        for batch in case.batches:
            name = f"{case.name}, batch {batch}, {threads} thread{'s' * (threads > 1)}"
            race = functools.partial(_race, case, batch, case.asked_amx if amx else 1.0)
            yield Row(name, least_rounds=ROUNDS, race=race, alike=case.like or case.name)


def _race(case: Case, batch: int, asked: float, row: Row, how: How, least: int) -> Result:
    return race(task(case, batch, how.samples), asked, row, how, least)


def race(
    task: Task,
    asked: float,
    row: Row,
    how: How,
    least: int,
    write: Callable[[str, Task, Path], Path] | None = None,
    judge: Callable[[Path], dict[str, Any]] | None = None,
) -> Result:
    """Time all contenders on one task, in turns.

    Args:
        write: makes the file of a contender; `written` if none is given.
        judge: more facts about our file, such as its score on a task.
    """
    threads = how.threads
    with torch.no_grad():
        wanted = pytree.tree_leaves(task.model(*task.inputs))[0]
    details: list[str] = []
    known: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as open_ones, tempfile.TemporaryDirectory() as folder:
        contenders = []
        for name in _contenders(how.without):
            try:
                path = (write or written)(name, task, Path(folder))
                one = open_ones.enter_context(Contender(name, path, task.arrays, threads, how.realtime))
                known[name] = _facts(one, path, wanted, task)
                if name == OURS and how.scaling and threads > 1:
                    alone = open_ones.enter_context(Contender(name, path, task.arrays, 1, how.realtime))
                    alone.name = ALONE
                    contenders.append(alone)
                if name == OURS:
                    with priority(how.realtime):
                        known[name] |= _work(path, task)
                    known[name] |= judge(path) if judge is not None else {}
                contenders.append(one)
            except Unavailable as reason:
                known[name] = {"left_out": str(reason)}
            except Exception as error:
                known[name] = {"left_out": f"{name}: {type(error).__name__}: {first_line(error)}"}
        times, fallen = take_turns(contenders, how.seconds, least)
    for name, reason in fallen.items():
        known[name] = {"left_out": str(reason)}
    alone_times = times.pop(ALONE, None)
    if OURS in times:
        known[OURS] |= _speed(known[OURS], times[OURS].median)
        if alone_times is not None:
            known[OURS] |= _scaling(alone_times.median, times[OURS].median, threads)
    details = [f"{name:<22} {_words(facts)}" for name, facts in known.items()]
    failed = "" if OURS in times else known.get(OURS, {}).get("left_out", "it was left out")
    return Result(row, times, dict.fromkeys(times, asked), tuple(details), {"contenders": known}, failed)


def _contenders(without: Sequence[str]) -> list[str]:
    """Us, and the peers that are not left out, by name or in one word."""
    left_out = {*without, *(SLOW if "slow" in without else ()), *(PEERS if "peers" in without else ())}
    return [name for name in PEERS if name == OURS or name not in left_out]


def task(case: Case, batch: int, most: int | None) -> Task:
    """A case with one batch size, calibrated on at most so many samples."""
    torch.manual_seed(0)
    model = case.make().eval()
    samples = case.samples if most is None else min(case.samples, most)
    calibration = tuple(case.inputs(batch) for _ in range(max(1, samples // batch)))
    return Task(model, case.inputs(batch), calibration, case.dynamic, case.weight_bits)


def with_float_graph(name: str, task: Task, folder: Path) -> Path:
    """`written`, with the float model as a file of torch.export: not all packages import elsewhere."""
    if name != FLOAT:
        return written(name, task, folder)
    path = folder / "float.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(task.model, task.inputs), path)
    return path


def _facts(one: Contender, path: Path, wanted: Tensor, task: Task) -> dict[str, Any]:
    found, size = one.footprint, file_bytes(path)
    floats = sum(p.numel() * p.element_size() for p in task.model.parameters())
    return {
        "cosine": cosine(one.result(), wanted),
        "bytes": size,
        "quantized": is_quantized(one.name, size, floats),
        "load": found.load,
        "first": found.first,
        "peak": found.peak,
        "setting": found.setting,
    }


def _work(path: Path, task: Task) -> dict[str, Any]:
    """What a run of ours does, and what limits it."""
    profile = zeropoint.runtime.load(path).profile(*task.arrays, runs=5)
    stored = sum({row.step: row.stored for row in profile if row.macs}.values())
    limits: dict[str, float] = {}
    for row, limit in zip(profile, profile.limits):
        limits[limit.kind] = limits.get(limit.kind, 0.0) + row.seconds / (profile.seconds or 1.0)
    macs = sum(row.macs for row in profile)
    peak = sum(
        row.macs / row.work(profile.here, 0).peak for row in profile if row.macs and row.work(profile.here, 0).peak
    )
    return {"macs": macs, "at_peak": peak / profile.here.cores, "stored": stored, "limits": limits}


def _speed(facts: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {
        "gmacs": facts["macs"] / seconds / 1e9,
        "of_peak": facts["at_peak"] / seconds,
        "weights_gb_per_second": facts["stored"] / seconds / 1e9,
    }


def _scaling(alone: float, together: float, threads: int) -> dict[str, float]:
    """How much quicker threads are than one, and the share of its time that then is not divided: Amdahl's law."""
    share = (threads * together / alone - 1) / (threads - 1)
    return {"one_thread_ms": 1e3 * alone, "of_one_thread": alone / together, "undivided": share}


def _words(facts: dict[str, Any]) -> str:
    if "left_out" in facts:
        return f"left out: {facts['left_out']}"
    text = (
        f"cosine {facts['cosine']:.5f} {facts['bytes'] / 1e6:8.2f} MB   loads in {facts['load']:6.3f} s,"
        f" first call {1e3 * facts['first']:8.2f} ms, peak memory {facts['peak'] / 1e6:6.0f} MB; {facts['setting']}"
    )
    if not facts["quantized"]:
        text += "; NOT A QUARTER of the float file: layers stay in float"
    if "gmacs" in facts:
        ranked = sorted(facts["limits"].items(), key=lambda item: -item[1])
        limits = ", ".join(f"{kind} {share:.0%}" for kind, share in ranked if share >= 0.05)
        text += (
            f"\n    {'':<22} {facts['macs'] / 1e9:.4f} GMAC, {facts['gmacs']:.0f} GMAC/s,"
            f" {facts['of_peak']:.0%} of the peak; weights {facts['weights_gb_per_second']:.1f} GB/s;"
            f" time limited by {limits}"
        )
    if "of_one_thread" in facts:
        text += f"; {facts['of_one_thread']:.2f}x one thread, {facts['undivided']:.0%} of whose time is not divided"
    return text


def cosine(result: Any, wanted: Tensor) -> float:
    """How alike a result is to that of the float model, over all of it."""
    found = torch.from_numpy(result).flatten().double()
    return float(nn.functional.cosine_similarity(found, wanted.flatten().double(), 0))
