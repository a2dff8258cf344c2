"""What the native core found on this machine, and what it uses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from zeropoint import _native

__all__ = ["CpuInfo", "cpu_info", "get_num_threads", "set_num_threads", "use_isa"]

ISAS = ("portable", "avx2", "avx512", "vnni", "amx")


@dataclass(frozen=True)
class CpuInfo:
    """The instruction sets of this machine, which one the kernels use, and why not a better one.

    ``print(zeropoint.cpu_info())`` says it in words.
    """

    brand: str
    isa: str
    best_isa: str
    forced_by: str | None
    threads: int
    available: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

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
            f"usable     {', '.join(self.available)}",
        ]
        lines += [f"not {name:<7}{reason}" for name, reason in self.missing]
        lines += [f"note       {note}" for note in self.notes]
        return "\n".join(lines)


def cpu_info() -> CpuInfo:
    """What was found, what is used, and why not more.

    Example:
        >>> info = cpu_info()
        >>> info.isa in ("portable", "avx2", "avx512", "vnni", "amx")
        True
    """
    found = _native.cpu_features()
    flags = ("avx2", "avx512", "avx512_vnni", "amx_int8")
    best = _native.best_isa(*(bool(found[flag]) for flag in flags))
    available = ISAS[: ISAS.index(best) + 1]
    reasons = {
        "avx2": "CPUID does not announce AVX2, FMA and F16C, or the operating system has not enabled their registers",
        "avx512": found["avx512_note"],
        "vnni": found["vnni_note"],
        "amx": found["amx_note"],
    }
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
        missing=tuple((name, str(reasons[name])) for name in ISAS if name not in available),
        notes=(str(found["amx_note"]),) if found["amx_int8"] and found["amx_note"] else (),
    )


def get_num_threads() -> int:
    """Threads the kernels use, the calling one included.

    Example:
        >>> get_num_threads() >= 1
        True
    """
    return _native.num_threads()


def set_num_threads(n: int) -> None:
    """Use `n` threads in the kernels from now on. The default is ``ZEROPOINT_NUM_THREADS``, else ``OMP_NUM_THREADS``,
    else the CPUs this process may run on.

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
