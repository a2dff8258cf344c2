"""The records as a page of the documentation."""

from __future__ import annotations

from zeropoint.operators.record import Operator
from zeropoint.operators.registry import operators

_HEAD = """# Operators

This page shows how each operator runs in a quantized model. `python tests/operators/test_operator_page.py` generates it
from the records in `src/zeropoint/operators/`.

- **static**: static quantization, in `torch.export` and TorchScript graphs. "int8": runs in int8 with its own output
  scale. "keeps scale": runs in int8 with the scale of its input. "float32": stays in float.
- **TorchScript**: "as static", or "also of floats": quantized even if its inputs are in float, as in PyTorch.
- **training**: what `prepare_qat_graph` rounds in training: the outputs ("results"), and the weights if named.
- **dynamic**, **weight-only**: supports dynamic or weight-only quantization.
- **eager**: the module has a quantized version in eager mode (`prepare`, `convert`).
- **program**: `zeropoint.compile` supports it, in int8 or in float.
- **ONNX**: the ONNX operators that `from_onnx` converts to it; "out" if `export_onnx` can write it.

| operator | modules | static | TorchScript | training | dynamic | weight-only | eager | program | ONNX |
|---|---|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The table of operators, in Markdown."""
    shown = [record for record in operators() if record.aten]
    return _HEAD + "".join(_row(record) for record in sorted(shown, key=lambda record: record.name))


def _row(record: Operator) -> str:
    modules = ", ".join(f"`nn.{module.__name__}`" for module in record.modules)
    known = {forms.module for forms in record.forms if forms.static or forms.dynamic}
    eager = record.keeps_scale or any(module in known for module in record.modules)
    has_steps = bool(record.steps) or record.float_form is not None
    marks = (record.dynamic, record.weight_only, bool(record.modules) and eager, has_steps)
    script = "also of floats" if record.alone else "as static"
    ways = (_static(record), script, _training(record))
    cells = (f"`{record.name}`", modules, *ways, *("yes" if mark else "" for mark in marks), _onnx(record))
    return "| " + " | ".join(cells) + " |\n"


def _onnx(record: Operator) -> str:
    read = [f"`{name}`" for name, _ in record.onnx.reads]
    return ", ".join([*read, *(["out"] if record.onnx.writes else [])])


def _static(record: Operator) -> str:
    if record.keeps_scale:
        return "keeps scale"
    return "float32" if record.annotate is None or (record.weights and not record.is_layer) else "int8"


def _training(record: Operator) -> str:
    weights = bool(record.weights or record.slopes)
    if record.keeps_scale and not record.rounds_to_input:
        return ""
    if _static(record) == "float32":
        return "weights" if weights else ""
    return "results, weights" if weights else "results"
