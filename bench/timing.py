"""Timing on a noisy machine: competitors take turns, medians are compared, small differences are called ties."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

TIE = 1.3  # on a shared machine a smaller difference is noise
CALL = Callable[[], object]


def interleaved(calls: Mapping[str, CALL], seconds: float, least_rounds: int) -> dict[str, float]:
    """Median seconds of each call. They take turns, so that a slow moment of the machine hits all of them."""
    for call in calls.values():
        call()
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < least_rounds or time.perf_counter() < end:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
        rounds += 1
    return {name: statistics.median(values) for name, values in times.items()}


@dataclass(frozen=True)
class Row:
    """One line of a benchmark: ours against the best peer, the ratio asked for, and the memory limit.

    Args:
        make: makes all but the name, without some peers, when the row is wanted: for what takes long to set up.
    """

    name: str
    ours: CALL = lambda: None
    peers: Mapping[str, CALL] = field(default_factory=dict)
    targets: Mapping[str, float] = field(default_factory=dict)
    copy: CALL | None = None  # moves as many bytes as `ours` reads and writes
    near_copy: float = 0.0  # the share of the copy's speed that is enough, whatever the peers do
    details: tuple[str, ...] = ()  # lines about the contenders
    least_rounds: int = 15
    make: Callable[[Sequence[str]], Row] | None = None

    def ready(self, without: Sequence[str]) -> Row:
        """The row with everything it needs."""
        if self.make is not None:
            return replace(self.make(without), name=self.name, least_rounds=self.least_rounds)
        kept = {name: call for name, call in self.peers.items() if name not in without}
        return replace(self, peers=kept)


@dataclass(frozen=True)
class Result:
    row: Row
    seconds: Mapping[str, float]

    def ratio(self, peer: str) -> float:
        return self.seconds[peer] / self.seconds["zeropoint"]

    def verdict(self, peer: str) -> str:
        target, ratio = self.row.targets[peer], self.ratio(peer)
        if ratio >= target:
            return "reached"
        if self.row.near_copy and self.seconds["copy"] >= self.row.near_copy * self.seconds["zeropoint"]:
            return "near a copy"
        return "tie" if ratio * TIE >= target else "missed"


def measure(row: Row, seconds: float, least_rounds: int) -> Result:
    calls = {"zeropoint": row.ours, **row.peers}
    if row.copy is not None:
        calls["copy"] = row.copy
    return Result(row, interleaved(calls, seconds, least_rounds))
