"""Write docs/models.md from the results of a run: ``python -m tests.zoo.page table.json``.

With ``--keep`` what the page has for other cases stays, in a table of its own with the machine it was run on.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).parents[2] / "docs" / "models.md"
_REACHED = {"nothing": "not built", "built": "no", "quantized": "quantized", "compiled": "program"}


_HEAD = (
    "| architecture | mode | reached | int8 | SQNR, dB | torch.ao | cosine | seconds | missing |",
    "|---|---|---|---|---|---|---|---|---|",
)
_EARLIER = "## From an earlier run"


def kept(old: str, table: dict[str, Any]) -> str:
    """What an older page has for cases that were not run now: a section, with the machine; empty if nothing is left."""
    run = {(result["name"], result["mode"]) for result in table["results"]}
    sections = []
    for part in old.split(_EARLIER):
        machine = next(line for line in part.splitlines() if line.startswith("Run on "))
        rows = [line for line in part.splitlines() if re.match(r"\| \w+/", line)]
        left = [row for row in rows if tuple(row.split(" | ")[:2]) not in {(f"| {name}", mode) for name, mode in run}]
        if left:
            sections += ["", _EARLIER, "", machine, "", *_HEAD, *left]
    return "\n".join(sections) + "\n" if sections else ""


def page(table: dict[str, Any]) -> str:
    """The page for the JSON that `tests.zoo.run` writes."""
    totals, machine = table["totals"], table["machine"]
    rows = sorted(
        table["results"], key=lambda r: (r["name"].partition("/")[0] != "plain", r["name"].lower(), r["mode"])
    )
    counts = (
        f"{totals['cases']} of {machine['listed']} cases were run: {totals['captured']} captured, {totals['quantized']}"
        f" quantized, {totals['compiled']} compiled without fallback. {totals['equal']} programs give the bytes of the"
        f" graph, {totals['reload_equal']} after loading from a file."
    )
    lines = [
        "# Models",
        "",
        "This page lists public architectures that were quantized with `to_int8` and compiled, with random weights and",
        "small inputs. `make test-zoo` runs them, and `python -m tests.zoo.page table.json` writes this page. The",
        "architectures are in `tests/zoo/table.py`.",
        "",
        f"Run on {machine['cpu']} (instruction set {machine['isa']}), one thread, with "
        + ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        + ".",
        "",
        counts,
        "",
        "- **int8**: layers and matrix products that run in int8, of all.",
        "- **SQNR**: compared with float, on inputs that were not used in calibration. Deep networks with random",
        "  weights amplify every error, so small values say little about trained networks.",
        "- **torch.ao**: SQNR of torch.ao's graph mode, if it was tried and supports the model, and how many layers",
        "  and products it has in int8; the others stay in float, where they lose nothing.",
        "- **seconds**: CPU time of `to_int8`.",
        "",
        *_HEAD,
    ]
    lines += [_row(result) for result in rows]
    return "\n".join(lines) + "\n"


def _row(result: dict[str, Any]) -> str:
    reached = _REACHED[result["reached"]]
    if result["reached"] == "compiled":
        reached += ", equal" if result.get("equal") and result.get("reloads_equal") else ", NOT EQUAL"
    share = f"{result['heavy_int8']}/{result['heavy']}" if "heavy" in result else ""
    sqnr, other, cosine, seconds = (
        "" if result.get(key) is None else f"{result[key]:g}"
        for key in ("sqnr", "torch_ao_sqnr", "cosine", "to_int8_seconds")
    )
    if other and "torch_ao_int8" in result:
        other += f" ({result['torch_ao_int8']})"
    cells = [result["name"], result["mode"], reached, share, sqnr, other, cosine, seconds, _missing(result)]
    return f"| {' | '.join(cells)} |"


def _missing(result: dict[str, Any]) -> str:
    error = result.get("error")
    if error is None:
        return ""
    missing = [name for name in result.get("missing", ()) if name.startswith("aten.")]
    if missing:
        return ", ".join(f"`{name.removeprefix('aten.').partition('.')[0]}`" for name in missing)
    text = re.sub(r" at /\S+:\d+:.*", "", error["text"]).partition(". ")[0][:100]
    return f"{error['type']}: {re.sub('[|<>]', ' ', text)}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep what the page has for other cases")
    options = parser.parse_args()
    table = json.loads(options.table.read_text())
    _PAGE.write_text(page(table) + (kept(_PAGE.read_text(), table) if options.keep else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
