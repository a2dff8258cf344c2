"""zeropoint quantize"""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from zeropoint.atomic_file import replacing
from zeropoint.cli.data import Batch, OptionalData, Samples, in_words, load_tensors, one_sample, sample_count
from zeropoint.cli.language import (
    Bits,
    Cache,
    CacheType,
    Context,
    Group,
    Rotate,
    Sequences,
    Texts,
    is_language_model,
    quantize_language_model,
)
from zeropoint.cli.models import Model, Pickle, is_script, load_exported, load_float
from zeropoint.cli.named import is_named
from zeropoint.cli.output import AsJson, show, work
from zeropoint.cli.paths import existing, require_other, writable
from zeropoint.progress import during

SUFFIXES = (".zpt", ".pt2", ".pt")
POOR = 20.0  # dB: below it, the accuracy is worth another look
COMPARED = 16  # samples on which the quantized model is compared with the float one


class Mode(str, Enum):
    """How activations are treated."""

    static = "static"
    dynamic = "dynamic"
    weight_only = "weight_only"


Float = Annotated[
    list[str] | None, typer.Option("--float", metavar="PATH", help="Keep this module in float; can be repeated.")
]


def quantize(
    model: Model,
    data: OptionalData = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A .zpt or .pt2 file; for TorchScript, .zpt or .pt.", callback=writable(*SUFFIXES)
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the plan: what is quantized, what stays float and why.")
    ] = False,
    mode: Annotated[Mode, typer.Option("--mode", "-m", help="Quantization mode.")] = Mode.static,
    keep: Float = None,
    report: Annotated[
        Path | None, typer.Option("--report", "-r", help="Also write an HTML report.", callback=writable())
    ] = None,
    batch: Batch = 8,
    samples: Samples = 100,
    pickle: Pickle = False,
    bits: Bits = 4,
    group: Group = 32,
    cache: Cache = CacheType.int8,
    context: Context = None,
    sequences: Sequences = 4,
    text: Texts = None,
    rotate: Rotate = False,
    as_json: AsJson = False,
) -> None:
    """Quantize and compile a model.

    Example: `zeropoint quantize resnet18.pt2 --data images.npy -o resnet18.zpt --report report.html`

    A language model in a GGUF file, or in a folder with config.json, safetensors and tokenizer.json, becomes a program
    for `zeropoint chat`, without data: `zeropoint quantize model.gguf -o model.zpt`
    """
    require_other(output, model, data)
    if is_language_model(model):
        if not Path(model).is_dir():
            existing(model)
        given = {
            "--data": data,
            "--dry-run": dry_run,
            "--report": report,
            "--float": keep,
            "--mode": mode is not Mode.static,
        }
        if unused := [option for option, value in given.items() if value]:
            raise typer.BadParameter(f"{', '.join(unused)}: omit it; a language model is quantized without data")
        if output is None or output.suffix != ".zpt":
            raise typer.BadParameter("pass a file for the result, --output model.zpt")
        with work(as_json):
            quantize_language_model(
                model,
                output,
                as_json,
                text,
                bits=bits,
                group=group,
                cache=cache.value,
                context=context,
                sequences=sequences,
                rotate=rotate,
            )
        return
    if (bits, group, cache, context, sequences, text, rotate) != (4, 32, CacheType.int8, None, 4, None, False):
        raise typer.BadParameter(
            "--bits, --group, --cache, --context, --sequences, --text and --rotate are for language models (a GGUF file"
            " or a folder): omit them"
        )
    if data is None and not is_named(model):
        existing(model)
    if data is None and (mode is Mode.static or not model.endswith(".pt2")):
        needless = "; a .pt2 file needs none with --mode dynamic or weight_only" if mode is Mode.static else ""
        raise typer.BadParameter(f"Missing option '--data': pass samples, as in --data images.npy{needless}")
    if output is None and not dry_run:
        raise typer.BadParameter("pass a file for the result, --output model.zpt, or --dry-run for the plan alone")
    start = time.perf_counter()
    with work(as_json):
        with during(f"reading {model}", progress=True):
            if data is None:
                source, batches = _with_example(model, pickle)
            else:
                source = load_float(model, pickle)
                batches = load_tensors(data, source, batch, samples)
        if output is None or dry_run:
            found = _planned(source, batches, mode, keep, one_sample(data, batches, source))
            show(found, found.facts(), as_json)
            return
        if is_script(source):
            facts = _script(source, data, batches, mode, output, keep, report)
        else:
            facts = _graph(source, data, batches, mode, output, keep, report)
        facts = {"output": str(output), "bytes": output.stat().st_size, "float_bytes": _size(source), **facts}
        facts["seconds"] = round(time.perf_counter() - start, 3)
        facts["next"] = _next(model, data, output, facts)
        show("\n".join(_lines(facts)), facts, as_json)


def _with_example(model: str, pickle: bool) -> tuple[Any, list[Any]]:
    """A .pt2 file's model, and its example inputs as the only batch."""
    exported = load_exported(Path(model), pickle)
    if exported.example_inputs is None:
        raise ValueError(f"{model} has no example inputs: pass some with --data")
    args, kwargs = exported.example_inputs
    if args and kwargs:
        raise ValueError(f"{model} has positional and keyword example inputs: pass some with --data")
    return exported.module(), [args or kwargs]


def quantized_form(model: Any, batches: list[Any], mode: Mode, keep: list[str] | None) -> Any:
    """What `to_int8` makes of a model, some modules left in float; of a TorchScript model, TorchScript."""
    if is_script(model):
        return _script_form(model, batches, mode, keep)
    from zeropoint.graph.to_int8 import to_int8
    from zeropoint.graph.workflow import Quantized

    if isinstance(model, Quantized):  # from a file of integers, whose scales it keeps
        if keep:
            raise ValueError(f"the model is quantized already: {', '.join(keep)} cannot be left in float; omit --float")
        return model
    calibration = batches if mode is Mode.static else None
    return to_int8(model, batches[0], calibration, _mapping(mode, keep), mode.value)


def _mapping(mode: Mode, keep: list[str] | None) -> Any:
    """The rules that keep modules in float; None if there are none."""
    from zeropoint.graph.policy import Policy

    mapping = Policy().mapping(None, mode.value)
    for path in keep or ():
        mapping.set_module_name(path, None)
    return mapping if keep else None


def _planned(model: Any, batches: list[Any], mode: Mode, keep: list[str] | None, timed: Any) -> Any:
    from zeropoint.cli.dry_run import plan

    if is_script(model):
        raise ValueError("--dry-run does not support TorchScript: export the model with torch.export, or omit it")
    return plan(model, batches, mode.value, _mapping(mode, keep), timed)


def _graph(
    model: Any, data: str | None, batches: list[Any], mode: Mode, output: Path, keep: Any, report: Path | None
) -> dict[str, Any]:
    from zeropoint.cli.programs import write_quantized

    quantized = quantized_form(model, batches, mode, keep)
    with during(f"writing {output}", progress=True):
        written = write_quantized(quantized, batches[0], output)
    facts: dict[str, Any] = {"operators": dict(quantized.summary().counts())}
    return facts | _judged(model, quantized, written, data, batches, output, report)


def _script(
    model: Any, data: str | None, batches: list[Any], mode: Mode, output: Path, keep: Any, report: Path | None
) -> dict[str, Any]:
    import torch

    import zeropoint

    if output.suffix == ".pt2":
        raise ValueError(f"the output of a TorchScript model must end in .pt or .zpt, got {output}")
    quantized = quantized_form(model, batches, mode, keep)
    written = quantized
    with during(f"writing {output}", progress=True):
        if output.suffix == ".zpt":
            written = zeropoint.compile(quantized, batches[0])
            written.save(output)
        else:
            with replacing(output) as new:
                torch.jit.save(quantized, str(new))
    facts = {"operators": dict(zeropoint.summary(quantized).counts())}
    return facts | _judged(model, quantized, written, data, batches, output, report)


def _judged(
    model: Any, quantized: Any, written: Any, data: str | None, batches: list[Any], output: Path, report: Path | None
) -> dict[str, Any]:
    """How far what was written is from the model, on some of the batches; the report says it too, if there is one."""
    timed = one_sample(data, batches, model, quantized, written)
    count = {"timed_samples": sample_count(timed)}
    if report is None:
        return _distance(model, written, batches) | _times(model, written, timed) | count
    from zeropoint.report.html import write_report

    some = _some(batches)
    found = write_report(report, model, quantized, some, title=output.stem, timed=timed)
    times = {"float_milliseconds": found.float_milliseconds, "milliseconds": found.milliseconds}
    return _facts(found.comparison, some, batches) | times | count | {"report": str(report)}


def _times(model: Any, written: Any, batch: Any) -> dict[str, float]:
    from zeropoint.comparison.timing import float_and_deployed

    with during("timing", progress=True):
        before, after = float_and_deployed(model, written, batch)
    return {"float_milliseconds": before, "milliseconds": after}


def _script_form(model: Any, batches: list[Any], mode: Mode, keep: list[str] | None) -> Any:
    import torch

    import zeropoint

    left = dict.fromkeys(keep or ())
    if mode is Mode.weight_only:
        raise ValueError(
            "TorchScript models support the modes static and dynamic; for weight_only, export the "
            "model with torch.export"
        )
    if mode is Mode.dynamic:
        return zeropoint.quantize_dynamic_jit(model, {"": zeropoint.default_dynamic_qconfig, **left})

    def calibrate(prepared: Any) -> None:
        with torch.no_grad():
            for b in batches:
                prepared(*b)

    return zeropoint.quantize_jit(model, {"": zeropoint.get_default_qconfig("native"), **left}, calibrate, ())


def _distance(model: Any, quantized: Any, batches: list[Any]) -> dict[str, Any]:
    """How far the outputs are apart, on some of the batches."""
    from zeropoint.comparison.layers import compare_outputs

    some = _some(batches)
    with during("comparing", progress=True):
        return _facts(compare_outputs(model, quantized, some), some, batches)


def _facts(found: Any, some: list[Any], batches: list[Any]) -> dict[str, Any]:
    from zeropoint.comparison.layers import finite

    counts = {"samples": sum(map(sample_count, batches)), "compared": sum(map(sample_count, some))}
    return finite({"sqnr": found.sqnr, "cosine": found.cosine}) | counts


def _some(batches: list[Any]) -> list[Any]:
    return batches[: max(1, -(-COMPARED // max(1, sample_count(batches[0]))))]


def _size(model: Any) -> int:
    from zeropoint.comparison.sizes import model_bytes

    return model_bytes(model)


def _next(model: str, data: str | None, output: Path, facts: dict[str, Any]) -> str:
    """The command that most will want next."""
    data = data or "DATA"
    if facts["sqnr"] is not None and facts["sqnr"] < POOR:
        return f"zeropoint tune {model} --data {data} -o {output}"
    return (
        f"zeropoint show {output}" if output.suffix == ".zpt" else f"zeropoint compare {model} {output} --data {data}"
    )


def _lines(facts: dict[str, Any]) -> list[str]:
    from zeropoint.report.markup import milliseconds
    from zeropoint.table import quantized_of, readable_bytes, size_change

    change = size_change(facts["float_bytes"], facts["bytes"])
    on = f"on {facts['compared']} of {facts['samples']} samples"
    before, after = facts["float_milliseconds"], facts["milliseconds"]
    speed = f"{before / after:.1f}x as fast as" if after <= before else f"{after / before:.1f}x slower than"
    precisions = [precision for precision, count in facts["operators"].items() for _ in range(count)]
    timed = in_words(facts["timed_samples"])
    counts = "; ".join(f"{count} {precision}" for precision, count in facts["operators"].items())
    return [
        f"operators  {quantized_of(precisions)} quantized: {counts}",
        *([f"report     {facts['report']}"] if "report" in facts else []),
        f"took       {facts['seconds']:.1f} s",
        f"accuracy   SQNR {facts['sqnr'] or float('inf'):.1f} dB, cosine {facts['cosine']:.5f} to float {on}",
        f"size       {facts['output']}: {readable_bytes(facts['bytes'])}, {change} than float",
        f"speed      {milliseconds(after)} for {timed}: {speed} float, {milliseconds(before)}",
        f"next       {facts['next']}",
    ]
