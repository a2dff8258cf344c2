"""Why a program is not quicker, in words: the limits of its steps, added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zeropoint.runtime.limits import Here, Limit

if TYPE_CHECKING:
    from zeropoint.runtime.profile import Row

__all__ = ["advice"]

WORTH_A_WORD = 0.1  # shares of the time below this are not mentioned
LOW = 0.6  # of the peak: a kernel below it has room
CONVERSIONS = ("quantize", "dequantize")


def advice(rows: Sequence[Row], limits: Sequence[Limit], here: Here) -> tuple[str, ...]:
    """The reasons that take a tenth of the time or more, the weightiest first, each with what may help."""
    total = sum(row.seconds for row in rows)
    if not total:
        return ()
    shares: dict[str, float] = {}

    def add(reason: str, row: Row) -> None:
        shares[reason] = shares.get(reason, 0.0) + row.seconds / total

    for row, limit in zip(rows, limits):
        if row.macs and row.precision == "float32":
            add("float", row)
        elif row.op in CONVERSIONS and limit.kind != "overhead":
            add("conversions", row)
        elif limit.kind == "compute" and not row.macs:
            add("functions", row)
        elif limit.kind == "compute":
            add("compute" if (limit.of_peak or 0.0) >= LOW else "kernel", row)
        else:
            add(limit.kind, row)
    stored = sum({row.step: row.stored for row in rows if row.macs}.values())
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    return tuple(
        f"{share:.0%} of the time {_WORDS[reason]}".format(**_facts(here, stored))
        for reason, share in ranked
        if share >= WORTH_A_WORD
    )


_WORDS = {
    "float": (
        "is in layers that multiply floats: quantize() leaves these alone; summary() of the quantized model says why."
    ),
    "conversions": (
        "goes to quantize and dequantize: layers of 8 bits and of floats alternate; summary() names those in float."
    ),
    "functions": (
        "is in steps that compute functions and sums of single values: they are not quicker in 8 bits; fewer of them"
        " between the layers help."
    ),
    "compute": (
        "is in layers near the peak of the instruction: 8-bit products are {gain:.1f}x as quick as float32 ones on this"
        " CPU at most, and more threads, or a smaller model, are what is left."
    ),
    "kernel": (
        "is in layers below {low:.0%} of the instruction's peak: few channels, small images or short sums leave the"
        " multipliers waiting; layers with channels in multiples of 64 use them better."
    ),
    "L2": (
        "is in steps that read L2 as fast as it goes: each weight is used for too few rows; a larger batch uses it"
        " again."
    ),
    "L3": (
        "is in steps that read L3 as fast as it goes: weights ({stored:.0f} MB) or values do not fit into L2"
        " ({l2:.1f} MB); a larger batch uses weights again, smaller images leave less to move."
    ),
    "memory": (
        "is in steps that wait for memory: weights ({stored:.0f} MB) or values do not fit into the caches"
        " ({l3:.0f} MB); a larger batch uses weights again, 4-bit weights are half as many bytes."
    ),
    "threads": (
        "is in steps too small to share among {threads} threads: a larger batch fills them; where batches are small,"
        " one thread for each of several requests does more."
    ),
    "overhead": (
        "is in steps so short that starting them is what they cost: a larger batch, or fewer and wider layers, help;"
        " 8 bits cannot."
    ),
}


def _facts(here: Here, stored: int) -> dict[str, float]:
    best = max(here.peaks.macs.values(), default=0.0)
    return {
        "gain": best / here.peaks.float_macs if here.peaks.float_macs else 0.0,
        "low": LOW,
        "stored": stored / 1e6,
        "l2": here.machine.l2_bytes / 1e6,
        "l3": here.machine.l3_bytes / 1e6,
        "threads": here.threads,
    }
