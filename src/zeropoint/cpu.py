"""What the native core found on this machine, and what it uses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from zeropoint import _native


@dataclass(frozen=True)
class Machine:
    """The caches and cores of the machine. The native core uses them to split work into parts.

    Args:
        l1_bytes: size of the L1 data cache of one core.
        l2_bytes: size of the L2 cache of one core.
        l3_bytes: size of the L3 cache, which `l3_cpus` CPUs share.
        cpus: number of CPUs that this process may use.
        cores: number of cores among them; hyperthreads of one core count once.
        useful_threads: the default number of threads: the cores, or the hyperthreads if there is only one core.
        source: where the values come from: "sysfs", "CPUID", or "assumed".
    """

    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    l3_cpus: int
    cpus: int
    cores: int
    useful_threads: int
    source: str

    def __str__(self) -> str:
        caches = f"L1 {_size(self.l1_bytes)}, L2 {_size(self.l2_bytes)}, L3 {_size(self.l3_bytes)}"
        return f"{self.cores} cores, {self.cpus} CPUs; {caches} for {self.l3_cpus} CPUs ({self.source})"


@dataclass(frozen=True)
class Peaks:
    """The measured peak performance of one thread, per second.

    Args:
        macs: 8-bit multiply-accumulates, by instruction set.
        float_macs: float32 multiply-accumulates.
        l1, l2, l3, memory: bytes read from each level.
        all_memory: bytes that all threads together read from memory.
        hand_over: seconds until a spinning thread has taken part in a job.
        wake: seconds until a sleeping thread has taken part in a job.
    """

    macs: Mapping[str, float]
    float_macs: float
    l1: float
    l2: float
    l3: float
    memory: float
    all_memory: float
    hand_over: float
    wake: float

    def __str__(self) -> str:
        products = ", ".join(f"{isa} {macs / 1e9:.0f}" for isa, macs in self.macs.items())
        reading = f"L1 {self.l1 / 1e9:.0f}, L2 {self.l2 / 1e9:.0f}, L3 {self.l3 / 1e9:.0f}"
        return (
            f"GMAC/s: {products}, float32 {self.float_macs / 1e9:.0f}; GB/s: {reading}, memory"
            f" {self.memory / 1e9:.0f} (all threads {self.all_memory / 1e9:.0f}); a thread begins after"
            f" {self.hand_over * 1e6:.1f} us, from sleep {self.wake * 1e6:.0f} us"
        )


@dataclass(frozen=True)
class CpuInfo:
    """The instruction sets of this machine, the one that the kernels use, and why a better one is not used.

    ``print(zeropoint.cpu_info())`` describes them.
    """

    brand: str
    isa: str
    best_isa: str
    forced_by: str | None
    threads: int
    available: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    machine: Machine

    @property
    def amx_is_masked(self) -> bool:
        """Whether a virtual machine has AMX and hides its palette, which oneDNN, inside torch, does not expect."""
        return any("leaf" in note.lower() or "palette" in note.lower() for note in self.notes)

    def __str__(self) -> str:
        lines = [
            f"CPU        {self.brand or 'unknown'}",
            f"kernels    {self.isa}"
            + (f" (forced by {self.forced_by}; the best here is {self.best_isa})" if self.forced_by else ""),
            f"threads    {self.threads}",
            f"machine    {self.machine}",
            f"usable     {', '.join(self.available)}",
        ]
        lines += [f"not {name:<9}{reason}" for name, reason in self.missing]
        lines += [f"note       {note}" for note in self.notes]
        return "\n".join(lines)


def cpu_info() -> CpuInfo:
    """The instruction sets of this CPU, the one in use, and why a better one is not used.

    Example:
        >>> info = cpu_info()
        >>> info.isa in info.available
        True
    """
    found = _native.cpu_features()
    offered, notes = set(found["features"]), found["notes"]
    levels = {name: needs for name, needs in _native.levels() if name != "reference" and set(needs) <= set(notes)}
    available = tuple(name for name, needs in levels.items() if offered.issuperset(needs))
    best = available[-1]
    reasons = {name: next((notes[n] for n in needs if n not in offered), "") for name, needs in levels.items()}
    active = _native.isa()
    forced = None
    if active != best:
        forced = f"ZEROPOINT_ISA={active}" if os.environ.get("ZEROPOINT_ISA") == active else "use_isa"
    return CpuInfo(
        brand=str(found["brand"]),
        isa=active,
        best_isa=best,
        forced_by=forced,
        threads=_native.num_threads(),
        available=available,
        missing=tuple((name, reasons[name]) for name in levels if name not in available),
        notes=tuple(notes[name] for name in found["features"] if notes[name]),
        machine=Machine(**_native.machine()),
    )


def peaks() -> Peaks:
    """The measured peak performance of this machine. The first call takes about 50 ms; later calls return the same
    result.

    Example:
        >>> peaks().l1 >= 0
        True
    """
    return Peaks(**_native.peaks())


def _size(count: int) -> str:
    return f"{count >> 20} MB" if count >= 1 << 20 else f"{count >> 10} kB"


def get_num_threads() -> int:
    """The number of threads that the kernels use, including the calling thread.

    Example:
        >>> get_num_threads() >= 1
        True
    """
    return _native.num_threads()


def set_num_threads(n: int) -> None:
    """Set the number of threads for the kernels. The default is ``ZEROPOINT_NUM_THREADS``, then ``OMP_NUM_THREADS``,
    then the number of cores available to this process.

    Raises:
        ValueError: unless ``1 <= n <= 1024``.

    Example:
        >>> set_num_threads(get_num_threads())
    """
    _native.set_num_threads(n)


@contextlib.contextmanager
def use_isa(name: str) -> Iterator[None]:
    """Run the kernels of one instruction set inside a ``with`` block (for tests and benchmarks; not thread-local).

    ``reference`` is the plain specification. For a whole process set ``ZEROPOINT_ISA`` instead.

    Raises:
        ValueError: if the name is unknown or this CPU lacks it.

    Example:
        >>> with use_isa("portable"):
        ...     cpu_info().isa
        'portable'
    """
    previous = _native.isa()
    _native.set_isa(name)
    try:
        yield
    finally:
        _native.set_isa(previous)
