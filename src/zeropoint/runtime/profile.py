"""Where the time of a program goes, step by step."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from zeropoint.html_table import Bar, html_table
from zeropoint.runtime.advice import advice
from zeropoint.runtime.limits import Host, Limit, Work, limit_of

_INT8_KERNELS = ("gemm", "group_gemm", "depthwise")
_HEADER = ("step", "module", "shape", "precision", "kernel", "us", "share", "GMAC/s", "peak", "limit")


class Row(NamedTuple):
    """One step.

    `macs` are its multiplications, 0 if it is not a layer. `kernel` and `isa` name the kernel and its instruction set;
    both are empty for plain loops. `shape` and the dtypes are those of the first input and output. `stored`, `read` and
    `written` are the bytes of weights, other inputs, and outputs.
    """

    op: str
    name: str
    step: int
    seconds: float
    macs: float
    kernel: str
    isa: str
    dtype_in: str
    dtype_out: str
    shape: tuple[int, ...]
    stored: int = 0
    read: int = 0
    written: int = 0

    @property
    def path(self) -> str:
        """The path of the module that it came from; empty if that is the model itself, or if the file does not say."""
        return self.name.rpartition(".")[0]

    @property
    def precision(self) -> str:
        """The dtype that it multiplies or moves: ``int8`` for 8-bit integers, also if it quantizes floats on the
        way.
        """
        if self.kernel in _INT8_KERNELS or self.dtype_in in ("uint8", "int8"):
            return "int8"
        return "int8 weights" if self.kernel == "weight_only" else self.dtype_in

    @property
    def gmacs(self) -> float:
        """Billions of multiplications per second."""
        return self.macs / self.seconds / 1e9 if self.seconds else 0.0

    def work(self, here: Host, all_stored: int) -> Work:
        """What it does, for `limit_of`. Of a table, such as an embedding's, no more is read than is written."""
        is_int8 = self.precision == "int8" and self.kernel in _INT8_KERNELS
        peak = here.peaks.macs.get(self.isa, 0.0) if is_int8 else here.peaks.float_macs
        stored = self.stored if self.macs else min(self.stored, self.written)
        return Work(self.seconds, self.macs, peak, stored, all_stored, self.read + self.written)


class Profile(tuple[Row, ...]):
    """The result of `Program.profile`. Prints as a table with advice below it.

    `limits` names the bottleneck of each row, and `advice` summarizes them.
    """

    here: Host

    @classmethod
    def of(cls, runs: Sequence[Sequence[tuple[Any, ...]]], here: Host | None = None) -> Profile:
        """The medians of some runs of one plan, on this machine if no other is given."""
        rows = []
        for timed in zip(*runs, strict=True):
            first = Row(*timed[0])
            rows.append(first._replace(seconds=statistics.median(Row(*row).seconds for row in timed)))
        made = cls(rows)
        made.here = Host.now() if here is None else here
        return made

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The bottleneck of each row: compute, L2, L3, memory, threads or overhead."""
        stored = sum({row.step: row.stored for row in self if row.macs}.values())
        return tuple(limit_of(row.work(self.here, stored), self.here) for row in self)

    @property
    def advice(self) -> tuple[str, ...]:
        """Why the program is not faster, and what may help; most important first."""
        return advice(self, self.limits, self.here)

    @property
    def seconds(self) -> float:
        """The total time of all steps."""
        return sum(row.seconds for row in self)

    def trace(self) -> str:
        """Chrome's trace format: open it in a browser at chrome://tracing."""
        events: list[dict[str, Any]] = []
        begin = 0.0
        for row in self:
            arguments = {"step": row.step, "gmacs": round(row.gmacs, 2), "shape": row.shape}
            arguments |= {"precision": row.precision, "kernel": f"{row.kernel} {row.isa}".strip()}
            events.append(
                {"name": row.op, "cat": row.name, "ph": "X", "pid": 0, "tid": 0, "args": arguments}
                | {"ts": begin * 1e6, "dur": row.seconds * 1e6}
            )
            begin += row.seconds
        return json.dumps({"traceEvents": events})

    def __str__(self) -> str:
        columns = "{:<22} {:<32} {:<18} {:<12} {:<20} {:>10} {:>6} {:>7} {:>5}  {}"
        lines = [columns.format(*_HEADER)]
        for op, path, *rest in self._cells():
            lines.append(columns.format(op, path[:32], *rest).rstrip())
        return "\n".join([*lines, self._shares(), *self.advice])

    def _repr_html_(self) -> str:
        most = max((row.seconds for row in self), default=0.0) or 1.0
        rows = [(*cells[:5], Bar(cells[5], row.seconds / most), *cells[6:]) for row, cells in zip(self, self._cells())]
        return html_table(_HEADER, rows, self._shares(), *self.advice)

    def _cells(self) -> list[tuple[str, ...]]:
        total = self.seconds or 1.0
        found: list[tuple[str, ...]] = []
        for row, limit in zip(self, self.limits):
            shape, kernel = "x".join(map(str, row.shape)), f"{row.kernel} {row.isa}"
            numbers = f"{row.seconds * 1e6:.1f}", f"{row.seconds / total:.1%}", f"{row.gmacs:.1f}" if row.macs else ""
            near = "" if limit.of_peak is None else f"{limit.of_peak:.0%}"
            found.append((row.op, row.path or row.name, shape, row.precision, kernel, *numbers, near, limit.kind))
        return found

    def _shares(self) -> str:
        total = self.seconds or 1.0
        spent: dict[str, float] = {}
        for row in self:
            spent[row.precision or "copies"] = spent.get(row.precision or "copies", 0.0) + row.seconds
        shares = ", ".join(f"{seconds / total:.1%} {kind}" for kind, seconds in sorted(spent.items()))
        return f"{self.seconds * 1e6:.1f} us: {shares}"
