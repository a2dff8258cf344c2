"""Every client in three ways, and a table of it: ``python -m tests.clients.run [names] -o table.json``.

The packages are in an environment of their own, whose interpreter `--python` names. A package that it lacks is a line
of the table, and makes the run fail. With ``--page`` the table is written into docs/clients.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.clients.drive import WAYS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "clients.md"
MARKS = "<!-- clients: begin -->\n", "<!-- clients: end -->"
SECONDS = 900
NEAR = 0.05  # of the largest value: one step of an integer that rounds otherwise, and what follows from it


def clients() -> list[str]:
    """The modules that are clients."""
    return sorted(p.stem for p in HERE.glob("*.py") if "\nCASES = " in p.read_text())


def _driven(python: str, client: str, way: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.pt"
        environment = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", **os.environ, "OMP_NUM_THREADS": "1"}
        command = [python, "-W", "ignore", str(HERE / "drive.py"), client, way, str(path)]
        try:
            ran = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"import": {"error": f"not done after {SECONDS} s", "traceback": "", "warnings": []}}
        if not path.exists():
            return {"import": {"error": f"the process ended with {ran.returncode}", "traceback": ran.stderr[-3000:],
                               "warnings": []}}  # fmt: skip
        return torch.load(path, weights_only=True)


def compared(stock: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """A case in one way against stock: what both gave, or what went wrong."""
    if "error" in ours:
        return {"error": ours["error"], "traceback": ours["traceback"]}
    found: dict[str, Any] = {"int8": ours["int8"], "warnings": ours["warnings"]}
    if "error" in stock:
        return {**found, "note": "stock fails"}
    found["same_keys"] = ours["keys"] == stock["keys"]
    pairs = list(zip(stock["outputs"], ours["outputs"], strict=False))
    if len(stock["outputs"]) != len(ours["outputs"]) or any(a.shape != b.shape for a, b in pairs):
        return {**found, "error": "the outputs have other shapes"}
    elements = sum(a.numel() for a, _ in pairs)
    found["equal"] = sum(int(torch.eq(a, b).sum()) for a, b in pairs) / max(elements, 1)
    found["largest"] = max(
        (
            float((a.double() - b.double()).abs().max() / a.double().abs().max().clamp(min=1e-30))
            for a, b in pairs
            if a.numel()
        ),
        default=0.0,
    )
    return found


def examine(python: str, client: str) -> list[dict[str, Any]]:
    """The rows of one client."""
    results = {way: _driven(python, client, way) for way in WAYS}
    names = list(dict.fromkeys(name for way in WAYS for name in results[way]))
    rows = []
    for name in names:
        missing = {"error": "did not come so far", "traceback": "", "warnings": []}
        stock, compat, removed = (
            results[way].get(name) or results[way].get("import") or missing for way in WAYS
        )  # fmt: skip
        about = {"error": stock["error"]} if "error" in stock else {"int8": stock["int8"]}
        rows.append(
            {"client": client, "case": name, "stock": about, "compat": compared(stock, compat),
             "removed": compared(stock, removed)}
        )  # fmt: skip
    return rows


def is_right(row: dict[str, Any]) -> bool:
    """Whether stock's case runs in both other ways, with as many int8 modules and outputs that are near.

    A case in which stock has no int8 module compares floats with floats, and shows nothing: it is wrong.
    """
    if "error" in row["stock"] or not row["stock"]["int8"]:
        return False
    ours = [row[way] for way in WAYS[1:]]
    return all("error" not in o and o["int8"] == row["stock"]["int8"] and o["largest"] <= NEAR for o in ours)


def _cell(found: dict[str, Any]) -> str:
    if "error" in found:
        return found["error"].splitlines()[0][:90].replace("|", "/")
    share, largest = found.get("equal"), found.get("largest")
    text = f"{found['int8']} int8"
    if share is not None:
        text += f", {share:.1%} equal" + ("" if share == 1 else f", at most {largest:.1e} of the largest")
    return text


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a table in Markdown."""
    lines = ["| package | case | stock | compat | compat after the removal |", "|---|---|---|---|---|"]
    for row in rows:
        stock = row["stock"]
        first = stock["error"].splitlines()[0][:90] if "error" in stock else f"{stock['int8']} int8"
        cells = (row["client"], row["case"], first, _cell(row["compat"]), _cell(row["removed"]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="clients; all without names")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("-o", "--output", default="build/clients.json")
    parser.add_argument("--page", action="store_true", help="write the table into docs/clients.md")
    given = parser.parse_args()
    asked = given.names or clients()
    output = Path(given.output)
    before = json.loads(output.read_text()) if given.names and output.exists() else []  # of clients that stay
    rows: list[dict[str, Any]] = [row for row in before if row["client"] not in asked]
    for client in asked:
        made = examine(os.path.abspath(given.python), client)  # it runs in another folder
        rows = sorted(rows + made, key=lambda row: row["client"])
        print("\n".join(table(made).splitlines()[2:]), flush=True)
        output.write_text(json.dumps(rows, indent=1))
    if given.page:
        page = PAGE.read_text()
        head, tail = page.partition(MARKS[0])[0], page.partition(MARKS[1])[2]
        PAGE.write_text(head + MARKS[0] + table(rows) + MARKS[1] + tail)
    wrong = [f"{row['client']} {row['case']}" for row in rows if not is_right(row)]
    print(
        f"clients: {len(rows) - len(wrong)} of {len(rows)} right"
        + (f"; not right: {', '.join(wrong)}" if wrong else "")
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
