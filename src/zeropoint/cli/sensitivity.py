"""zeropoint sensitivity"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from zeropoint.cli.data import Batch, Data, Samples, load_tensors
from zeropoint.cli.models import Model, Pickle, load_float
from zeropoint.cli.output import AsJson, show, work
from zeropoint.cli.quantize import Mode


class Metric(str, Enum):
    """How a model is judged."""

    sqnr = "sqnr"
    cosine = "cosine"
    agreement = "agreement"


def sensitivity(
    model: Model,
    data: Data,
    metric: Annotated[Metric, typer.Option("--metric", help="Metric, compared with the float model.")] = Metric.sqnr,
    mode: Annotated[Mode, typer.Option("--mode", "-m", help="Quantization mode.")] = Mode.static,
    cumulative: Annotated[bool, typer.Option(help="Also quantize layers cumulatively.")] = True,
    batch: Batch = 8,
    samples: Samples = 32,
    pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Quantize one layer at a time, then cumulatively, and measure the whole model each time."""
    from zeropoint.comparison.sensitivity import sensitivity as find

    with work(as_json):
        source = load_float(model, pickle)
        batches = load_tensors(data, source, batch, samples)
        found = find(source, batches, metric.value, mode=mode.value, cumulative=cumulative)
        show(found, found.to_json(), as_json)
