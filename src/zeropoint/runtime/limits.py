"""What keeps a step from being quicker: a pure function of its sizes, its time and the machine."""

from __future__ import annotations

from dataclasses import dataclass

from zeropoint.cpu import Machine, Peaks, cpu_info, get_num_threads, peaks

NEAR = 0.5  # a step this near to what the machine can do is held back by that
STEP_SECONDS = 5e-7  # what a step costs that does nothing: its addresses, one call
FEW = 6  # a step that takes fewer times the fixed costs is made of them
PART_SECONDS = 2e-6  # the shortest part of a step that is given to a thread (native/cpu/machine.h)


@dataclass(frozen=True)
class Host:
    """The machine that a profile was made on, and how many threads took part."""

    threads: int
    machine: Machine
    peaks: Peaks

    @classmethod
    def now(cls) -> Host:
        """This machine; its peaks are measured on the first call."""
        return cls(get_num_threads(), cpu_info().machine, peaks())

    @property
    def cores(self) -> int:
        """Cores at work: threads beyond them share theirs."""
        return min(self.threads, self.machine.cores)


@dataclass(frozen=True)
class Work:
    """What one step does.

    Args:
        macs: its multiplications, and `peak` how many of them one thread does in a second at most; 0 if unknown.
        stored: bytes of weights, and `all_stored` those of the whole program, which is read in every run.
        moved: bytes of its other inputs and of its outputs.
    """

    seconds: float
    macs: float
    peak: float
    stored: int
    all_stored: int
    moved: int


@dataclass(frozen=True)
class Limit:
    """What holds a step back: ``compute``, ``L2``, ``L3``, ``memory``, ``threads`` or ``overhead``.

    Args:
        of_peak: how much of what all threads can multiply at most was multiplied; None without multiplications. Those
            of the definition count: a convolution that needs fewer, by Winograd's algorithm, may be above 1.
        of_reading: how much of what the caches, or memory, can deliver was needed.
    """

    kind: str
    of_peak: float | None
    of_reading: float


def limit_of(work: Work, here: Host) -> Limit:
    """What keeps this step from being quicker.

    It is near to what the instruction can do (``compute``), or to what a cache or memory can deliver. Else it is too
    short for anything but the cost of starting it (``overhead``), or too small for all threads (``threads``). Else the
    kernel is slower than the machine: the limit is what it needs most of; `of_peak` tells how far away it is.

    Example:
        >>> machine = Machine(32768, 2**20, 2**25, 2, 2, 2, 2, "assumed")
        >>> here = Host(1, machine, Peaks({"vnni": 2e11}, 5e10, 2e11, 1e11, 1e11, 4e10, 4e10, 2e-7, 2e-5))
        >>> limit_of(Work(1e-3, 1.8e8, 2e11, 1000, 1000, 1000), here).kind
        'compute'
    """
    seconds = max(work.seconds, 1e-12)
    computing = work.macs / (work.peak * here.cores) if work.peak else 0.0
    where, reading = _reading(work, here)
    of_peak = computing / seconds if work.peak and work.macs else None
    of_reading = reading / seconds
    most = "compute" if computing >= reading or (of_reading < NEAR and not work.macs) else where

    def found(kind: str) -> Limit:
        return Limit(kind, of_peak, of_reading)

    if max(computing, reading) >= NEAR * seconds:
        return found(most)
    if seconds < FEW * (STEP_SECONDS + (here.peaks.hand_over if here.threads > 1 else 0.0)):
        return found("overhead")
    if here.cores > 1 and max(computing, reading) < PART_SECONDS:
        return found("threads")
    return found(most)


def _reading(work: Work, here: Host) -> tuple[str, float]:
    """Where most of the bytes come from, and the seconds to read them at best."""
    weights, values = _level(work.all_stored, here), _level(work.moved, here)
    rates = {
        "L2": here.peaks.l2 * here.cores,
        "L3": here.peaks.l3 * here.cores,
        "memory": here.peaks.all_memory if here.cores > 1 else here.peaks.memory,
    }
    spent = dict.fromkeys(rates, 0.0)
    for level, count in ((weights, work.stored), (values, work.moved)):
        spent[level] += count / rates[level] if rates[level] else 0.0
    return max(spent, key=lambda level: spent[level]), sum(spent.values())


def _level(count: int, here: Host) -> str:
    """The nearest cache that holds so many bytes, shared among the cores at work."""
    if count <= here.machine.l2_bytes * here.cores:
        return "L2"
    return "L3" if count <= here.machine.l3_bytes else "memory"
