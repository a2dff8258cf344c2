"""Where the time of a quantized model goes."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from zeropoint.comparison.graph_pairs import steps
from zeropoint.cpu import get_num_threads
from zeropoint.graph.provenance import origin
from zeropoint.graph.to_int8 import call_of
from zeropoint.graph.workflow import Quantized
from zeropoint.interop.peer_process import Contender, InThisProcess, Turns, take_turns
from zeropoint.interop.peers import OURS
from zeropoint.interop.tasks import Unavailable


@dataclass(frozen=True)
class Step:
    """One step of a quantized model: its origin, its median time, its multiply-accumulates per second, their share of
    the peak of the machine, and its bottleneck."""

    name: str
    path: str
    operator: str
    milliseconds: float
    gmacs: float = 0.0
    of_peak: float | None = None
    limit: str = ""


def alternating(calls: list[Callable[[], object]], seconds: float, least: int = 5) -> list[float]:
    """Median milliseconds of each; they take turns, so that a slow moment hits all.

    Example:
        >>> [quick] = alternating([lambda: None], seconds=0.0)
        >>> quick < 100
        True
    """
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < least:
        for call, spent in zip(calls, times):
            start = time.perf_counter()
            call()
            spent.append(time.perf_counter() - start)
    return [1e3 * statistics.median(spent) for spent in times]


def float_and_deployed(model: Any, deployed: Any, batch: Any, seconds: float = 0.2) -> tuple[float, float]:
    """Median milliseconds of a model and of what is deployed of it, in turns, as `zeropoint bench` measures them.

    A program runs in a process without PyTorch, if there is time for one, it can be started, and no step needs PyTorch.
    """
    args, kwargs = call_of(batch)
    both: list[Turns] = [InThisProcess("float", lambda: model(*args, **kwargs))]
    with torch.inference_mode(), contextlib.ExitStack() as stack:
        if (
            seconds > 0
            and hasattr(deployed, "save")
            and not kwargs
            and all(isinstance(value, Tensor) for value in args)
        ):
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "program.zpt"
            arrays = tuple(value.numpy() for value in args)
            with contextlib.suppress(Unavailable, OSError):
                deployed.save(path)
                both.append(stack.enter_context(Contender(OURS, path, arrays, get_num_threads())))
        if len(both) == 1:
            both.append(InThisProcess("quantized", lambda: deployed(*args, **kwargs)))
        found, _ = take_turns(both, seconds, 3, most_seconds=5 * seconds)
    before, after = (1e3 * times.median for times in found.values())
    return before, after


def step_times(quantized: nn.Module, batch: Any, repeats: int = 7) -> tuple[Step, ...]:
    """Median times of the steps of what `to_int8` or `convert_graph` made; nothing for other models.

    Example:
        >>> import zeropoint
        >>> model = nn.Sequential(nn.Linear(4, 2)).eval()
        >>> quantized = zeropoint.to_int8(model, (torch.ones(1, 4),), progress=False)
        >>> [step.operator for step in step_times(quantized, torch.ones(1, 4))]
        ['quantize_per_tensor', 'linear_to_float']
    """
    args, kwargs = call_of(batch)
    if not isinstance(quantized, Quantized) or kwargs:
        return ()
    inputs = pytree.tree_leaves(args)
    spent: dict[Any, list[float]] = {}
    with torch.no_grad():
        for _ in range(repeats):
            start = time.perf_counter()
            for node, _values in steps(quantized.graph_module, inputs):
                now = time.perf_counter()
                if node.op == "call_function":
                    spent.setdefault(node, []).append(now - start)
                start = time.perf_counter()
    return tuple(
        Step(
            node.name, origin(node).path if node.meta.get("origin") else "", _operator(node), 1e3 * statistics.median(t)
        )
        for node, t in spent.items()
    )


def program_times(
    program: Any, inputs: tuple[Any, ...], paths: dict[str, str]
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Median times of the steps of a program, with the nodes and the modules that they came from; and why it is not
    quicker, in sentences.

    Args:
        paths: modules by the names of nodes, for graphs whose nodes do not say it (TorchScript).
    """
    profile = program.profile(*inputs, runs=5)
    steps = []
    for row, limit in zip(profile, profile.limits):
        name = program.nodes.get(row.name, row.name)
        numbers = 1e3 * row.seconds, row.gmacs, limit.of_peak, limit.kind
        steps.append(Step(name, row.path or paths.get(name, ""), row.op, *numbers))
    return tuple(steps), profile.advice


def _operator(node: Any) -> str:
    schema = getattr(node.target, "_schema", None)
    return schema.name.split("::")[-1] if schema is not None else getattr(node.target, "__name__", str(node.target))
