"""zeropoint compare"""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from zeropoint.cli.data import Batch, Data, Samples, load_tensors
from zeropoint.cli.models import Model, Pickle, load_float, load_model
from zeropoint.cli.output import AsJson, show, work
from zeropoint.cli.programs import on_tensors
from zeropoint.cli.quantize import Float, Mode, quantized_form


def compare(
    model: Model,
    data: Data,
    quantized: Annotated[
        str | None, typer.Argument(metavar="[QUANTIZED]", help="The quantized model; by default it is quantized now.")
    ] = None,
    mode: Annotated[
        Mode, typer.Option("--mode", "-m", help="Quantization mode, if it is quantized now.")
    ] = Mode.static,
    keep: Float = None,
    batch: Batch = 8,
    samples: Samples = 32,
    pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Rank the layers by their share of the error.

    A QUANTIZED file `.zpt` or `.pt2` has no layers to look into any more, and TorchScript only where it is a straight
    line: otherwise the outputs are compared.
    """
    from zeropoint.comparison.layers import compare as compare_layers, compare_outputs, finite
    from zeropoint.graph.frontends.script.evaluate import NotStraight

    with work(as_json):
        source = load_float(model, pickle)
        batches = load_tensors(data, source, batch, samples)
        other = (
            quantized_form(source, batches, mode, keep)
            if quantized is None
            else on_tensors(load_model(quantized, pickle))
        )
        found = None
        if _has_layers(other):
            with contextlib.suppress(NotStraight):
                found = compare_layers(source, other, batches)
        if found is not None:
            show(found, found.to_json(), as_json)
        else:
            apart = compare_outputs(source, other, batches)
            facts = finite({"sqnr": apart.sqnr, "cosine": apart.cosine, "batches": len(batches)})
            show(f"output: SQNR {facts['sqnr'] or float('inf'):.1f} dB, cosine {facts['cosine']:.5f}", facts, as_json)


def _has_layers(model: Any) -> bool:
    from torch import nn

    from zeropoint.graph.frontends.export import is_exported

    return isinstance(model, nn.Module) and not is_exported(model)
