"""Benchmark results as a table for people and as JSON for scripts."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import torch

import zeropoint
from bench.timing import OURS, Result
from zeropoint.cpu import peaks


def header() -> str:
    info = zeropoint.cpu_info()
    capability = torch.backends.cpu.get_cpu_capability()
    return (
        f"{info.brand} · kernels {info.isa} · {info.threads} threads · torch {torch.__version__} ({capability},"
        f" {torch.get_num_threads()} threads) · Python {platform.python_version()}\n{info.machine}\n{peaks()}"
    )


def line(result: Result) -> str:
    if result.failed:
        return "\n".join((f"{result.row.name:<44} FAILED: {result.failed}", *(f"    {d}" for d in result.details)))
    ours = result.times[OURS]
    low, high = ours.quartiles
    text = f"{result.row.name:<44}{ours.median * 1e3:9.3f} ms ({low * 1e3:.3f}-{high * 1e3:.3f})"
    for peer in result.peers:
        target = result.target(peer)
        asked = f" (asked {target:g}x: {result.verdict(peer)})" if target else ""
        text += f"   {result.ratio(peer):6.2f}x {peer}{asked}"
    if "copy" in result.times:
        text += f"   {result.times['copy'].median / ours.median:5.0%} of a copy"
    return "\n".join((text, *(f"    {detail}" for detail in result.details)))


def summary(results: Sequence[Result]) -> str:
    """The best peer's time divided by ours, over the rows with a peer in 8 bits: worst, quartiles, geometric mean.

    Behind it the share of the peak that our products reach, and what more threads bring.
    """
    best = {
        r.row.name: min(ratios)
        for r in results
        if (ratios := [r.ratio(peer) for peer in r.peers if not peer.endswith("float32")])
    }
    if not best:
        return ""
    low, middle, high = np.quantile(list(best.values()), (0.25, 0.5, 0.75))
    worst = min(best, key=lambda name: best[name])
    mean = np.exp(np.mean(np.log(list(best.values()))))
    text = (
        f"{len(best)} rows: the best peer takes {mean:.2f}x our time (geometric mean; quartiles {low:.2f},"
        f" {middle:.2f}, {high:.2f}); worst {best[worst]:.2f}x, {worst}"
    )
    known = [r.facts.get("contenders", {}).get(OURS, {}) for r in results]
    shares = [facts["of_peak"] for facts in known if "of_peak" in facts]
    if shares:
        low, middle, high = np.quantile(shares, (0.25, 0.5, 0.75))
        text += f"; share of the instruction's peak {middle:.0%} (quartiles {low:.0%}, {high:.0%})"
    threads = [facts["of_one_thread"] for facts in known if "of_one_thread" in facts]
    if threads:
        text += f"; {np.median(threads):.2f}x one thread (median; least {min(threads):.2f}x)"
    return text


def as_json(results: Sequence[Result]) -> str:
    rows = [
        {
            "name": r.row.name,
            "milliseconds": {name: times.median * 1e3 for name, times in r.times.items()},
            "quartiles": {name: [q * 1e3 for q in times.quartiles] for name, times in r.times.items()},
            "ratios": {peer: r.ratio(peer) for peer in r.peers},
            "targets": {peer: r.target(peer) for peer in r.peers},
            "details": list(r.details),
            "failed": r.failed,
        }
        | dict(r.facts)
        for r in results
    ]
    found = {"machine": header(), "peaks": asdict(peaks()), "summary": summary(results), "rows": rows}
    return json.dumps(found, indent=1)
