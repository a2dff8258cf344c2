"""What ONNX has for each operator: how its calls are written, and which operators of ONNX are read as it.

A family of operators is one file here, beside the one with its records; `attached` gives every record its forms.
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
    _forms = getattr(importlib.import_module(f"{__name__}.{_module.name}"), "FORMS", {})
    _twice = _BY_NAME.keys() & _forms.keys()
    assert not _twice, f"forms of ONNX are given twice for {', '.join(_twice)}"
    _BY_NAME.update(_forms)


def attached(records: Iterable[Operator]) -> Iterator[Operator]:
    """The records, each with what ONNX has for it."""
    for record in records:
        forms = _BY_NAME.get(record.name)
        yield record if forms is None else replace(record, onnx=forms)


def unattached(records: Iterable[Operator]) -> set[str]:
    """Names of forms that are none of the records': a mistake in a table of this folder."""
    return _BY_NAME.keys() - {record.name for record in records}
