"""What ONNX has for each operator: how its calls are written, and which operators of ONNX are read as it.

A family of operators is one file here, beside the one with its records; `attached` gives every record its forms.
Nothing here imports onnx: writers and readers see files through `OnnxWriter` and `OnnxReader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from zeropoint.operators.onnx import (
    activations,
    arithmetic,
    borders,
    elementwise,
    embedding,
    layers,
    movement,
    norms,
    pooling,
    recurrent,
    reducing,
    unquantized,
    views,
    writing,
)
from zeropoint.operators.onnx_forms import OnnxForms
from zeropoint.operators.record import Operator

__all__ = ["attached"]

_FAMILIES = (
    activations,
    arithmetic,
    borders,
    elementwise,
    embedding,
    layers,
    movement,
    norms,
    pooling,
    recurrent,
    reducing,
    unquantized,
    views,
    writing,
)
_BY_NAME: dict[str, OnnxForms] = {}
for _family in _FAMILIES:
    _twice = _BY_NAME.keys() & _family.FORMS.keys()
    assert not _twice, f"forms of ONNX are given twice for {', '.join(_twice)}"
    _BY_NAME.update(_family.FORMS)


def attached(records: Iterable[Operator]) -> Iterator[Operator]:
    """The records, each with what ONNX has for it."""
    for record in records:
        forms = _BY_NAME.get(record.name)
        yield record if forms is None else replace(record, onnx=forms)


def unattached(records: Iterable[Operator]) -> set[str]:
    """Names of forms that are none of the records': a mistake in a table of this folder."""
    return _BY_NAME.keys() - {record.name for record in records}
