"""Benchmark results as a table for people and as JSON for scripts."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable

import torch

import zeropoint
from bench.timing import Result


def header() -> str:
    info = zeropoint.cpu_info()
    capability = torch.backends.cpu.get_cpu_capability()
    return (
        f"{info.brand} · kernels {info.isa} · {info.threads} threads · torch {torch.__version__} ({capability},"
        f" {torch.get_num_threads()} threads) · Python {platform.python_version()}"
    )


def line(result: Result) -> str:
    ours = result.seconds["zeropoint"]
    text = f"{result.row.name:<44}{ours * 1e3:9.3f} ms"
    for peer in result.row.peers:
        target = result.row.targets[peer]
        asked = f" (asked {target:g}x: {result.verdict(peer)})" if target else ""
        text += f"   {result.ratio(peer):6.2f}x {peer}{asked}"
    if "copy" in result.seconds:
        text += f"   {result.seconds['copy'] / ours:5.0%} of a copy"
    return "\n".join((text, *(f"    {detail}" for detail in result.row.details)))


def as_json(results: Iterable[Result]) -> str:
    rows = [
        {
            "name": r.row.name,
            "milliseconds": {name: seconds * 1e3 for name, seconds in r.seconds.items()},
            "ratios": {peer: r.ratio(peer) for peer in r.row.peers},
            "targets": dict(r.row.targets),
            "details": list(r.row.details),
        }
        for r in results
    ]
    return json.dumps({"machine": header(), "rows": rows}, indent=1)
