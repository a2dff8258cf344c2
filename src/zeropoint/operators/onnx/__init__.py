"""What ONNX has for each operator: how its calls are written, and which operators of ONNX are read as it.

A family of operators is one file here, beside the one with its records, and those that runtimes add are others;
`attached` gives every record its forms.
Nothing here imports onnx: writers and readers see files through `OnnxWriter` and `OnnxReader`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import replace

from zeropoint.operators.onnx_forms import OnnxForms
from zeropoint.operators.record import Operator

__all__ = ["attached"]

_BY_NAME: dict[str, OnnxForms] = {}
for _module in pkgutil.iter_modules(__path__):
    for _name, _forms in getattr(importlib.import_module(f"{__name__}.{_module.name}"), "FORMS", {}).items():
        _before = _BY_NAME.get(_name, OnnxForms())
        _twice = {name for name, _ in (*_before.writes, *_before.reads)} & {
            n for n, _ in (*_forms.writes, *_forms.reads)
        }
        assert not _twice, f"forms of ONNX are given twice for {', '.join(_twice)}"
        _BY_NAME[_name] = OnnxForms(_before.writes + _forms.writes, _before.reads + _forms.reads)


def attached(records: Iterable[Operator]) -> Iterator[Operator]:
    """The records, each with what ONNX has for it."""
    for record in records:
        forms = _BY_NAME.get(record.name)
        yield record if forms is None else replace(record, onnx=forms)
