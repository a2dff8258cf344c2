"""Objects of C++ classes that zeropoint has no counterpart of, in files beside packed weights."""

from __future__ import annotations

import io

import pytest
import torch

import zeropoint.compat


@pytest.mark.oracle  # PyTorch's packed weights
def test_objects_of_other_classes_are_read_by_torch() -> None:
    weight = torch.quantize_per_tensor(torch.randn(8, 8), 0.1, 0, torch.qint8)
    foreign = torch.ops.sparse.qlinear_prepack(weight, None, 1, 4)
    packed = torch.ops.quantized.linear_prepack(weight, None)
    file = io.BytesIO()
    torch.save([foreign, foreign, packed, packed], file)
    file.seek(0)
    zeropoint.compat.install()
    try:
        first, second, third, fourth = torch.load(file, weights_only=False)
    finally:
        zeropoint.compat.uninstall()
    assert first is second
    assert type(first) is torch.ScriptObject
    assert first._type() == foreign._type()
    assert third is fourth
    assert torch.equal(third.unpack()[0].int_repr(), weight.int_repr())
