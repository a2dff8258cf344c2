"""``python -m bench.table engine.json [FILE.md]``: what ``bench engine --json`` wrote as a table in Markdown.

Printed; or put between the lines ``<!-- engine table -->`` and ``<!-- end of table -->`` of a file. Rows of ``bench
pretrained`` also have the score of their task, and go behind the line ``<!-- pretrained table -->``. A third argument
names another line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BEGIN, PRETRAINED, END = "<!-- engine table -->", "<!-- pretrained table -->", "<!-- end of table -->"
PEERS = (
    "torch float32",
    "torch.compile float32",
    "torch.ao jit",
    "torchao compiled",
    "ONNX Runtime",
    "OpenVINO",
    "CTranslate2",
)
OURS = "zeropoint"


def table(results: dict[str, Any]) -> str:
    """One line for each row: ours, and how many times as long each peer takes; * marks peers that stay in float."""
    rows = [row for row in results["rows"] if "contenders" in row]
    peers = [peer for peer in PEERS if any(peer in row["ratios"] for row in rows)]
    judged = any(_task(row) for row in rows)
    scaled = any(_threads(row) for row in rows)
    scores = ("task score: float, int8",) if judged else ()
    threads = ("over one thread",) if scaled else ()
    head = (
        "model",
        "zeropoint, ms (quartiles)",
        "GMAC/s (of peak)",
        *threads,
        *peers,
        "cosine: ours, best peer's",
        *scores,
    )
    lines = [_line(head), _line("---" for _ in head)]
    for row in rows:
        if row["failed"]:
            lines.append(_line((row["name"], f"failed: {row['failed']}", *[""] * (len(head) - 2))))
            continue
        known = row["contenders"]
        low, high = row["quartiles"][OURS]
        ours = f"{_short(row['milliseconds'][OURS])} ({_short(low)}-{_short(high)})"
        speed = f"{known[OURS]['gmacs']:.0f} ({known[OURS]['of_peak']:.0%})"
        others = [known[p]["cosine"] for p in row["ratios"] if not p.endswith("float32") and "cosine" in known[p]]
        alike = f"{known[OURS]['cosine']:.5f}" + (f", {max(others):.5f}" if others else "")
        score = (_score(_task(row)),) if judged else ()
        faster = (_threads(row),) if scaled else ()
        lines.append(_line((row["name"], ours, speed, *faster, *(_ratio(row, peer) for peer in peers), alike, *score)))
    return "\n".join(lines)


def _threads(row: dict[str, Any]) -> str:
    """How much quicker all threads are than one, if that was measured."""
    found = row["contenders"].get(OURS, {}).get("of_one_thread")
    return f"{found:.2f}x" if found else ""


def _task(row: dict[str, Any]) -> dict[str, Any]:
    """The score of the row's task: its unit, and what float and int8 reach."""
    return row["contenders"].get(OURS, {}).get("task", {})


def _score(task: dict[str, Any]) -> str:
    return f"{task['unit']}: {task['float']:.4g}, {task['int8']:.4g}" if task else ""


def settings(results: dict[str, Any]) -> str:
    """How each peer ran, in words: the settings that occurred, and in how many rows."""
    found: dict[str, dict[str, int]] = {}
    for row in results["rows"]:
        for peer, facts in row.get("contenders", {}).items():
            said = facts.get("setting") or f"left out: {facts['left_out']}"
            counts = found.setdefault(peer, {})
            counts[said] = counts.get(said, 0) + 1
    return "\n".join(
        f"- {peer}: " + "; ".join(f"{said} ({count} rows)" for said, count in counts.items())
        for peer, counts in found.items()
    )


def text(results: dict[str, Any]) -> str:
    """The machine, the table and the settings."""
    machine = "\n".join(f"    {line}" for line in results["machine"].splitlines())
    note = "Numbers of peers are how many times as long they take; * their file is not a quarter of the float one."
    parts = (machine, table(results), note, results.get("summary", ""), settings(results))
    return "\n\n".join(part for part in parts if part)


def brief(results: dict[str, Any]) -> str:
    """The machine in a line, and the table: for the page."""
    machine = results["machine"].splitlines()[0]
    note = "A peer's number is its time divided by zeropoint's; * marks files that are not a quarter of the float file."
    return f"{machine}\n\n{table(results)}\n\n{note}"


def put(page: str, new: str, begin_mark: str = BEGIN) -> str:
    """The page with `new` between its marks.

    Raises:
        ValueError: if the page has no marks.
    """
    before, begin, rest = page.partition(begin_mark)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no lines {begin_mark} and {END}")
    return f"{before}{begin_mark}\n\n{new}\n\n{END}{after}"


def _ratio(row: dict[str, Any], peer: str) -> str:
    if peer not in row["ratios"]:
        return "-"
    mark = "" if row["contenders"][peer]["quantized"] else " *"
    return f"{row['ratios'][peer]:.2f}x{mark}"


def _short(ms: float) -> str:
    return f"{ms:.3f}" if ms < 1 else f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    measured = json.loads(Path(sys.argv[1]).read_text())
    judged = any(_task(row) for row in measured["rows"] if "contenders" in row)
    made = brief(measured) if judged else text(measured)
    if len(sys.argv) > 2:
        page = Path(sys.argv[2])
        mark = f"<!-- {sys.argv[3]} -->" if len(sys.argv) > 3 else PRETRAINED if judged else BEGIN
        page.write_text(put(page.read_text(), made, mark))
    else:
        print(made)
