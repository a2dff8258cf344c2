"""Draws docs/pictures/benchmarks_*.svg from docs/benchmarks.json, and docs/pictures/pipeline.svg from a model that it
quantizes: ``.venv/bin/python scripts/charts.py``. `make docs` and `make bench-tables` run it.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
STYLE = """<style>
  text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #24292f; }
  .soft { fill: #656d76; font-size: 12px; } .head { font-weight: 650; font-size: 14px; }
  .mono { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
  .grid { stroke: #d0d7de; } .one { stroke: #2458d3; stroke-dasharray: 4 3; }
  .c0 { fill: #2458d3; } .c1 { fill: #e08a1e; } .c2 { fill: #3a9a6b; } .c3 { fill: #a56bc9; } .c4 { fill: #9aa3ae; }
  .box { fill: #f6f8fa; stroke: #d0d7de; } .int8 { fill: #e4ecfd; stroke: #9db9f5; }
  .arrow { stroke: #8c959f; fill: none; } .back { fill: #fff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .soft { fill: #9aa4af; } .grid { stroke: #3d444d; } .one { stroke: #7ea6ff; }
    .c0 { fill: #6d99ff; } .c1 { fill: #f0a44a; } .c2 { fill: #5cc48f; } .c3 { fill: #c291e6; } .c4 { fill: #6e7781; }
    .box { fill: #161b22; stroke: #3d444d; } .int8 { fill: #1d2a45; stroke: #3f5f9e; } .arrow { stroke: #7d8590; }
    .back { fill: #0d1117; }
  }
</style>"""
# The colours follow the system, the page around a picture its own switch: so a picture brings its background along.
BACK = '<rect class="back" width="100%" height="100%" rx="8"/>'
PEERS = ("zeropoint", "OpenVINO", "ONNX Runtime", "torch.ao jit", "torch float32")
BAR, GROUP = 13, 92  # height of a bar, and of a model


def svg(width: int, height: int, title: str, body: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
        f' aria-label="{escape(title)}"><title>{escape(title)}</title>{STYLE}{BACK}{"".join(body)}</svg>\n'
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


# --------------------------------------------------------------------------------------------------------- benchmarks


def bars(cpu: dict[str, Any], versions: str) -> str:
    """Speed relative to zeropoint: a panel for each batch size, a group for each model, a bar for each runtime."""
    batches = sorted({row["batch"] for row in cpu["rows"]})
    models = list(dict.fromkeys(row["model"] for row in cpu["rows"]))
    wide, left, top = 360, 30, 96
    width, height = left + len(batches) * (wide + 40), top + len(models) * GROUP + 30
    largest = max(1 / ratio for row in cpu["rows"] for ratio in row["ratios"].values() if ratio)
    scale = (wide - 70) / max(largest, 1.0)
    body = [text(left, 20, "Speed relative to zeropoint", "head"), text(left + 232, 20, cpu["cpu"], "soft")]
    at = float(left)
    for i, peer in enumerate(PEERS):
        body.append(f'<rect class="c{i}" x="{at}" y="36" width="12" height="12" rx="2"/>' + text(at + 17, 47, peer))
        at += 44 + 7.2 * len(peer)
    for panel, batch in enumerate(batches):
        x = left + panel * (wide + 40)
        body.append(text(x, 76, f"batch {batch}", "head") + text(x + 74, 76, "longer is faster", "soft"))
        end = top + len(models) * GROUP
        body.append(f'<path class="grid" d="M{x} {top - 8}V{end}"/>')
        for number, model in enumerate(models):
            [row] = [r for r in cpu["rows"] if r["model"] == model and r["batch"] == batch]
            y = top + number * GROUP
            body.append(text(x + 4, y + 6, model) + text(x + wide, y + 6, f"{row['zeropoint_ms']:g} ms", "soft", "end"))
            for i, peer in enumerate(PEERS):
                ratio = 1.0 if peer == "zeropoint" else row["ratios"][peer]
                low = y + 11 + i * BAR
                if ratio is None:
                    body.append(text(x + 5, low + BAR - 2, "not run", "soft"))
                    continue
                long = scale / ratio
                said = f"{peer}: {1 / ratio:.2f} of zeropoint's speed"
                body.append(
                    f'<rect class="c{i}" x="{x}" y="{low}" width="{long:.1f}" height="{BAR - 2}" rx="1.5"><title>'
                    f"{escape(said)}</title></rect>"
                )
                body.append(text(x + wide - 62, low + BAR - 2, f"{1 / ratio:.2f}", "soft"))
        body.append(f'<path class="one" d="M{x + scale:.1f} {top - 8}V{end}"/>')
    body.append(
        text(left, height - 10, f"{versions}. Milliseconds are zeropoint's. Data: docs/benchmarks.json", "soft")
    )
    return svg(width, height, f"Benchmarks, {cpu['cpu']}", body)


# ------------------------------------------------------------------------------------------------------- the pipeline


def stages() -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """The operators of a captured model, the steps of its program, and the operators of its lowered graph."""
    import torch
    from torch import nn

    import zeropoint
    from zeropoint.report.program_facts import program_facts

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    ).eval()
    x = torch.randn(2, 3, 16, 16)

    def calls(graph: Any) -> list[str]:
        return [str(node.target).rsplit(".", 1)[0] for node in graph.nodes if node.op == "call_function"]

    captured = calls(torch.export.export(model, (x,)).module().graph)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    facts = program_facts(zeropoint.compile(quantized, (x,)), [x.numpy()], runs=0)
    steps = [{"op": s.op, "shape": s.shape, "dtype": s.dtype, "kernel": s.kernel, **s.attributes} for s in facts.steps]
    return captured, steps, calls(quantized.graph_module.graph)


# Rows of the picture: of the captured operators, and of the lowered ones (first row, last row).
CAPTURED_AT = (1, 2, 3, 4, 5, 6)
LOWERED_AT = ((0, 0), (1, 3), (4, 4), (5, 5), (6, 6))


def pipeline() -> str:
    """One model as it is captured, annotated, lowered and compiled; a column each."""
    captured, steps, lowered = stages()
    if len(captured) != len(CAPTURED_AT) or not len(lowered) == len(steps) == len(LOWERED_AT):
        raise RuntimeError(f"the picture has other rows than the model: {captured}, {lowered}, {steps}")
    wide, gap, row, top, left = 216, 22, 46, 76, 10
    columns = (
        ("1  capture", "torch.export: float operators"),
        ("2  annotate, calibrate", "a range for every value"),
        ("3  lower", "integer operators, fused"),
        ("4  compile", "steps of a native program"),
    )
    body = []
    for i, (title, about) in enumerate(columns):
        x = left + i * (wide + gap)
        body.append(text(x, 24, title, "head") + text(x, 44, about, "soft"))

    def box(column: int, first: int, last: int, lines: tuple[str, ...], kind: str = "box") -> None:
        x, y = left + column * (wide + gap), top + first * row
        high = (last - first + 1) * row - 10
        body.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{wide}" height="{high}" rx="6"/>')
        middle = y + high / 2 + 4 - 8 * (len(lines) - 1)
        for n, line in enumerate(lines):
            body.append(text(x + 10, middle + 16 * n, line, "mono" if n == 0 else "soft"))
        if column > 1 or (column == 1 and first in CAPTURED_AT):
            body.append(f'<path class="arrow" d="M{x - gap + 4} {y + high / 2}h{gap - 8}m-5 -4l5 4l-5 4"/>')

    for name, at in zip(captured, CAPTURED_AT):
        box(0, at, at, (name,))
    for name, step, (first, last) in zip(lowered, steps, LOWERED_AT):
        if "scale" in step and step["dtype"] != "float32":
            chosen = (step["dtype"], f"scale {step['scale']:.4g}, zero point {step['zero_point']}")
        else:
            chosen = ("float32",) if step["dtype"] == "float32" else ("as its input",)
        kind = "box" if step["dtype"] == "float32" else "int8"
        box(1, first, last, chosen, kind)
        box(2, first, last, (name.removeprefix("zeropoint."),), kind)
        about = f"{step['dtype']} {'×'.join(map(str, step['shape']))}"
        box(3, first, last, (step["op"], about), kind)
    return svg(left + 4 * (wide + gap), top + 7 * row + 8, "One model, from capture to program", body)


def main() -> None:
    results = json.loads((DOCS / "benchmarks.json").read_text())
    for cpu in results["cpus"]:
        (DOCS / "pictures" / f"benchmarks_{cpu['key']}.svg").write_text(bars(cpu, results["versions"]))
    (DOCS / "pictures" / "pipeline.svg").write_text(pipeline())


if __name__ == "__main__":
    main()
