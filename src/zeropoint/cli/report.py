"""zeropoint report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zeropoint.cli.data import Batch, Data, Samples, load_tensors, one_sample
from zeropoint.cli.models import Model, Pickle, load_float
from zeropoint.cli.output import AsJson, show, work
from zeropoint.cli.paths import writable
from zeropoint.cli.quantize import Float, Mode, quantized_form


def report(
    model: Model,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.", callback=writable())] = Path(
        "report.html"
    ),
    mode: Annotated[Mode, typer.Option("--mode", "-m", help="Quantization mode.")] = Mode.static,
    keep: Float = None,
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="Also measure the sensitivity; slower.")] = False,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "",
    batch: Batch = 8,
    samples: Samples = 32,
    pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Quantize a model and write an HTML report: layers, errors, histograms, times, sizes."""
    with work(as_json):
        from zeropoint.comparison.layers import finite
        from zeropoint.comparison.sensitivity import sensitivity as find
        from zeropoint.report.html import write_report

        source = load_float(model, pickle)
        batches = load_tensors(data, source, batch, samples)
        quantized = quantized_form(source, batches, mode, keep)
        found = find(source, batches, mode=mode.value) if sensitivity else None
        title = title or Path(model.replace(":", "/")).stem
        timed = one_sample(data, batches, source, quantized)
        findings = write_report(output, source, quantized, batches, title=title, sensitivity=found, timed=timed)
        show(f"wrote {output}", finite({"output": str(output), "sqnr": findings.comparison.sqnr}), as_json)
