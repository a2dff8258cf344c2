"""Why a program is not quicker, in words: the limits of its steps, added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zeropoint.runtime.limits import Host, Limit

if TYPE_CHECKING:
    from zeropoint.runtime.profile import Row

WORTH_A_WORD = 0.1  # shares of the time below this are not mentioned
LOW = 0.6  # of the peak: a kernel below it has room
CONVERSIONS = ("quantize", "dequantize")


def advice(rows: Sequence[Row], limits: Sequence[Limit], here: Host) -> tuple[str, ...]:
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
        "is in layers that multiply floats: quantization left them in float; summary() of the quantized model says why."
    ),
    "conversions": (
        "goes to quantize and dequantize: int8 and float layers alternate; summary() lists the float layers."
    ),
    "functions": (
        "is in element-wise functions and sums: int8 does not speed them up; use fewer of them between the layers."
    ),
    "compute": (
        "is in layers near the peak of the instruction: on this CPU, int8 multiplies at most {gain:.1f}x as fast as"
        " float32; use more threads or a smaller model."
    ),
    "kernel": (
        "is in layers below {low:.0%} of the instruction's peak: few channels, small images or short sums do not fill"
        " the vector units; use channels in multiples of 64."
    ),
    "L2": (
        "is in steps limited by the bandwidth of L2: they use each weight for too few rows; a larger batch reuses it."
    ),
    "L3": (
        "is in steps limited by the bandwidth of L3: weights ({stored:.0f} MB) or values do not fit into L2"
        " ({l2:.1f} MB); a larger batch reuses the weights, smaller images move less data."
    ),
    "memory": (
        "is in steps limited by memory bandwidth: weights ({stored:.0f} MB) or values do not fit into the caches"
        " ({l3:.0f} MB); a larger batch reuses the weights, 4-bit weights need half the bytes."
    ),
    "threads": (
        "is in steps too small for {threads} threads: use a larger batch; for small batches, run several requests with"
        " one thread each."
    ),
    "overhead": ("is in steps so short that starting them dominates: use a larger batch, or fewer and wider layers."),
}


def _facts(here: Host, stored: int) -> dict[str, float]:
    best = max(here.peaks.macs.values(), default=0.0)
    return {
        "gain": best / here.peaks.float_macs if here.peaks.float_macs else 0.0,
        "low": LOW,
        "stored": stored / 1e6,
        "l2": here.machine.l2_bytes / 1e6,
        "l3": here.machine.l3_bytes / 1e6,
        "threads": here.threads,
    }
