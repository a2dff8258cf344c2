"""python -m bench.calibration_at_scale: what calibration on many workers costs, as a Markdown table.

Two numbers are measured: the bytes of the observations of a network, and the time to merge two of them. The rest is
computed: workers merge in a tree, in which a node receives over a link of one gigabit.
"""

from __future__ import annotations

import copy
import math
import pickle
import statistics
import time
from dataclasses import dataclass

import torch
from torch import nn

import zeropoint
from zeropoint.distributed import Observations, merge_observations, observe
from zeropoint.observers import HistogramObserver, MinMaxObserver

LAYERS = 24  # of the network that is measured
OBSERVERS = 100  # of the network that the table is for
LINK = 1e9 / 8  # bytes in a second, of one gigabit
WORKERS = (10, 100, 1000)
FAN_IN = (2, 10)


@dataclass(frozen=True)
class Cost:
    """Of bringing the observations of all workers to one place.

    Args:
        depth: levels of the tree.
        received: bytes that one node has at most.
        total: bytes that cross the network.
        seconds: from the last worker's end to the result.
    """

    depth: int
    received: float
    total: float
    seconds: float


def tree(workers: int, fan_in: int, size: float, merge: float, link: float = LINK) -> Cost:
    """A tree in which one of `fan_in` nodes receives from the others, and merges what it received with its own.

    Args:
        size: bytes of the observations of one worker; those that were merged have as many.
        merge: seconds to merge two.
        link: bytes in a second that a node receives.
    """
    depth = math.ceil(round(math.log(workers, fan_in), 9)) if workers > 1 else 0
    others = min(fan_in, workers) - 1 if depth else 0
    return Cost(depth, others * size, (workers - 1) * size, depth * others * (size / link + merge))


def measured(observer: type[nn.Module]) -> tuple[int, float, int]:
    """Bytes of the observations of a network, seconds to merge two of them, and how many observers they have."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(LAYERS))).eval()
    weight = zeropoint.get_default_qconfig("native").weight
    mapping = zeropoint.QConfigMapping().set_global(zeropoint.QConfig(observer, weight))
    prepared = zeropoint.prepare_graph(model, mapping, (torch.ones(2, 64),))
    one, two = (observe(prepared, [torch.randn(64, 64) * (1 + i)]) for i in range(2))
    return len(pickle.dumps(one)), statistics.median(_seconds(one, two) for _ in range(9)), len(one.observers)


def _seconds(one: Observations, two: Observations) -> float:
    first = copy.deepcopy(one)
    begin = time.perf_counter()
    merge_observations(first, two)
    return time.perf_counter() - begin


if __name__ == "__main__":
    torch.set_num_threads(1)
    for kind in (HistogramObserver, MinMaxObserver):
        size, merge, count = measured(kind)
        print(f"{kind.__name__}: {size / count / 1e3:.1f} kB each, merged in {merge / count * 1e3:.2f} ms\n")
        print("| workers | fan-in | depth | one node receives in a level | all | time |\n|---|---|---|---|---|---|")
        for workers in WORKERS:
            for fan_in in sorted({*FAN_IN, workers}):
                cost = tree(workers, fan_in, size / count * OBSERVERS, merge / count * OBSERVERS)
                sizes = f"{cost.received / 1e6:.1f} MB | {cost.total / 1e6:.0f} MB"
                print(f"| {workers} | {fan_in} | {cost.depth} | {sizes} | {cost.seconds:.2f} s |")
        print()
