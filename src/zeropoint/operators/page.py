"""The records as a page of the documentation."""

from __future__ import annotations

from zeropoint.operators.record import Operator
from zeropoint.operators.registry import operators

__all__ = ["page"]

_HEAD = """# Operators

What becomes of each operator in a quantized model. This page is made from the records in `src/zeropoint/operators/`:
`python tests/operators/test_operator_page.py` writes it.

- **static**: how it is computed with calibrated activations, in graphs of torch.export and of TorchScript. "int8": on
  integers, with a scale of its own. "keeps scale": on integers, with the scale of its input. "float32": it stays float.
- **TorchScript**: "as static", or "also of floats": there it is quantized even if its inputs are float, as in PyTorch.
- **training**: what `prepare_qat_fx` rounds as the deployed model will: its results, or its weights, too.
- **dynamic**, **weight-only**: whether it has a form with ranges found when it runs, or with quantized weights alone.
- **eager**: whether its module has a quantized form in eager mode (`prepare`, `convert`).
- **program**: whether `zeropoint.compile` has steps for it, on integers or as it stays float.
- **ONNX**: which operators of ONNX files `from_onnx` reads as it, and whether `export_onnx` writes it ("out").

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
    if record.keeps_scale and not (record.averages or record.bounds):
        return ""
    if _static(record) == "float32":
        return "weights" if weights else ""
    return "results, weights" if weights else "results"
