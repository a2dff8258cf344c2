"""zeropoint tune"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zeropoint.cli.data import Batch, Data, Samples, load_tensors
from zeropoint.cli.models import Model, Pickle, is_script, load_float
from zeropoint.cli.output import AsJson, note, show, work
from zeropoint.cli.paths import writable
from zeropoint.cli.sensitivity import Metric


def tune(
    model: Model,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A .zpt or .pt2 file.", callback=writable(".zpt", ".pt2"))
    ],
    metric: Annotated[Metric, typer.Option("--metric", help="Metric, compared with the float model.")] = Metric.sqnr,
    target: Annotated[
        float | None, typer.Option("--target", "-t", help="Stop when the metric reaches this value.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            min=0.0,
            help="Minutes after which nothing new is started. Without a target, GPTQ and AdaRound get as long as the "
            "cheap algorithms before them took.",
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", help="Share of the loss that the target allows to leave unused, below 1.")
    ] = 0.2,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="Save measurements to this file and resume from it.", callback=writable()),
    ] = None,
    mixed_precision: Annotated[bool, typer.Option(help="Allow other precisions than int8 for some layers.")] = True,
    batch: Batch = 8,
    samples: Samples = 100,
    pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Quantize a model to an accuracy target: try cheap algorithms first, then mixed precision.

    Shows what it tries and what it found. Ctrl-C ends the search and keeps the best.

    Example: `zeropoint tune resnet18.pt2 --data images.npy -o resnet18.zpt --metric agreement --target 0.99`
    """
    if not 0 <= margin < 1:
        raise typer.BadParameter(f"margin must be at least 0 and less than 1, got {margin}")
    with work(as_json):
        source = load_float(model, pickle)
        if is_script(source):
            raise ValueError(
                "tune does not support TorchScript: pass a .pt2 file or package.module:function, or "
                "use zeropoint quantize"
            )
        batches = load_tensors(data, source, batch, samples)
        from zeropoint.accuracy.tune import tune as search
        from zeropoint.cli.programs import write_quantized

        found = search(
            source, batches[0], batches, metric.value, target, budget,
            mixed_precision=mixed_precision, margin=margin, checkpoint=checkpoint,
        )  # fmt: skip
        write_quantized(found.model, batches[0], output)
        if found.met is False:
            note(f"the target was not met: {output} is the best result")
        show(found, found.to_json(), as_json)
