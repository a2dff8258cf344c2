"""Timing on a noisy machine: competitors take turns, medians are compared, small differences are called ties."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zeropoint.interop.peer_process import Times

TIE = 1.3  # on a shared machine a smaller difference is noise
OURS = "zeropoint"
CALL = Callable[[], object]


def interleaved(calls: Mapping[str, CALL], seconds: float, least_rounds: int) -> dict[str, Times]:
    """Seconds of each call. They take turns, so that a slow moment of the machine hits all of them."""
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
    return {name: Times(tuple(values)) for name, values in times.items()}


@dataclass(frozen=True)
class How:
    """How rows are measured.

    Args:
        without: names of peers.
        seconds: of each row's contenders.
        least_rounds: of each row, in the place of its own.
        realtime: turns of processes have priority over whatever else the machine does.
        threads: of each contender.
        samples: that models are calibrated on, at most.
        scaling: whether whole models of ours also run with one thread.
    """

    without: Sequence[str] = ()
    seconds: float = 2.0
    least_rounds: int | None = None
    realtime: bool = False
    threads: int = 2
    samples: int | None = None
    scaling: bool = False


@dataclass(frozen=True)
class Row:
    """One line of a benchmark: ours against the best peer, the ratio asked for, and the memory limit.

    Args:
        race: measures the row in its own way, with so many calls at least.
        alike: what rows have in common that run the same code of a benchmark; a brief run takes the first of them.
    """

    name: str
    ours: CALL = lambda: None
    peers: Mapping[str, CALL] = field(default_factory=dict)
    targets: Mapping[str, float] = field(default_factory=dict)
    copy: CALL | None = None  # moves as many bytes as `ours` reads and writes
    near_copy: float = 0.0  # the share of the copy's speed that is enough, whatever the peers do
    least_rounds: int = 15
    race: Callable[[Row, How, int], Result] | None = None
    alike: str = ""

    def measure(self, how: How) -> Result:
        """Everybody's times, in turns."""
        least = how.least_rounds or self.least_rounds
        if self.race is not None:
            return self.race(self, how, least)
        row = replace(self, peers={name: call for name, call in self.peers.items() if name not in how.without})
        calls = {OURS: row.ours, **row.peers}
        if row.copy is not None:
            calls["copy"] = row.copy
        return Result(row, interleaved(calls, how.seconds, least))


def made_late(name: str, make: Callable[..., Row], *args: Any, alike: str) -> Row:
    """A row whose models are made when it is measured: a brief run leaves out those that are alike."""
    return Row(name, race=lambda row, how, _: replace(make(*args), name=row.name).measure(how), alike=alike)


@dataclass(frozen=True)
class Result:
    """What was measured.

    Args:
        targets: the ratio asked for, by peer.
        details: lines about the contenders, for people.
        facts: the same for scripts.
        failed: why ours did not take part.
    """

    row: Row
    times: Mapping[str, Times]
    targets: Mapping[str, float] = field(default_factory=dict)
    details: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""

    @property
    def peers(self) -> tuple[str, ...]:
        return () if self.failed else tuple(name for name in self.times if name not in (OURS, "copy"))

    def ratio(self, peer: str) -> float:
        return self.times[peer].median / self.times[OURS].median

    def target(self, peer: str) -> float:
        return self.targets.get(peer, self.row.targets.get(peer, 0.0))

    def verdict(self, peer: str) -> str:
        target, ratio = self.target(peer), self.ratio(peer)
        if ratio >= target:
            return "reached"
        if self.row.near_copy and self.times["copy"].median >= self.row.near_copy * self.times[OURS].median:
            return "near a copy"
        return "tie" if ratio * TIE >= target else "missed"
