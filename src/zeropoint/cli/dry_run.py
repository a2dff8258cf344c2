"""What quantizing a model would do, before it is done: each operator, the size, and what this CPU can gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_BITS = {"int8 weights": 8, "int4 weights": 4, "float16 weights": 16}  # of a weight that is not float32; else 8
HEADER = ("module", "operator", "will be", "why")


@dataclass(frozen=True)
class Plan:
    """A plan; prints as a table.

    Attributes:
        rows: of `summary()`.
        float_bytes, estimated_bytes: of the weights now, and as they will be stored.
        milliseconds: of the float model, here.
        samples: that it took for.
        gain: how many times as many 8-bit multiplications as float32 ones this CPU does: layers gain no more than that.
    """

    rows: tuple[Any, ...]
    float_bytes: int
    estimated_bytes: int
    milliseconds: float
    samples: int
    gain: float

    def lines(self) -> list[str]:
        """What the plan comes to."""
        from zeropoint.cli.data import in_words
        from zeropoint.report.markup import milliseconds
        from zeropoint.table import quantized_of, readable_bytes, size_change

        before, after = readable_bytes(self.float_bytes), readable_bytes(self.estimated_bytes)
        change = size_change(self.float_bytes, self.estimated_bytes)
        took = f"{milliseconds(self.milliseconds)} for {in_words(self.samples)}"
        return [
            f"operators  {quantized_of(row.precision for row in self.rows)} will be quantized",
            f"size       weights of {before} become about {after} ({change})",
            f"speed      float takes {took} here; this CPU multiplies int8 {self.gain:.1f}x as fast",
        ]

    def facts(self) -> dict[str, Any]:
        """The plan as plain values."""
        rows = [
            {"path": r.path, "operator": r.operator, "precision": r.precision, "reason": r.reason} for r in self.rows
        ]
        numbers = {"float_bytes": self.float_bytes, "estimated_bytes": self.estimated_bytes, "gain": self.gain}
        return {"operators": rows, **numbers, "float_milliseconds": self.milliseconds, "timed_samples": self.samples}

    def __rich__(self) -> Any:
        from rich.console import Group

        from zeropoint.table import rich_table

        rows = [(row.path or "(model)", row.operator, row.precision, row.reason) for row in self.rows]
        return Group(rich_table(HEADER, rows), *self.lines())


def plan(model: Any, batches: list[Any], mode: str, mapping: Any, timed: Any) -> Plan:
    """Capture a model and choose what becomes of each operator; nothing is calibrated or written."""
    import torch

    from zeropoint.cli.data import sample_count
    from zeropoint.comparison.sizes import model_bytes
    from zeropoint.comparison.timing import alternating
    from zeropoint.cpu import cpu_info, peaks
    from zeropoint.graph.to_int8 import call_of, evaluated, prepare_int8
    from zeropoint.progress import during

    with during("capturing", progress=True):
        prepared, _ = prepare_int8(evaluated(model), batches[0], mapping, mode, None)
    args, kwargs = call_of(timed)
    with torch.inference_mode(), during("timing", progress=True):
        (milliseconds,) = alternating([lambda: model(*args, **kwargs)], 0.25, least=3)
    rows = prepared.summary().rows
    before, best = model_bytes(model), peaks()
    gain = best.macs.get(cpu_info().isa, 0.0) / best.float_macs
    return Plan(rows, before, before - _saved(model.state_dict(), rows), milliseconds, sample_count(timed), gain)


def _saved(state: dict[str, Any], rows: tuple[Any, ...]) -> int:
    """Bytes that matrices and filters of quantized layers will not take."""
    bits = {row.path: _BITS.get(row.precision, 8) for row in rows if row.precision != "float32"}
    found = 0
    for name, value in state.items():
        path = name.rpartition(".")[0]
        if path in bits and getattr(value, "ndim", 0) > 1 and value.is_floating_point():
            found += value.numel() * (value.element_size() * 8 - bits[path]) // 8
    return found
