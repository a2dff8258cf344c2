"""Where the time of a program goes, step by step."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Profile", "Row"]


class Row(NamedTuple):
    """One step. `macs` are its multiplications; 0 where it is no layer."""

    op: str
    name: str
    step: int
    seconds: float
    macs: float

    @property
    def gmacs(self) -> float:
        """Billions of multiplications a second."""
        return self.macs / self.seconds / 1e9 if self.seconds else 0.0


class Profile(tuple[Row, ...]):
    """The rows of a profile. Printed, they are a table."""

    @classmethod
    def of(cls, runs: Sequence[Sequence[tuple[str, str, int, float, float]]]) -> Profile:
        """The medians of some runs of one plan."""
        rows = []
        for timed in zip(*runs, strict=True):
            op, name, step, _, macs = timed[0]
            rows.append(Row(op, name, step, statistics.median(row[3] for row in timed), macs))
        return cls(rows)

    @property
    def seconds(self) -> float:
        """Of all steps."""
        return sum(row.seconds for row in self)

    def trace(self) -> str:
        """Chrome's trace format: open it in a browser at chrome://tracing."""
        events: list[dict[str, Any]] = []
        begin = 0.0
        for row in self:
            arguments = {"step": row.step, "gmacs": round(row.gmacs, 2)}
            events.append(
                {"name": row.op, "cat": row.name, "ph": "X", "pid": 0, "tid": 0, "args": arguments}
                | {"ts": begin * 1e6, "dur": row.seconds * 1e6}
            )
            begin += row.seconds
        return json.dumps({"traceEvents": events})

    def __str__(self) -> str:
        total = self.seconds or 1.0
        lines = [f"{'step':<24}{'value':<40}{'us':>10}{'share':>8}{'GMAC/s':>9}"]
        for row in self:
            speed = f"{row.gmacs:.1f}" if row.macs else ""
            share = f"{100 * row.seconds / total:.1f}%"
            lines.append(f"{row.op:<24}{row.name[:39]:<40}{row.seconds * 1e6:>10.1f}{share:>8}{speed:>9}")
        return "\n".join([*lines, f"{'':<24}{'':<40}{self.seconds * 1e6:>10.1f}"])
